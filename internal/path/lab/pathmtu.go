package lab

import (
	"encoding/binary"
	"net/netip"
)

// routers are the source addresses of ICMP messages. They are in the lab's networks, but belong
// to neither host.
var (
	router4 = netip.MustParseAddr("10.77.0.3").As4()
	router6 = netip.MustParseAddr("fd77::3").As16()
)

const (
	protoICMP   = 1
	protoICMPv6 = 58

	ipDF = 0x40 // in byte 6 of an IPv4 header
	ipMF = 0x20

	// A quote of at most this size keeps an ICMP message within what any path carries (RFC 1812
	// section 4.3.2.3, RFC 4443 section 3.2).
	maxQuote4 = minMTU - 20 - 8
	maxQuote6 = minMTU6 - 40 - 8
)

// stop handles segment a of pkt, which is too big for the middle of the path. An IPv4 packet goes
// on in fragments if that is allowed. Other packets vanish. Unless the line is mute, the sender
// learns the MTU after half the delay in each direction.
func (ln *line) stop(pkt []byte, t *train, a int) {
	ln.count.tooBig.Add(1)
	if t.segs > 1 {
		var hdr [maxHeader]byte
		n, payload := t.cut(hdr[:], pkt, a, a+1)
		pkt = append(hdr[:n:n], payload...)
	}
	ip := pkt[vnetLen:]
	switch {
	case ip[0]>>4 == 4 && ip[6]&ipDF == 0:
		ln.fragment(pkt)
	case !ln.mute:
		p := ln.back.add(ln.arrival())
		p.answer, p.hdrLen, p.segs = true, 0, 1
		p.body = tooBigMessage(ip, ln.pmtu)
	}
}

// tooBigMessage returns the ICMP message about an IP packet larger than mtu, as a packet for a
// TUN device.
func tooBigMessage(ip []byte, mtu int) []byte {
	if ip[0]>>4 == 4 {
		quote := ip[:min(len(ip), maxQuote4)]
		msg := make([]byte, vnetLen+20+8, vnetLen+20+8+len(quote))
		out, icmp := msg[vnetLen:], msg[vnetLen+20:]
		out[0], out[8], out[9] = 0x45, 64, protoICMP
		binary.BigEndian.PutUint16(out[2:], uint16(28+len(quote)))
		copy(out[12:], router4[:])
		copy(out[16:], ip[12:16])
		binary.BigEndian.PutUint16(out[10:], ^fold(sum(0, out[:20])))
		icmp[0], icmp[1] = 3, 4 // destination unreachable, fragmentation needed (RFC 1191 section 4)
		binary.BigEndian.PutUint16(icmp[6:], uint16(mtu))
		binary.BigEndian.PutUint16(icmp[2:], ^fold(sum(sum(0, icmp), quote)))
		return append(msg, quote...)
	}
	quote := ip[:min(len(ip), maxQuote6)]
	msg := make([]byte, vnetLen+40+8, vnetLen+40+8+len(quote))
	out, icmp := msg[vnetLen:], msg[vnetLen+40:]
	out[0], out[6], out[7] = 0x60, protoICMPv6, 64
	binary.BigEndian.PutUint16(out[4:], uint16(8+len(quote)))
	copy(out[8:], router6[:])
	copy(out[24:], ip[8:24])
	icmp[0] = 2 // packet too big (RFC 4443 section 3.2)
	binary.BigEndian.PutUint32(icmp[4:], uint32(mtu))
	binary.BigEndian.PutUint16(icmp[2:], ^fold(sum(sum(pseudoSum(out, protoICMPv6, 8+len(quote)), icmp), quote)))
	return append(msg, quote...)
}

// fragment forwards an IPv4 packet, virtio_net_hdr first, in fragments that fit (RFC 791 section
// 3.2). They arrive together. Each has a copy of the options.
func (ln *line) fragment(pkt []byte) {
	complete(pkt, nil)
	head := vnetLen + int(pkt[vnetLen]&15)*4
	size := (ln.pmtu - (head - vnetLen)) &^ 7
	if head < vnetLen+20 || head > len(pkt) || size <= 0 {
		return
	}
	flags := binary.BigEndian.Uint16(pkt[vnetLen+6:])
	for at := head; at < len(pkt); at += size {
		end := min(at+size, len(pkt))
		part := make([]byte, head+end-at)
		copy(part[vnetLen:], pkt[vnetLen:head])
		copy(part[head:], pkt[at:end])
		ip := part[vnetLen:head]
		f := flags + uint16((at-head)/8)
		if end < len(pkt) {
			f |= ipMF << 8
		}
		binary.BigEndian.PutUint16(ip[2:], uint16(head-vnetLen+end-at))
		binary.BigEndian.PutUint16(ip[6:], f)
		ip[10], ip[11] = 0, 0
		binary.BigEndian.PutUint16(ip[10:], ^fold(sum(0, ip)))
		p := ln.onTime.add(ln.arrival())
		p.hdrLen, p.segs, p.ip, p.body = 0, 0, len(ip)+end-at, part
		if at == head {
			p.segs = 1
		}
	}
}
