package quic

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
)

// udpBuffer is the requested size of a UDP socket's buffers, in bytes. At 10 Gbit/s it lasts for
// the time that a busy host may take until it reads.
const udpBuffer = 8 << 20

var _ quic.OOBCapablePacketConn = (*udpSocket)(nil)

// WriteMsgUDP hands datagrams to the kernel. If there is no route for a moment, it drops them
// without an error, like a router further on would: that is no reason to end a connection.
func (s *udpSocket) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error) {
	if at := s.paths.to(addr); at != nil && s.gathers() {
		at.depart()
		defer at.left()
	}
	control := oob
	if s.lower.marks(addr) {
		control = markLower(oob, addr)
	}
	n, _, err = s.UDPConn.WriteMsgUDP(b, control, addr)
	s.refusal.sending()
	if err != nil && passing(err) {
		s.learn(err)
		return len(b), len(oob), nil
	}
	return n, len(oob), err
}

// paths knows the open connections of a socket, each of which has a path of its own.
type paths struct {
	mu    sync.Mutex // guards links
	links map[*link]*path
	peers sync.Map // netip.AddrPort → *path
}

// path is the way to the peer of a connection, as its socket sees it. It is not found any more once
// the peer has another address.
type path struct {
	link *link
	peer netip.AddrPort
	backlog
	departures
}

func (p *paths) add(l *link) {
	at := &path{link: l}
	if peer, ok := l.conn.RemoteAddr().(*net.UDPAddr); ok {
		at.peer = peerOf(peer)
		p.peers.Store(at.peer, at)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.links == nil {
		p.links = make(map[*link]*path)
	}
	p.links[l] = at
}

func (p *paths) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := p.links[l]; at != nil {
		p.peers.CompareAndDelete(at.peer, at)
	}
	delete(p.links, l)
}

// to returns the path to a peer, or nil.
func (p *paths) to(peer net.Addr) *path {
	a, ok := peer.(*net.UDPAddr)
	if !ok || a == nil {
		return nil
	}
	at, _ := p.peers.Load(peerOf(a))
	found, _ := at.(*path)
	return found
}

// lowerEffort knows the connections of a socket whose packets carry the codepoint LE. A server's
// connections share one socket, so the mark goes with each datagram.
type lowerEffort struct {
	some atomic.Bool // there are any

	mu    sync.Mutex // guards links
	links map[*link]netip.AddrPort
	peers sync.Map // netip.AddrPort → *link, the same the other way round
}

// set marks the packets of a link to a peer, or no longer.
func (m *lowerEffort) set(to *net.UDPAddr, l *link, on bool) {
	m.forget(l)
	if !on {
		return
	}
	peer := peerOf(to)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.links == nil {
		m.links = make(map[*link]netip.AddrPort)
	}
	m.links[l] = peer
	m.peers.Store(peer, l)
	m.some.Store(true)
}

// forget ends the marks of a link.
func (m *lowerEffort) forget(l *link) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if peer, ok := m.links[l]; ok {
		delete(m.links, l)
		m.peers.CompareAndDelete(peer, l)
	}
	m.some.Store(len(m.links) > 0)
}

// marks reports whether datagrams to a peer are to be marked.
func (m *lowerEffort) marks(peer *net.UDPAddr) bool {
	if !m.some.Load() || peer == nil {
		return false
	}
	_, ok := m.peers.Load(peerOf(peer))
	return ok
}

// peerOf writes an IPv4 address in one way.
func peerOf(a *net.UDPAddr) netip.AddrPort {
	p := a.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}

// refusedAfter is how long nothing but refusals may come until they count.
const refusedAfter = time.Second

// refusal collects ICMP messages that nobody listens on the server's port. Such messages are easily
// forged. So they count only if nothing else came for refusedAfter although datagrams went out: a
// server that lives would have answered.
type refusal struct {
	pending atomic.Bool // since is not zero

	mu    sync.Mutex // guards what follows
	since time.Time  // of the first one that nothing else came after
	sent  int        // datagrams since then
	end   func()
}

// refused records a refusal.
func (r *refusal) refused(now time.Time) {
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

// sending records that datagrams go out.
func (r *refusal) sending() {
	if r.pending.Load() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.sent++
	}
}

// received records that datagrams came.
func (r *refusal) received() {
	if r.pending.Load() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.since = time.Time{}
		r.pending.Store(false)
	}
}

// onRefused sets the function to call, once and on a goroutine of its own, when it is certain that
// nobody listens on the server's port.
func (s *udpSocket) onRefused(end func()) {
	s.refusal.mu.Lock()
	s.refusal.end = end
	s.refusal.mu.Unlock()
	s.hearErrors()
}

// quiet keeps quic-go from logging about the sizes of socket buffers, which Windows reports.
var quiet = sync.OnceFunc(func() {
	if _, set := os.LookupEnv(quietly); !set {
		_ = os.Setenv(quietly, "true")
	}
})

const quietly = "QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING"

// openUDP opens a socket.
func openUDP(network string, addr *net.UDPAddr) (*udpSocket, error) {
	quiet()
	udp, err := net.ListenUDP(network, addr)
	if err != nil {
		return nil, err
	}
	return newUDPSocket(udp), nil
}

// bindUDP returns the given socket, or one that is bound to addr.
func bindUDP(addr string, given *net.UDPConn) (*udpSocket, error) {
	if given != nil {
		quiet()
		return newUDPSocket(given), nil
	}
	at, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return nil, err
	}
	return openUDP("udp", at)
}

// small says that the kernel did not grant the receive buffer, and how to change that. It is "" if
// the buffer is large enough or its size is unknown.
func (s *udpSocket) small() string {
	_, rcv := s.sizes()
	if rcv == 0 || rcv >= udpBuffer {
		return ""
	}
	return fmt.Sprintf("the UDP receive buffer has %d KiB instead of %d KiB: sudo sysctl -w net.core.rmem_max=%d",
		rcv>>10, udpBuffer>>10, udpBuffer)
}
