//go:build !windows

package backup

import (
	"os/exec"
	"syscall"
)

func shellArgs(command string) (name string, args []string) {
	return "/bin/sh", []string{"-c", command}
}

// detach gives the command a process group of its own, which is told to end when its context does.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
}
