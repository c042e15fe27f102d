package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/fleet"
)

// startLimit is how long a process may take until it serves.
const startLimit = 2 * time.Minute

// daemon is a process of a site. It is killed at the end.
type daemon struct {
	cmd   *exec.Cmd
	lines chan string                     // what it prints; closed when it ends
	ended atomic.Pointer[os.ProcessState] // set by kill
}

// site is a server and a controller on this machine, and workers.
type site struct {
	program string
	dir     string // controller's store, on a disk
	fast    string // trees, in memory
	env     []string

	server, controller *daemon
	url, address       string
	keys               *fleet.Credentials
	member             *fleet.Member

	mu     sync.Mutex
	all    []*daemon
	events []event // of all workers
}

// event is what a worker says about a task, and what the processes had used by then.
type event struct {
	at             time.Time
	begins         bool
	kind           fleet.Kind
	key            string
	worker, server float64 // CPU seconds
	controller     float64
	left           float64 // processor seconds since the boot that were ours or idle
}

// spawn starts a process. Its home is a folder of the site.
func (s *site) spawn(home string, args ...string) (*daemon, error) {
	d := &daemon{cmd: exec.Command(s.program, args...), lines: make(chan string, 100_000)}
	d.cmd.Env = append(append(os.Environ(), "FXFER_HOME="+filepath.Join(s.dir, home)), s.env...)
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	d.cmd.Stdout, d.cmd.Stderr = w, w
	err = d.cmd.Start()
	w.Close()
	if err != nil {
		r.Close()
		return nil, err
	}
	s.mu.Lock()
	s.all = append(s.all, d)
	s.mu.Unlock()
	go func() {
		defer r.Close()
		defer close(d.lines)
		for lines := bufio.NewScanner(r); lines.Scan(); {
			d.lines <- lines.Text()
		}
	}()
	return d, nil
}

// says waits for a line that contains text, and returns what follows there.
func (d *daemon) says(text string) (string, error) {
	late := time.After(startLimit)
	var said []string
	for {
		select {
		case line, open := <-d.lines:
			if !open {
				return "", fmt.Errorf("%s has ended: %s", d.cmd.Args[1], strings.Join(said, " | "))
			}
			said = append(said, line)
			if _, rest, ok := strings.Cut(line, text); ok {
				return rest, nil
			}
		case <-late:
			return "", fmt.Errorf("%s is not ready: %s", d.cmd.Args[1], strings.Join(said, " | "))
		}
	}
}

func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
	d.ended.Store(d.cmd.ProcessState)
}

// cpu is the CPU seconds of the process so far.
func (d *daemon) cpu() float64 {
	if p := d.ended.Load(); p != nil {
		return (p.UserTime() + p.SystemTime()).Seconds()
	}
	return processSeconds(d.cmd.Process.Pid)
}

// newSite starts a server and a controller. The caller closes the site.
func newSite(ctx context.Context, program string) (s *site, err error) {
	s = &site{program: program}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.dir, err = os.MkdirTemp("", "fxfer-scale-"); err != nil {
		return s, err
	}
	if s.fast, err = os.MkdirTemp("/dev/shm", "fxfer-scale-"); err != nil {
		return s, err
	}
	for _, dir := range []string{s.source(""), s.target("")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return s, err
		}
	}
	listen, err := free()
	if err != nil {
		return s, err
	}
	if s.server, err = s.spawn("server", "serve", "--listen", listen, "--share", "files="+s.target(""), "--invite"); err != nil {
		return s, err
	}
	token, err := s.server.says("fxfer://")
	if err != nil {
		return s, err
	}
	s.url = "fxfer://" + listen + "/files"
	ls := exec.CommandContext(ctx, program, "ls", "fxfer://"+token)
	ls.Env = append(os.Environ(), "FXFER_HOME="+filepath.Join(s.dir, "member"))
	if out, err := ls.CombinedOutput(); err != nil {
		return s, fmt.Errorf("use the invitation: %w: %s", err, out)
	}
	return s, s.control(ctx)
}

