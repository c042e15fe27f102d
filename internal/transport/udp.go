package transport

import (
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/quic-go/quic-go"
)

// udpBuffer is what a UDP socket's buffers are asked for, in bytes: on 10 Gbit/s that is the time that a busy host may take until it reads.
const udpBuffer = 8 << 20

var _ quic.OOBCapablePacketConn = (*udpSocket)(nil)

// WriteMsgUDP hands datagrams to the kernel. Where the way is gone for a moment they are lost, as they would be further on, and no reason to
// end a connection.
func (s *udpSocket) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error) {
	n, oobn, err = s.UDPConn.WriteMsgUDP(b, oob, addr)
	if err != nil && passing(err) {
		return len(b), len(oob), nil
	}
	return n, oobn, err
}

// quiet keeps quic-go from logging about the size of socket buffers, of which Windows tells.
var quiet = sync.OnceFunc(func() {
	if _, set := os.LookupEnv(quietly); !set {
		_ = os.Setenv(quietly, "true")
	}
})

const quietly = "QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING"

// listenUDP opens a socket.
func listenUDP(network string, addr *net.UDPAddr) (*udpSocket, error) {
	quiet()
	udp, err := net.ListenUDP(network, addr)
	if err != nil {
		return nil, err
	}
	return newUDPSocket(udp), nil
}

func bindUDP(addr string, cfg Config) (*udpSocket, error) {
	if cfg.Datagrams != nil {
		quiet()
		return newUDPSocket(cfg.Datagrams), nil
	}
	at, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return nil, err
	}
	return listenUDP("udp", at)
}

// small tells that the kernel did not grant the receive buffer, and the remedy; "" if it did or nothing is known.
func (s *udpSocket) small() string {
	_, rcv := s.sizes()
	if rcv == 0 || rcv >= udpBuffer {
		return ""
	}
	return fmt.Sprintf("the UDP receive buffer has %d KiB instead of %d KiB: sudo sysctl -w net.core.rmem_max=%d", rcv>>10, udpBuffer>>10, udpBuffer)
}
