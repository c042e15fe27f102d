package tcp

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// lateReader reads from a socket whose bytes may wait, because the reader writes them to another one.
// Linux acknowledges late what does not let the window move on. The sender would take that for a queue
// on the path. But it acknowledges at once as long as there are fewer bytes than the reader asks for by
// SO_RCVLOWAT (__tcp_ack_snd_check in net/ipv4/tcp_input.c). So that is much, except while a read waits.
type lateReader struct {
	raw  syscall.RawConn
	much bool // is asked for now
}

// read is Read of tcp. most is what the receive buffer holds in bytes, 0 is not known.
func (l *lateReader) read(tcp *net.TCPConn, p []byte, most int) (n int, err error) {
	if l.raw == nil {
		if l.raw, err = tcp.SyscallConn(); err != nil {
			return 0, err
		}
	}
	waited := l.raw.Read(func(fd uintptr) bool {
		n, err = retry(int(fd), p)
		if errors.Is(err, unix.EAGAIN) && l.much {
			l.ask(int(fd), 1)
			n, err = retry(int(fd), p)
		}
		if err == nil && n == len(p) && most > 0 && !l.much {
			l.ask(int(fd), most)
		}
		return !errors.Is(err, unix.EAGAIN)
	})
	switch {
	case waited != nil:
		return 0, waited
	case err != nil:
		return 0, &net.OpError{Op: "read", Net: "tcp", Source: tcp.LocalAddr(), Addr: tcp.RemoteAddr(), Err: os.NewSyscallError("read", err)}
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}

func (l *lateReader) ask(fd, bytes int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, bytes) == nil {
		l.much = bytes > 1
	}
}

// retry is read(2), again if a signal has ended it.
func retry(fd int, p []byte) (n int, err error) {
	for {
		if n, err = unix.Read(fd, p); !errors.Is(err, unix.EINTR) {
			return max(n, 0), err
		}
	}
}