// control starts the controller.
func (s *site) control(ctx context.Context) (err error) {
	if s.controller, err = s.spawn("controller", "fleet", "start", "--listen", "127.0.0.1:0"); err != nil {
		return err
	}
	file, err := s.controller.says("credentials in ")
	if err != nil {
		return err
	}
	if s.address, err = s.controller.says("listening on "); err != nil {
		return err
	}
	if s.keys, err = fleet.LoadCredentials(file); err != nil {
		return err
	}
	s.member, err = fleet.Connect(ctx, &fleet.Controlled{Address: s.address, Credentials: s.keys})
	return err
}

func (s *site) close() error {
	if s.member != nil {
		s.member.Close()
	}
	for _, d := range s.all {
		d.kill()
	}
	return errors.Join(os.RemoveAll(s.dir), os.RemoveAll(s.fast))
}

func (s *site) source(name string) string { return filepath.Join(s.fast, "source", name) }
func (s *site) target(name string) string { return filepath.Join(s.fast, "target", name) }

// free returns an address that nobody listens on.
func free() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// work starts a worker. It is one of several, which the caller ends.
func (s *site) work(n int) (*daemon, error) {
	d, err := s.spawn("member", "fleet", "worker", "--controller", s.address, "--name", fmt.Sprint("w", n),
		"--credentials", filepath.Join(s.dir, "controller/fleet/credentials.json"), "--read", s.source(""))
	if err != nil {
		return nil, err
	}
	if _, err := d.says("msg=working"); err != nil {
		return nil, err
	}
	go s.follow(d)
	return d, nil
}

// follow notes what a worker says.
func (s *site) follow(d *daemon) {
	for line := range d.lines {
		e, ok := readEvent(line)
		if !ok {
			continue
		}
		e.at = time.Now()
		e.worker, e.server, e.controller = d.cpu(), s.server.cpu(), s.controller.cpu()
		e.left = s.leftSeconds()
		s.mu.Lock()
		s.events = append(s.events, e)
		s.mu.Unlock()
	}
}

// readEvent reads a line of a worker's log about a task.
func readEvent(line string) (e event, ok bool) {
	fields := strings.Fields(line) // time, level, msg, key and others
	if len(fields) < 4 || fields[2] != "msg=task" && fields[2] != "msg=ended" {
		return e, false
	}
	e.begins = fields[2] == "msg=task"
	e.key, ok = strings.CutPrefix(fields[3], "key=")
	parts := strings.Split(e.key, ".")
	switch {
	case len(parts) == 3:
		e.kind = fleet.Send
	case len(parts) == 2:
		e.kind = fleet.Kind(parts[1])
	default:
		ok = false
	}
	return e, ok
}

// job sends a folder of the source with so many workers, and returns the events of that.
func (s *site) job(ctx context.Context, name string, workers int, opt fleet.Options) (_ []event, err error) {
	s.mu.Lock()
	s.events = nil
	s.mu.Unlock()
	var ds []*daemon
	defer func() {
		for _, d := range ds {
			d.kill()
		}
	}()
	for i := range workers {
		d, err := s.work(i)
		if err != nil {
			return nil, err
		}
		ds = append(ds, d)
	}
	id, err := s.member.Submit(ctx, s.source(name)+"/", s.url+"/"+name, opt)
	if err != nil {
		return nil, err
	}
	for {
		jobs, err := s.member.Jobs(ctx)
		if err != nil {
			return nil, err
		}
		for _, j := range jobs {
			switch {
			case j.ID != id || !j.State.Ended():
			case j.State == fleet.Failed || j.Dead > 0:
				return nil, fmt.Errorf("the job failed: %d dead shards, %s", j.Dead, j.Reason)
			default:
				return s.said(), nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// said returns the events so far.
func (s *site) said() []event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.events
}

// leftSeconds is how many processor seconds since the boot were idle, or of this program and the site's
// processes: what others leave.
func (s *site) leftSeconds() float64 {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	left := 0.0
	for i, field := range strings.Fields(line) {
		if i == 4 || i == 5 { // idle, iowait (proc_stat(5))
			n, _ := strconv.ParseFloat(field, 64)
			left += n / 100
		}
	}
	left += processSeconds(os.Getpid())
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.all {
		left += d.cpu()
	}
	return left
}

// processSeconds returns the CPU seconds of a process so far, 0 if it is gone. The kernel counts
// hundredths (proc_pid_stat(5)).
func processSeconds(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:])) // the name before may contain anything
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100
}

// resident returns how much memory a process has, in bytes.
func resident(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("no VmRSS")
}
