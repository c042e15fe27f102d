package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// box is the process that carries the link, so that other work of the lab's process delays no
// packet. It is also the init process of the PID namespace of the lab's commands: when it ends,
// the kernel kills all of them, whatever they did to escape. It ends when its standard input
// closes. The lab's process holds the only other end of that, so the box also ends when that
// process is killed. Its TUN devices end with it.
type box struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *json.Decoder
	stderr strings.Builder // its standard error; read it only after done
	done   chan struct{}   // closed when the process is gone
	err    error           // result of its Wait; read it only after done
	pid    int             // its namespaces
	mnt    int
}

// boxRequest sets the links and begins an outage of Down ns, each only if it is given. Without
// links it asks for the counters.
type boxRequest struct {
	Links   []*Link `json:"links"`   // two for each leg: left to right, right to left; nil: as it is
	Threads []int   `json:"threads"` // which thread carries each of them; of the first request
	Down    []int64 `json:"down"`
}

// boxReply answers a request when it is in effect.
type boxReply struct {
	Counters []Counters `json:"counters"`        // in the order of the links
	Error    string     `json:"error,omitempty"` // error that ended a direction, if any
}

const (
	// boxName is argv[0] of a box. The box runs this same program, so any program that uses the
	// package can be its own box.
	boxName = "fxfer-lab-box"
	boxTUN  = 3 // from this descriptor on: the left and the right TUN device of each leg
)

func init() {
	if len(os.Args) == 1 && os.Args[0] == boxName && os.Getpid() == 1 {
		if err := boxMain(json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			unix.Exit(1)
		}
		unix.Exit(0) // at once, because the process that closes the lab waits
	}
}

// boxMain is the main function of the box. The first request is complete. Its reply says that the
// link works.
func boxMain(in *json.Decoder, out *json.Encoder) error {
	// Ignoring SIGCHLD makes the kernel reap orphans.
	signal.Ignore(syscall.SIGCHLD, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	// Commands should find their own PIDs in /proc. Some containers forbid the mount; there they
	// see the outer PIDs.
	if unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, "") == nil {
		_ = unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	}

	hurry()

	var req boxRequest
	if err := in.Decode(&req); err != nil {
		return fmt.Errorf("read the link: %w", err)
	}
	threads := make([]*pumpThread, slices.Max(req.Threads)+1)
	for i := range threads {
		var err error
		if threads[i], err = newPumpThread(); err != nil {
			return err
		}
	}
	pumps := make([]*pump, len(req.Links))
	for i := range pumps {
		if err := unix.SetNonblock(boxTUN+i, true); err != nil {
			return fmt.Errorf("set up the TUN device: %w", err)
		}
		pumps[i] = &pump{line: newLine(*req.Links[i], uint64(i+1)), src: boxTUN + i, dst: boxTUN + (i ^ 1), thread: threads[req.Threads[i]]}
		pumps[i].thread.pumps = append(pumps[i].thread.pumps, pumps[i])
	}
	// With spare processors, the scheduler does not take those of these threads away during system calls.
	runtime.GOMAXPROCS(max(2+len(threads), runtime.GOMAXPROCS(0)))
	failed := make(chan error, len(threads))
	for _, t := range threads {
		go func() { failed <- t.run() }()
	}
	r := boxReply{Counters: make([]Counters, len(pumps))}
	for {
		select {
		case err := <-failed:
			r.Error = err.Error()
		default:
		}
		for i, p := range pumps {
			r.Counters[i] = p.line.count.snapshot()
		}
		if err := out.Encode(r); err != nil {
			return err
		}
		req = boxRequest{}
		if err := in.Decode(&req); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		for i, l := range req.Links {
			if l != nil {
				pumps[i].set(*l, req.Down[i])
			}
		}
	}
}

// hurry lets the box go before the programs that use the link, as far as the user has the right to
// do so. They would hold packets up for longer than the link's delay. It concerns all threads,
// because the Go scheduler passes the pumps' goroutines from one to another. Later threads inherit
// it.
func hurry() {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if unix.SchedSetAttr(tid, &unix.SchedAttr{Policy: unix.SCHED_RR, Priority: 1}, 0) != nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, tid, -20)
		}
	}
}

// startBox starts a box that joins each two TUN devices with the links left to right and right to
// left, each of which a thread carries. The caller keeps the devices' descriptors and may close them.
func startBox(links []Link, threads []int, tuns []*os.File) (_ *box, err error) {
	b := &box{done: make(chan struct{}), pid: -1, mnt: -1}
	cmd := &exec.Cmd{
		Path:       "/proc/self/exe",
		Args:       []string{boxName},
		Stderr:     &b.stderr,
		ExtraFiles: tuns,
		SysProcAttr: &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS,
			Setsid:     true, // out of reach of the terminal's signals
		},
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the link: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the link: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, unsupported("make a PID namespace", err)
	}
	b.cmd, b.in, b.out = cmd, in, json.NewDecoder(out)
	go func() {
		b.err = cmd.Wait()
		close(b.done)
	}()
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close(nil))
		}
	}()
	first := boxRequest{Threads: threads}
	for i := range links {
		first.Links = append(first.Links, &links[i])
	}
	if _, err := b.ask(first); err != nil {
		return nil, err
	}
	for _, ns := range []struct {
		fd   *int
		name string
	}{{&b.pid, "pid"}, {&b.mnt, "mnt"}} {
		if *ns.fd, err = unix.Open(fmt.Sprintf("/proc/%d/ns/%s", cmd.Process.Pid, ns.name), unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return nil, fmt.Errorf("open the %s namespace: %w", ns.name, err)
		}
	}
	return b, nil
}

// ask sends a request and returns the reply. It must not be called concurrently.
func (b *box) ask(req boxRequest) (r boxReply, err error) {
	if err = json.NewEncoder(b.in).Encode(req); err == nil {
		err = b.out.Decode(&r)
	}
	if err != nil {
		return r, fmt.Errorf("reach the link: %w", err)
	}
	if r.Error != "" {
		return r, errors.New(r.Error)
	}
	return r, nil
}

// enter puts the calling thread's future children, and its view of the file system, into the
// box's namespaces. The thread must not share its file system state with others.
func (b *box) enter() error {
	if err := unix.Setns(b.mnt, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the mount namespace: %w", err)
	}
	if err := unix.Setns(b.pid, unix.CLONE_NEWPID); err != nil {
		return fmt.Errorf("enter the PID namespace: %w", err)
	}
	return nil
}

// close ends the box and everything that runs in it. The kernel lets the init process of a
// namespace end only after the last other process in it, including zombies. cmds are the commands
// without a finished Wait. If nobody waits for some of them, close returns when these are dead.
// Otherwise it returns when the box has ended, with the box's error.
func (b *box) close(cmds []*Cmd) error {
	b.in.Close()
	orphaned := false
	for _, c := range cmds {
		if !c.waiting.Load() {
			orphaned = true
			c.awaitDeath()
		}
	}
	var err error
	if !orphaned {
		<-b.done
		err = b.err
	}
	for _, fd := range []int{b.pid, b.mnt} {
		if fd >= 0 {
			err = errors.Join(err, unix.Close(fd))
		}
	}
	if err != nil {
		return fmt.Errorf("end the link: %w %s", err, strings.TrimSpace(b.stderr.String()))
	}
	return nil
}
