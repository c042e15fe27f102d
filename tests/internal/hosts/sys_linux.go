package hosts

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// credentials returns the attributes of a process in a process group of its own. It runs as the
// ordinary user, without any capability or only with CAP_NET_ADMIN.
func credentials(netAdmin bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true, Credential: &syscall.Credential{Uid: OrdinaryUser, Gid: OrdinaryUser}}
	if netAdmin {
		a.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN}
	}
	return a
}
