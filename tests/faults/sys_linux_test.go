package faults

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

const innerEnv = "FXFER_FAULTS_INNER"

// apart runs these tests again in a mount namespace of their own, if this user may have one, so
// that no mount outlives them. It returns the exit code of that process, or ran = false inside it.
func apart() (code int, ran bool) {
	if os.Geteuid() != 0 {
		return 0, false
	}
	if os.Getenv(innerEnv) != "" {
		// The mounts of a lab follow ours. A disk that is mounted anew needs that.
		_ = unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
		return 0, false
	}
	// Pdeathsig is sent when the thread that started the process ends, so the thread has to stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), innerEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if cmd.Start() != nil {
		return 0, false
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(1, exit.ExitCode()), true
	}
	if err != nil {
		return 1, true
	}
	return 0, true
}
