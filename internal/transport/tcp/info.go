package tcp

import (
	"net"

	"github.com/fxfer/fxfer/internal/transport/stream"
)

// Info returns the kernel's figures, and false where there are none.
func (c *Conn) Info() (stream.Info, bool) { return InfoOf(c.tcp) }

// InfoOf returns the kernel's figures for any TCP socket, and false where there are none.
func InfoOf(tcp *net.TCPConn) (stream.Info, bool) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return stream.Info{}, false
	}
	info, ok := infoOf(raw)
	info.Protocol = stream.TCP
	return info, ok
}
