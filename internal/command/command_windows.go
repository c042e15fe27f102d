package command

import "os/exec"

func shellArgs(command string) (name string, args []string) {
	return "cmd.exe", []string{"/d", "/c", command}
}

func detach(*exec.Cmd) {}
