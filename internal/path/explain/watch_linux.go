package explain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Watch looks at the sockets of a target every 100 ms: for this long, until ctx is done, or until the
// process ends. It starts a command, and returns when that has ended. Once ctx is done, the command
// is asked to end. A length of 0 is without bounds.
func Watch(ctx context.Context, target Target, length time.Duration) (*Report, error) {
	type result struct {
		report *Report
		err    error
	}
	done := make(chan result, 1)
	go func() { // a thread of its own may enter another network namespace
		runtime.LockOSThread()
		entered, err := enter(target.PID)
		if !entered {
			defer runtime.UnlockOSThread()
		}
		if err != nil {
			done <- result{nil, err}
			return
		}
		r, err := observe(ctx, target, length)
		done <- result{r, err}
	}()
	r := <-done
	return r.report, r.err
}

// enter moves this thread into the network namespace of a process, if it is another one. The thread
// must not be used for anything else then.
func enter(pid int) (entered bool, err error) {
	if pid == 0 {
		return false, nil
	}
	if err := unix.Kill(pid, 0); errors.Is(err, unix.ESRCH) {
		return false, ErrNoProcess
	}
	path := fmt.Sprintf("/proc/%d/ns/net", pid)
	its, err := os.Readlink(path)
	own, ownErr := os.Readlink("/proc/thread-self/ns/net")
	if err != nil || ownErr != nil || its == own { // processes does what is needed against errors
		return false, nil //nolint:nilerror // the next step reports why
	}
	f, err := os.Open(path)
	if err != nil {
		return false, fmt.Errorf("%w: it is in another network namespace", ErrForbidden)
	}
	defer f.Close()
	if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
		return false, fmt.Errorf("%w: it is in another network namespace", ErrForbidden)
	}
	return true, nil
}

func observe(ctx context.Context, target Target, length time.Duration) (*Report, error) {
	if _, err := dump(); err != nil {
		return nil, err
	}
	var p *processes
	w, what := newWatch(nil), fmt.Sprintf("port %d", target.Port)
	ended := make(chan struct{})
	switch cmd := target.Command; {
	case cmd != nil:
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		go func() {
			_ = cmd.Wait() // its state says how it ended
			close(ended)
		}()
		p, what = &processes{root: cmd.Process.Pid}, filepath.Base(cmd.Path)
		w.looks = 1 // all its connections are new
	case target.PID != 0:
		p = &processes{root: target.PID}
		if err := p.scan(); err != nil {
			return nil, err
		}
		what = programName(target.PID)
	}
	if w.ours = p.owns; p == nil {
		w.ours = func(r *reading) (string, bool) {
			return "", int(r.local.Port()) == target.Port || int(r.remote.Port()) == target.Port
		}
	}
	began := time.Now()
	err := w.run(ctx, began, length, ended, p)
	took := time.Since(began)
	report := w.report(what, took, thisHost())
	if len(report.Connections) == 0 {
		report.Notes = append(report.Notes, "it looks ten times a second, and does not see a connection that is shorter")
	}
	if cmd := target.Command; cmd != nil {
		if ctx.Err() != nil {
			_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		}
		<-ended
	}
	return report, err
}

// run looks until it is time to stop.
func (w *watch) run(ctx context.Context, began time.Time, length time.Duration, ended <-chan struct{}, p *processes) error {
	tick := time.NewTicker(step)
	defer tick.Stop()
	for {
		sockets, err := dump()
		if err != nil {
			return err
		}
		at := time.Since(began)
		if p != nil {
			p.update(at, sockets)
		}
		w.look(at, sockets)
		if length > 0 && at >= length || p != nil && p.gone() {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
			return nil
		case <-tick.C:
		}
	}
}
