package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Host is one end of a link: a network namespace with the same limits and defaults as this
// machine.
type Host struct {
	lab   *Lab
	addr  netip.Addr
	addr6 netip.Addr
	net   int // namespace
}

// Addr returns the host's IPv4 address on the link.
func (h *Host) Addr() netip.Addr { return h.addr }

// Addr6 returns the host's IPv6 address on the link. It works only if this machine has IPv6.
func (h *Host) Addr6() netip.Addr { return h.addr6 }

// Do calls f on a thread inside the host, and returns its error. Sockets that f makes on its own
// goroutine belong to the host permanently, and may be used anywhere. This includes net.Listen
// and net.Dial with literal addresses. Goroutines that f starts are outside the host. A socket
// keeps its namespace alive, so close it before the lab.
func (h *Host) Do(f func() error) error {
	return onThread(func() error {
		if err := h.enterNet(); err != nil {
			return err
		}
		return f()
	})
}

func (h *Host) enterNet() error {
	if err := unix.Setns(h.net, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network namespace: %w", err)
	}
	return nil
}

// Cmd is an exec.Cmd whose process runs inside a host. Set its fields before Start, as with
// exec.Cmd. Only the methods declared here start it in the right place.
type Cmd struct {
	*exec.Cmd
	host    *Host
	waiting atomic.Bool // Wait was called
}

// Command returns a command that runs inside the host. Its environment has the addresses of the
// hosts as FXFER_LAB_LEFT, FXFER_LAB_RIGHT and, in a chain, FXFER_LAB_MIDDLE1 and so on. The processes that it starts see each other, but
// none outside the lab. All of them end with the lab, however that ends. When ctx is done, the
// command is killed.
func (h *Host) Command(ctx context.Context, name string, args ...string) *Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.Env = append(os.Environ(), h.lab.environ()...)
	return &Cmd{Cmd: c, host: h}
}

// Start starts the command and returns while it runs. After success, Wait must be called.
func (c *Cmd) Start() error {
	if c.Dir == "" { // entering a mount namespace changes the working directory
		dir, err := os.Getwd()
		if err != nil {
			return fmt.Errorf("start in the lab: %w", err)
		}
		c.Dir = dir
	}
	l := c.host.lab
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return fmt.Errorf("start in the lab: %w", errClosed)
	}
	err := onThread(func() error {
		if err := errors.Join(unix.Unshare(unix.CLONE_FS), l.box.enter(), c.host.enterNet()); err != nil {
			return fmt.Errorf("start in the lab: %w", err)
		}
		return c.Cmd.Start()
	})
	if err == nil {
		l.cmds[c] = true
	}
	return err
}

// Wait waits for the end of a started command, like exec.Cmd.Wait.
func (c *Cmd) Wait() error {
	c.waiting.Store(true)
	err := c.Cmd.Wait()
	c.host.lab.mu.Lock()
	defer c.host.lab.mu.Unlock()
	delete(c.host.lab.cmds, c)
	return err
}

// awaitDeath returns when the command's process is dead, but leaves its exit status to Wait.
// Linux before 5.4 has no way to do that; there it returns at once.
func (c *Cmd) awaitDeath() {
	_ = c.Process.WithHandle(func(pidfd uintptr) {
		for unix.Waitid(unix.P_PIDFD, int(pidfd), nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
		}
	})
}

// Run starts the command and waits for its end, like exec.Cmd.Run.
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Output runs the command and returns its standard output, like exec.Cmd.Output.
func (c *Cmd) Output() ([]byte, error) {
	var out, errs strings.Builder
	c.Stdout = &out
	if c.Stderr == nil {
		c.Stderr = &errs
	}
	err := c.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		exit.Stderr = []byte(errs.String())
	}
	return []byte(out.String()), err
}

// CombinedOutput runs the command and returns its standard output and error, like exec.Cmd.CombinedOutput.
func (c *Cmd) CombinedOutput() ([]byte, error) {
	var out strings.Builder
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	return []byte(out.String()), err
}

// onThread calls f on a thread of its own, because f changes the thread's namespaces.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if unix.Gettid() == unix.Getpid() {
			// The main thread can't end, and would keep a namespace alive. While it is locked to
			// this goroutine, the inner one runs on another thread.
			defer runtime.UnlockOSThread()
			done <- onThread(f)
			return
		}
		done <- f()
	}()
	return <-done
}

// newHost makes a host in a new network namespace. It is not on a link yet.
func newHost(l *Lab) (h *Host, err error) {
	h = &Host{lab: l}
	err = onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return unsupported("make a network namespace", err)
		}
		h.net, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open the network namespace: %w", err)
		}
		return nil
	})
	return h, err
}

// join puts the host at an end of a link, and returns its TUN device there.
func (h *Host) join(device string, mtu int, addr, addr6 netip.Prefix) (tun *os.File, err error) {
	if !h.addr.IsValid() {
		h.addr, h.addr6 = addr.Addr(), addr6.Addr()
	}
	err = h.Do(func() error {
		tun, err = openTUN(device, mtu, addr, addr6)
		return err
	})
	return tun, err
}

func (h *Host) close() error { return unix.Close(h.net) }
