package main

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// credentials returns the attributes of a process group of its own that runs as the ordinary user, without any capability
// or with CAP_NET_ADMIN alone.
func credentials(netAdmin bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true, Credential: &syscall.Credential{Uid: ordinaryUser, Gid: ordinaryUser}}
	if netAdmin {
		a.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN}
	}
	return a
}

// allocated returns the bytes that a file takes, holes excluded.
func allocated(info fs.FileInfo) int64 { return info.Sys().(*syscall.Stat_t).Blocks * 512 }
