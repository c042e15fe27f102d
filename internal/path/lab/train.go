package lab

import (
	"encoding/binary"
	"math/bits"
)

// The kernel hands over TCP and UDP data as trains: one header followed by the payload of many
// segments, after a virtio_net_hdr that says how to cut it (linux/virtio_net.h; cutting as in
// net/ipv4/tcp_offload.c and udp_offload.c).
const (
	vnetLen = 10 // struct virtio_net_hdr without num_buffers

	vnetNeedsCsum = 1 // flag: the checksum field holds only the pseudo-header's sum

	gsoNone  = 0
	gsoTCPv4 = 1
	gsoTCPv6 = 4
	gsoUDP   = 5
	gsoECN   = 0x80 // with TCP: only the first segment carries CWR

	protoTCP = 6
	protoUDP = 17

	tcpFIN = 0x01
	tcpPSH = 0x08
	tcpCWR = 0x80

	maxHeader = vnetLen + 60 + 60 // the longest header of a train that can be cut
)

// train describes a packet in the TUN device's format: virtio_net_hdr and IP packet.
type train struct {
	head     int  // bytes before the payload: virtio_net_hdr, IP and transport header; the whole packet if segs is 1
	size     int  // payload bytes of each segment but the last
	payload  int  // payload bytes of all segments
	segs     int  // at least 1
	l4       int  // offset of the transport header, if segs > 1
	udp      bool // UDP or TCP, if segs > 1
	wireFull int  // wire bytes of each segment but the last
	wireLast int  // wire bytes of the last segment
}

// parseTrain reads pkt's headers. A packet that it doesn't understand is one segment.
func parseTrain(pkt []byte) train {
	one := train{head: len(pkt), segs: 1, wireLast: max(len(pkt)-vnetLen, minFrame) + frameOverhead}
	kind := pkt[1] &^ gsoECN
	if kind == gsoNone || len(pkt) <= vnetLen {
		return one
	}
	ipLen := 20
	if pkt[vnetLen]>>4 != 4 {
		ipLen = 40
	}
	t := train{
		size: int(binary.NativeEndian.Uint16(pkt[4:])),
		l4:   vnetLen + int(binary.NativeEndian.Uint16(pkt[6:])),
		udp:  kind == gsoUDP,
	}
	if t.size == 0 || t.l4 < vnetLen+ipLen || kind != gsoTCPv4 && kind != gsoTCPv6 && kind != gsoUDP {
		return one
	}
	t.head = t.l4 + 8
	if !t.udp {
		if t.l4+20 > len(pkt) {
			return one
		}
		t.head = t.l4 + max(20, int(pkt[t.l4+12]>>4)*4)
	}
	if t.head >= len(pkt) || t.head > maxHeader {
		return one
	}
	t.payload = len(pkt) - t.head
	t.segs = (t.payload + t.size - 1) / t.size
	last := t.payload - (t.segs-1)*t.size
	t.wireFull = max(t.head-vnetLen+t.size, minFrame) + frameOverhead
	t.wireLast = max(t.head-vnetLen+last, minFrame) + frameOverhead
	if t.segs == 1 {
		return one
	}
	return t
}

// wire returns the bytes that segments a to b-1 take on the line.
func (t *train) wire(a, b int) int64 {
	if b == t.segs {
		return int64(b-1-a)*int64(t.wireFull) + int64(t.wireLast)
	}
	return int64(b-a) * int64(t.wireFull)
}

// ipBytes returns the length of segments a to b-1 as IP packets.
func (t *train) ipBytes(a, b int) int {
	lo, hi := t.span(a, b)
	return (b-a)*(t.head-vnetLen) + hi - lo
}

// span returns where in the payload segments a to b-1 are.
func (t *train) span(a, b int) (lo, hi int) {
	return a * t.size, min(b*t.size, t.payload)
}

