package transport

import (
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
)

// udpBuffer is what a UDP socket's buffers are asked for, in bytes: on 10 Gbit/s that is the time that a busy host may take until it reads.
const udpBuffer = 8 << 20

var _ quic.OOBCapablePacketConn = (*udpSocket)(nil)

// WriteMsgUDP hands datagrams to the kernel. Where the way is gone for a moment they are lost, as they would be further on, and no reason to
// end a connection.
func (s *udpSocket) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error) {
	n, oobn, err = s.UDPConn.WriteMsgUDP(b, oob, addr)
	s.refusal.wrote()
	if err != nil && passing(err) {
		s.learn(err)
		return len(b), len(oob), nil
	}
	return n, oobn, err
}

// refusedAfter is how long nothing but refusals may come until they are believed.
const refusedAfter = time.Second

// refusal is what ICMP says about the port of a server: that nobody listens there. Such messages are easily forged. They count where nothing else
// has come for refusedAfter, though datagrams went out meanwhile: a server that lives would have answered.
type refusal struct {
	pending atomic.Bool // since is not zero

	mu    sync.Mutex
	since time.Time // of the first that nothing came after
	sent  int       // datagrams since then
	end   func()
}

// told takes a refusal.
func (r *refusal) told(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.since.IsZero():
		r.since, r.sent = now, 0
		r.pending.Store(true)
	case now.Sub(r.since) >= refusedAfter && r.sent >= 2 && r.end != nil:
		go r.end()
		r.end = nil
	}
}

// wrote takes note of datagrams that went out.
func (r *refusal) wrote() {
	if r.pending.Load() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.sent++
	}
}

// heard takes note of datagrams that came.
func (r *refusal) heard() {
	if r.pending.Load() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.since = time.Time{}
		r.pending.Store(false)
	}
}

// onRefused lets end be called once, on a goroutine of its own, when it is certain that nobody listens on the server's port.
func (s *udpSocket) onRefused(end func()) {
	s.refusal.mu.Lock()
	s.refusal.end = end
	s.refusal.mu.Unlock()
	s.hearErrors()
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
