package ftp

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// queued reports whether a connection has come to a listener that was not accepted yet.
func queued(l net.Listener) (is bool) {
	s, ok := l.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		is = err == nil && n > 0
	})
	return is
}
