package transport

import (
	"encoding/binary"
	"errors"
	"net"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

const (
	// gathered is what the kernel puts together at most of datagrams of one flow, bytes (UDP_GRO in udp(7)).
	gathered = 64 << 10
	// gatheredAtOnce is how many of these one system call brings.
	gatheredAtOnce = 4
	// controlRoom is for what comes with a datagram: its ECN bits, its target address and the size of its pieces.
	controlRoom = 128
)

// udpSocket is the socket below QUIC connections. The kernel hands it many datagrams of a flow as one, with UDP_GRO: it satisfies
// quic.OOBCapablePacketConn with a ReadBatch that takes them apart again.
type udpSocket struct {
	*net.UDPConn
	from *ipv4.PacketConn // for datagrams of either version

	// What was read and not yet handed out. Only quic-go's reader is here.
	in  []ipv4.Message
	at  int // of in
	off int // of in[at], bytes

	refusal refusal
}

// withoutGRO is for benchmarks of its worth.
var withoutGRO bool

func newUDPSocket(udp *net.UDPConn) *udpSocket {
	s := &udpSocket{UDPConn: udp}
	raw, err := udp.SyscallConn()
	if err != nil {
		return s
	}
	growSocket(raw, decision{snd: udpBuffer, rcv: udpBuffer, force: true})
	one := gatheredAtOnce * 2 // without UDP_GRO
	size := 2 << 10
	if !withoutGRO && onSocket(raw, func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1) }) == nil {
		one, size = gatheredAtOnce, gathered
	}
	s.from = ipv4.NewPacketConn(udp)
	s.in = make([]ipv4.Message, one)
	for i := range s.in {
		s.in[i] = ipv4.Message{Buffers: [][]byte{make([]byte, size)}, OOB: make([]byte, controlRoom)}
	}
	s.in = s.in[:0]
	return s
}

// ReadBatch fills ms with datagrams, and waits for one if there is none.
func (s *udpSocket) ReadBatch(ms []ipv4.Message, flags int) (int, error) {
	for s.at == len(s.in) {
		s.in, s.at, s.off = s.in[:cap(s.in)], 0, 0
		n, err := s.from.ReadBatch(s.in, flags)
		s.in = s.in[:max(0, n)]
		switch {
		case err == nil:
			s.refusal.heard()
		case passing(err) || errors.Is(err, unix.EMSGSIZE): // it is about a datagram that was sent
			s.learn(err)
		default:
			return 0, err
		}
	}
	n := 0
	for n < len(ms) && s.at < len(s.in) {
		in := &s.in[s.at]
		end := min(in.N, s.off+pieceOf(in.OOB[:in.NN], in.N))
		if piece := in.Buffers[0][s.off:end]; len(piece) > 0 {
			m := &ms[n]
			m.Addr, m.Flags = in.Addr, in.Flags
			m.N, m.NN = copy(m.Buffers[0], piece), copy(m.OOB, in.OOB[:in.NN])
			n++
		}
		if s.off = end; end == in.N {
			s.at, s.off = s.at+1, 0
		}
	}
	return n, nil
}

// pieceOf returns the size of the datagrams that the kernel has put together, or whole.
func pieceOf(control []byte, whole int) int {
	for len(control) > 0 {
		h, body, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			break
		}
		if h.Level == unix.IPPROTO_UDP && h.Type == unix.UDP_GRO && len(body) >= 4 {
			if n := int(binary.NativeEndian.Uint32(body)); n > 0 {
				return n
			}
		}
		control = rest
	}
	return max(1, whole)
}

// hearErrors asks the kernel for the ICMP errors that datagrams bring about, which reads and writes then return (IP_RECVERR in ip(7)).
func (s *udpSocket) hearErrors() {
	if raw, err := s.SyscallConn(); err == nil {
		_ = onSocket(raw, func(fd int) error {
			return errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1), unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1))
		})
	}
}

// learn takes an error of a read or write, and empties the queue in which the kernel keeps the details.
func (s *udpSocket) learn(err error) {
	if raw, err := s.SyscallConn(); err == nil {
		_ = onSocket(raw, func(fd int) error {
			for {
				if _, _, _, _, err := unix.Recvmsg(fd, nil, nil, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT); err != nil {
					return nil
				}
			}
		})
	}
	if errors.Is(err, unix.ECONNREFUSED) {
		s.refusal.told(time.Now())
	}
}

// passing tells whether a datagram that could not be sent may be counted as lost on the way: the address, the route or the room may be
// back for the next one.
func passing(err error) bool {
	for _, e := range []error{
		unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ENETDOWN, unix.EHOSTDOWN, unix.EADDRNOTAVAIL, unix.ENOBUFS, unix.EPERM, unix.EACCES, unix.ECONNREFUSED,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// sizes reads both buffers back, in bytes as the kernel counts.
func (s *udpSocket) sizes() (snd, rcv int) {
	if raw, err := s.SyscallConn(); err == nil {
		_ = onSocket(raw, func(fd int) error {
			snd, _ = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
			rcv, _ = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
			return nil
		})
	}
	return snd, rcv
}
