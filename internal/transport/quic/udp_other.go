//go:build !linux

package quic

import (
	"errors"
	"net"
	"syscall"
)

// udpSocket is the socket below QUIC connections.
type udpSocket struct {
	*net.UDPConn
	paths   paths
	refusal refusal
	lower   lowerEffort
}

// marksPackets says that markLower works. Here quic-go sets the whole traffic class of each
// datagram, and there is no way to add to it.
const marksPackets = false

func markLower(control []byte, _ *net.UDPAddr) []byte { return control }

func newUDPSocket(udp *net.UDPConn) *udpSocket {
	_ = udp.SetReadBuffer(udpBuffer)
	_ = udp.SetWriteBuffer(udpBuffer)
	return &udpSocket{UDPConn: udp}
}

// gathers reports whether the reader waits for more. Here it never does.
func (s *udpSocket) gathers() bool { return false }

// passing reports whether a datagram that could not be sent may count as lost on the way.
func passing(err error) bool {
	return errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.EADDRNOTAVAIL) ||
		errors.Is(err, syscall.ENOBUFS)
}

// hearErrors does nothing: a server that is gone shows by its silence.
func (s *udpSocket) hearErrors() {}

func (s *udpSocket) learn(error) {}

// sizes are unknown here.
func (s *udpSocket) sizes() (snd, rcv int) { return 0, 0 }
