package lab

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// guard is the init process of the PID namespace that the lab's commands live in. When it ends, the kernel kills all of
// them, whatever they did to get away. It ends with its standard input, of which the lab's process holds the only other
// end, so also when that process is killed.
type guard struct {
	cmd   *exec.Cmd
	stdin io.Closer
	pid   int // namespaces
	mnt   int
}

// guardName is argv[0] of a guard process. The program is this one: any that uses the package can be its own guard.
const guardName = "fxfer-lab-guard"

func init() {
	if len(os.Args) == 1 && os.Args[0] == guardName && os.Getpid() == 1 {
		guardMain()
	}
}

// guardMain is what a guard process does. It says that it is ready by closing its standard output.
func guardMain() {
	signal.Ignore(syscall.SIGCHLD, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP) // orphans end without a wait
	// Commands should find their own PIDs in /proc. Where a container forbids that, they see the outer ones.
	if unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, "") == nil {
		unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	}
	os.Stdout.Close()
	io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

func startGuard() (_ *guard, err error) {
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{guardName}, SysProcAttr: &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS,
		Setsid:     true, // out of reach of the terminal's signals
	}}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	ready, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, unsupported("make a PID namespace", err)
	}
	g := &guard{cmd: cmd, stdin: stdin, pid: -1, mnt: -1}
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	if _, err := io.Copy(io.Discard, ready); err != nil {
		return nil, fmt.Errorf("wait for the guard: %w", err)
	}
	for _, ns := range []struct {
		fd   *int
		name string
	}{{&g.pid, "pid"}, {&g.mnt, "mnt"}} {
		if *ns.fd, err = unix.Open(fmt.Sprintf("/proc/%d/ns/%s", cmd.Process.Pid, ns.name), unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return nil, fmt.Errorf("open the guard's %s namespace: %w", ns.name, err)
		}
	}
	return g, nil
}

// enter puts the calling thread's future children, and its view of the file system, into the guard's namespaces. The
// thread must not share its file system state with others.
func (g *guard) enter() error {
	if err := unix.Setns(g.mnt, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the mount namespace: %w", err)
	}
	if err := unix.Setns(g.pid, unix.CLONE_NEWPID); err != nil {
		return fmt.Errorf("enter the PID namespace: %w", err)
	}
	return nil
}

// close kills all that runs under the guard, and returns when the last of it is gone.
func (g *guard) close() error {
	g.stdin.Close()
	err := g.cmd.Wait()
	for _, fd := range []int{g.pid, g.mnt} {
		if fd >= 0 {
			err = errors.Join(err, unix.Close(fd))
		}
	}
	if err != nil {
		return fmt.Errorf("end the guard: %w", err)
	}
	return nil
}
