//go:build !linux

package transport

import (
	"errors"
	"net"
	"syscall"
)

// udpSocket is the socket below QUIC connections.
type udpSocket struct{ *net.UDPConn }

func newUDPSocket(udp *net.UDPConn) *udpSocket {
	_ = udp.SetReadBuffer(udpBuffer)
	_ = udp.SetWriteBuffer(udpBuffer)
	return &udpSocket{udp}
}

// passing tells whether a datagram that could not be sent may be counted as lost on the way.
func passing(err error) bool {
	return errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.EADDRNOTAVAIL) ||
		errors.Is(err, syscall.ENOBUFS)
}

// sizes knows nothing here.
func (s *udpSocket) sizes() (snd, rcv int) { return 0, 0 }
