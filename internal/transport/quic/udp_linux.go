package quic

import (
	"encoding/binary"
	"errors"
	"net"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/fxfer/fxfer/internal/transport/socket"
	"github.com/fxfer/fxfer/internal/transport/stream"
)

const (
	// gathered is the most that the kernel combines from datagrams of one flow, bytes (UDP_GRO in
	// udp(7)).
	gathered = 64 << 10
	// gatheredAtOnce is how many of these one system call returns.
	gatheredAtOnce = 4
	// controlRoom holds the control messages of a datagram: ECN bits, target address, size of the
	// pieces.
	controlRoom = 128
)

// udpSocket is the socket below QUIC connections. With UDP_GRO the kernel combines many datagrams
// of a flow into one. ReadBatch, a method of quic.OOBCapablePacketConn, takes them apart again.
type udpSocket struct {
	*net.UDPConn
	from *ipv4.PacketConn // for datagrams of either version

	// What was read and not yet returned. Only quic-go's reader uses it.
	in      []ipv4.Message
	at      int    // of in
	off     int    // of in[at], bytes
	piece   int    // size of the datagrams of in[at]
	control []byte // of in[at], without what only this socket needs

	patience  patience    // the same
	gathering gathering   // the same
	room      bool        // for what comes while the reader waits
	waits     atomic.Bool // the reader waits before it reads

	paths   paths
	refusal refusal
	lower   lowerEffort
}

// withoutGRO turns UDP_GRO off, for a benchmark.
var withoutGRO bool

func newUDPSocket(udp *net.UDPConn) *udpSocket {
	s := &udpSocket{UDPConn: udp}
	raw, err := udp.SyscallConn()
	if err != nil {
		return s
	}
	socket.SetBuffers(raw, udpBuffer, udpBuffer, true)
	one := gatheredAtOnce * 2 // without UDP_GRO
	size := 2 << 10
	gro := func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1) }
	if !withoutGRO && socket.Control(raw, gro) == nil {
		one, size = gatheredAtOnce, gathered
	}
	s.from = ipv4.NewPacketConn(udp)
	s.in = make([]ipv4.Message, one)
	for i := range s.in {
		s.in[i] = ipv4.Message{Buffers: [][]byte{make([]byte, size)}, OOB: make([]byte, controlRoom)}
	}
	s.in = s.in[:0]
	_, rcv := s.sizes()
	s.room = rcv >= gatherRoom
	return s
}

// await waits for more datagrams where that pays.
func (s *udpSocket) await() {
	if len(s.in) == cap(s.in) { // more are there, but the queues of connections are short
		runtime.Gosched()
		return
	}
	d := s.gathering.wait(time.Now(), started, s.paths.far)
	s.waits.Store(d > 0 && s.room)
	if s.gathers() {
		time.Sleep(d)
	}
}

// gathers reports whether there is a fast flow on paths that are long enough.
func (s *udpSocket) gathers() bool { return s.waits.Load() }

// ReadBatch fills ms with datagrams of one flow. It waits until there is one.
func (s *udpSocket) ReadBatch(ms []ipv4.Message, flags int) (int, error) {
	for s.at == len(s.in) || s.in[s.at].N == 0 {
		if s.at++; s.at < len(s.in) { // an empty datagram is skipped
			continue
		}
		if err := s.read(flags); err != nil {
			return 0, err
		}
	}
	in := &s.in[s.at]
	if s.off == 0 {
		s.begin(in)
	}
	n := 0
	for n < len(ms) && s.off < in.N {
		end := min(in.N, s.off+s.piece)
		m := &ms[n]
		m.Addr, m.Flags = in.Addr, in.Flags
		m.N, m.NN = copy(m.Buffers[0], in.Buffers[0][s.off:end]), copy(m.OOB, s.control)
		n, s.off = n+1, end
	}
	if s.off == in.N {
		s.at, s.off = s.at+1, 0
	}
	return n, nil
}

// read asks the kernel for datagrams.
func (s *udpSocket) read(flags int) error {
	s.await()
	s.in, s.at, s.off = s.in[:cap(s.in)], 0, 0
	n, err := s.from.ReadBatch(s.in, flags)
	s.in = s.in[:max(0, n)]
	switch {
	case err == nil:
		s.refusal.received()
		s.gathering.read(time.Now())
	case passing(err) || errors.Is(err, unix.EMSGSIZE): // it belongs to a datagram that was sent
		s.learn(err)
	default:
		return err
	}
	return nil
}

