// Package socket sets and reads options that the sockets of TCP and of UDP share. It exists on
// Linux only: other systems are served by package net.
package socket

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Control calls f with the file descriptor of raw and returns the error of f.
func Control(raw syscall.RawConn, f func(fd int) error) error {
	var err error
	if ctl := raw.Control(func(fd uintptr) { err = f(int(fd)) }); ctl != nil {
		return ctl
	}
	return err
}

// SetBuffers asks for buffers of so many bytes, as SO_SNDBUF and SO_RCVBUF count them. 0 leaves a
// buffer to the kernel. With force it first asks for more than an ordinary user may have. A refusal
// is no error: Buffers returns what was obtained.
func SetBuffers(raw syscall.RawConn, snd, rcv int, force bool) {
	_ = Control(raw, func(fd int) error {
		set := func(forced, plain, size int) {
			if size == 0 || force && unix.SetsockoptInt(fd, unix.SOL_SOCKET, forced, size) == nil {
				return
			}
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, plain, size)
		}
		set(unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, snd)
		set(unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, rcv)
		return nil
	})
}

// Buffers returns the sizes of both buffers, in bytes as the kernel counts. 0 is unknown.
func Buffers(c syscall.Conn) (snd, rcv int) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = Control(raw, func(fd int) error {
			snd, _ = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
			rcv, _ = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
			return nil
		})
	}
	return snd, rcv
}
