//go:build !linux

package transport

import "syscall"

// infoOf has no figures here.
func infoOf(syscall.RawConn) (Info, bool) { return Info{}, false }