// begin prepares to take datagrams that the kernel has combined apart. It waits until their
// connection has room for them.
func (s *udpSocket) begin(in *ipv4.Message) {
	s.piece, s.control = pieceOf(in.OOB[:in.NN], in.N)
	if at := s.paths.to(in.Addr); at != nil {
		s.patience.begin()
		at.hand(in.N, at.link.handled, s.patience.wait)
	}
}

// pieceOf returns the size of the datagrams that the kernel has combined, or whole. The rest of the
// control messages is what quic-go wants to see of each datagram: the size comes first (udp_recvmsg
// in net/ipv4/udp.c).
func pieceOf(control []byte, whole int) (size int, rest []byte) {
	if len(control) == 0 {
		return whole, nil
	}
	h, body, rest, err := unix.ParseOneSocketControlMessage(control)
	if err != nil || h.Level != unix.IPPROTO_UDP || h.Type != unix.UDP_GRO || len(body) < 4 {
		return whole, control
	}
	return max(1, int(binary.NativeEndian.Uint32(body))), rest
}

// marksPackets says that markLower works.
const marksPackets = true

// markLower returns the control messages of a datagram with the codepoint LE. quic-go sets the whole
// traffic class for its ECN bits, which stay.
func markLower(control []byte, to *net.UDPAddr) []byte {
	marked := make([]byte, len(control), len(control)+unix.CmsgSpace(4))
	copy(marked, control)
	for rest := marked; len(rest) > 0; {
		h, body, after, err := unix.ParseOneSocketControlMessage(rest)
		if err != nil {
			break
		}
		v4 := h.Level == unix.IPPROTO_IP && h.Type == unix.IP_TOS
		v6 := h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_TCLASS
		if v4 && len(body) == 1 {
			body[0] |= stream.LowerEffort
			return marked
		}
		if (v4 || v6) && len(body) >= 4 {
			binary.NativeEndian.PutUint32(body, binary.NativeEndian.Uint32(body)|stream.LowerEffort)
			return marked
		}
		rest = after
	}
	level, kind := unix.IPPROTO_IPV6, unix.IPV6_TCLASS
	if to.IP.To4() != nil {
		level, kind = unix.IPPROTO_IP, unix.IP_TOS
	}
	class := binary.NativeEndian.AppendUint32(nil, stream.LowerEffort)
	return append(marked, controlMessage(level, kind, class)...)
}

// controlMessage makes one control message (cmsg(3)).
func controlMessage(level, kind int, body []byte) []byte {
	b := make([]byte, unix.CmsgSpace(len(body)))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = int32(level), int32(kind)
	h.SetLen(unix.CmsgLen(len(body)))
	copy(b[unix.CmsgSpace(0):], body)
	return b
}

// hearErrors makes reads and writes return the ICMP errors that datagrams cause (IP_RECVERR in
// ip(7)).
func (s *udpSocket) hearErrors() {
	if raw, err := s.SyscallConn(); err == nil {
		_ = socket.Control(raw, func(fd int) error {
			return errors.Join(
				unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1),
				unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1),
			)
		})
	}
}

// learn handles such an error, and empties the queue in which the kernel keeps the details.
func (s *udpSocket) learn(err error) {
	if raw, err := s.SyscallConn(); err == nil {
		_ = socket.Control(raw, func(fd int) error {
			for {
				if _, _, _, _, err := unix.Recvmsg(fd, nil, nil, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT); err != nil {
					return nil
				}
			}
		})
	}
	if errors.Is(err, unix.ECONNREFUSED) {
		s.refusal.refused(time.Now())
	}
}

// passing reports whether a datagram that could not be sent may count as lost on the way: the
// address, the route or the room may be back for the next one.
func passing(err error) bool {
	for _, e := range []error{
		unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ENETDOWN, unix.EHOSTDOWN, unix.EADDRNOTAVAIL,
		unix.ENOBUFS, unix.EPERM, unix.EACCES, unix.ECONNREFUSED,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// sizes returns the sizes of both buffers, in bytes as the kernel counts.
func (s *udpSocket) sizes() (snd, rcv int) { return socket.Buffers(s.UDPConn) }
