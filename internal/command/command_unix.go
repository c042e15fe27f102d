//go:build !windows

package command

import (
	"os/exec"
	"syscall"
)

func shellArgs(command string) (name string, args []string) {
	return "/bin/sh", []string{"-c", command}
}

// detach puts the command into a process group of its own. The whole group is asked to end when the
// context ends.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
}
