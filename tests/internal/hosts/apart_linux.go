package hosts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const innerEnv = "FXFER_APART"

// Apart runs this program again so that nothing of it outlives it, however it ends: mounts are in a
// namespace of its own if this user may have one, and the processes that are left are killed. It returns the
// exit code of that program, or ran = false inside it. With an error, nothing was run.
func Apart() (code int, ran bool, err error) {
	if os.Getenv(innerEnv) != "" {
		return 0, false, os.Unsetenv(innerEnv)
	}
	// Orphans become children of this process, so that it can find them.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, false, fmt.Errorf("adopt orphans: %w", err)
	}
	// Pdeathsig is sent when the thread that started the process ends, so the thread has to stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	cmd, err := startInner(syscall.CLONE_NEWNS)
	if errors.Is(err, fs.ErrPermission) { // such as in a container
		cmd, err = startInner(0)
	}
	if err != nil {
		return 0, false, fmt.Errorf("run apart: %w", err)
	}
	go func() {
		for s := range signals {
			if s != os.Interrupt { // the terminal sends this signal to both
				_ = cmd.Process.Signal(s) // the process may have ended
			}
		}
	}()
	err = cmd.Wait()
	killChildren()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(1, exit.ExitCode()), true, nil
	}
	return 0, err == nil, err
}

// startInner starts this program again, in namespaces of its own.
func startInner(namespaces uintptr) (*exec.Cmd, error) {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), innerEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: namespaces, Pdeathsig: syscall.SIGTERM}
	return cmd, cmd.Start()
}

// killChildren kills all children of this process, and theirs, which then become its own. It gives
// up what does not die within some seconds.
func killChildren() {
	for range 1000 {
		lists, _ := filepath.Glob("/proc/self/task/*/children")
		for _, name := range lists {
			list, _ := os.ReadFile(name)
			for _, s := range strings.Fields(string(list)) {
				if pid, err := strconv.Atoi(s); err == nil {
					_ = unix.Kill(pid, unix.SIGKILL)
				}
			}
		}
		switch pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); {
		case err != nil && !errors.Is(err, unix.EINTR): // there are no children
			return
		case pid == 0:
			time.Sleep(10 * time.Millisecond)
		}
	}
}
