package hosts

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// credentials returns the attributes of a process group of its own that runs as the ordinary user, without any capability
// or with CAP_NET_ADMIN alone.
func credentials(netAdmin bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true, Credential: &syscall.Credential{Uid: OrdinaryUser, Gid: OrdinaryUser}}
	if netAdmin {
		a.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN}
	}
	return a
}
