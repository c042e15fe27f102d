package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Detach makes the command the leader of its own process group, out of reach of the terminal's
// signals. Call it before Start.
func (c *Cmd) Detach() {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// Stop ends a detached command and its process group: SIGTERM first, and SIGKILL after the grace
// period. Another goroutine must run the command's Wait and close done after it.
func (c *Cmd) Stop(done <-chan struct{}, grace time.Duration) {
	_ = unix.Kill(-c.Process.Pid, unix.SIGTERM) // all may have ended already
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		_ = unix.Kill(-c.Process.Pid, unix.SIGKILL)
		<-done
	}
}

// Attend waits for the end of a started command. It returns its exit code, or 128 + n if signal n
// ended it. Until then it passes on SIGINT, SIGTERM and SIGHUP, but not a Ctrl-C, which the
// terminal sends to the command itself.
func (c *Cmd) Attend() (int, error) { return attend(c.Process, c.Wait) }

func attend(p *os.Process, wait func() error) (int, error) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer signal.Stop(signals)
	done := make(chan error, 1)
	go func() { done <- wait() }()
	for {
		select {
		case s := <-signals:
			if s != unix.SIGINT || !inForeground() {
				_ = p.Signal(s) // it may have ended already
			}
		case err := <-done:
			return exitCode(err)
		}
	}
}

// inForeground reports whether the terminal sends its signals to this process.
func inForeground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

func exitCode(err error) (int, error) {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return 0, err
	}
	if s := exit.Sys().(syscall.WaitStatus); s.Signaled() {
		return 128 + int(s.Signal()), nil
	}
	return exit.ExitCode(), nil
}

// Listening reports whether a process in the host listens on a TCP port or has a UDP port.
func (h *Host) Listening() (bool, error) {
	found := false
	err := h.Do(func() error {
		for _, table := range []string{"tcp", "tcp6", "udp", "udp6"} {
			b, err := os.ReadFile("/proc/thread-self/net/" + table)
			if errors.Is(err, os.ErrNotExist) { // no IPv6
				continue
			}
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(b)) {
				// sl local_address rem_address st …: state 0A is LISTEN (net/tcp_states.h)
				f := strings.Fields(line)
				if len(f) > 3 && f[0] != "sl" && (f[3] == "0A" || strings.HasPrefix(table, "udp")) {
					found = true
				}
			}
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("look for listeners: %w", err)
	}
	return found, nil
}

// Daemonize starts this program again with the given arguments, in a new session and without a
// terminal. It returns when that process calls Ready. If the process ends before, it has printed
// the reason on standard error, and Daemonize returns its exit code.
func Daemonize(args ...string) (code int, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, fmt.Errorf("start in the background: %w", err)
	}
	defer r.Close()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = os.Args[0]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Dir = "/"
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{w}
	cmd.Env = append(os.Environ(), readyEnv+"="+strconv.Itoa(readyFD))
	err = cmd.Start()
	w.Close()
	if err != nil {
		return 0, fmt.Errorf("start in the background: %w", err)
	}
	if n, _ := r.Read(make([]byte, 1)); n == 1 {
		return 0, cmd.Process.Release()
	}
	code, err = exitCode(cmd.Wait())
	if err == nil && code == 0 {
		err = errors.New("the background process ended")
	}
	return code, err
}

const (
	readyEnv = "FXFER_LAB_READY"
	readyFD  = 3
)

// Ready tells the process that called Daemonize that startup succeeded, and closes standard
// error. In a process that wasn't started by Daemonize, it does nothing.
func Ready() error {
	if os.Getenv(readyEnv) == "" {
		return nil
	}
	if err := os.Unsetenv(readyEnv); err != nil {
		return fmt.Errorf("report readiness: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("report readiness: %w", err)
	}
	defer null.Close()
	if err := unix.Dup3(int(null.Fd()), 2, 0); err != nil {
		return fmt.Errorf("report readiness: %w", err)
	}
	w := os.NewFile(readyFD, "ready")
	if _, err := w.Write([]byte{0}); err != nil {
		return fmt.Errorf("report readiness: %w", err)
	}
	return w.Close()
}