// cut writes the header of a train with segments a to b-1 of pkt to dst. It returns the header's
// length and the payload, which stays where it is in pkt. t.segs must be more than 1. dst must
// have room for maxHeader bytes.
func (t *train) cut(dst, pkt []byte, a, b int) (int, []byte) {
	hdr := dst[:copy(dst, pkt[:t.head])]
	lo, hi := t.span(a, b)
	hdr[0] |= vnetNeedsCsum
	if a > 0 {
		hdr[1] &^= gsoECN
	}
	if b-a == 1 {
		hdr[1] = gsoNone
		binary.NativeEndian.PutUint16(hdr[4:], 0)
	}
	// That of a forwarded train covers payload too. The kernel rejects one beyond the packet.
	binary.NativeEndian.PutUint16(hdr[2:], uint16(t.head-vnetLen))

	ip, l4 := hdr[vnetLen:], hdr[t.l4:]
	l4Len := len(l4) + hi - lo
	if ip[0]>>4 == 4 {
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)+hi-lo))
		binary.BigEndian.PutUint16(ip[4:], binary.BigEndian.Uint16(ip[4:])+uint16(a))
		ip[10], ip[11] = 0, 0
		binary.BigEndian.PutUint16(ip[10:], ^fold(sum(0, ip[:t.l4-vnetLen])))
	} else {
		binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-40+hi-lo))
	}

	proto, check := protoTCP, l4[16:18]
	if t.udp {
		proto, check = protoUDP, l4[6:8]
		binary.BigEndian.PutUint16(l4[4:], uint16(l4Len))
		binary.NativeEndian.PutUint16(hdr[8:], 6)
	} else {
		binary.BigEndian.PutUint32(l4[4:], binary.BigEndian.Uint32(l4[4:])+uint32(lo))
		if a > 0 {
			l4[13] &^= tcpCWR
		}
		if b < t.segs {
			l4[13] &^= tcpFIN | tcpPSH
		}
		binary.NativeEndian.PutUint16(hdr[8:], 16)
	}
	binary.BigEndian.PutUint16(check, fold(pseudoSum(ip, proto, l4Len)))
	return len(hdr), pkt[t.head+lo : t.head+hi]
}

// complete replaces the partial checksum of one segment by the full one, so that the receiver
// checks it. hdr begins with the virtio_net_hdr. A segment without a partial checksum stays as it
// is. If there is a payload, the header's length must be even.
func complete(hdr, payload []byte) {
	start := vnetLen + int(binary.NativeEndian.Uint16(hdr[6:]))
	at := start + int(binary.NativeEndian.Uint16(hdr[8:]))
	if hdr[0]&vnetNeedsCsum == 0 || at+2 > len(hdr) {
		return
	}
	hdr[0] &^= vnetNeedsCsum
	hdr[1] = gsoNone
	// The field holds the pseudo-header's sum, so the sum over the segment includes that.
	c := ^fold(sum(sum(0, hdr[start:]), payload))
	if c == 0 && at-start == 6 {
		c = 0xffff // UDP: zero would mean no checksum (RFC 768)
	}
	binary.BigEndian.PutUint16(hdr[at:], c)
}

// pseudoSum returns the unfolded sum of the pseudo-header (RFC 9293 section 3.1, RFC 8200 section 8.1).
func pseudoSum(ip []byte, proto, l4Len int) uint64 {
	addrs := ip[8:40]
	if ip[0]>>4 == 4 {
		addrs = ip[12:20]
	}
	return sum(uint64(proto)+uint64(l4Len), addrs)
}

// sum adds b to s as 16-bit big-endian words in ones' complement. The result still has to be
// folded (RFC 1071). A last odd byte counts as the high half of a word.
func sum(s uint64, b []byte) uint64 {
	var carry uint64
	for len(b) >= 8 {
		s, carry = bits.Add64(s, binary.BigEndian.Uint64(b), 0)
		s += carry
		b = b[8:]
	}
	for len(b) >= 2 {
		s, carry = bits.Add64(s, uint64(binary.BigEndian.Uint16(b)), 0)
		s += carry
		b = b[2:]
	}
	if len(b) == 1 {
		s, carry = bits.Add64(s, uint64(b[0])<<8, 0)
		s += carry
	}
	return s
}

func fold(s uint64) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}
