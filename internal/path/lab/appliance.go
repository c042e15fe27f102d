package lab

import "encoding/binary"

// The effects of middleboxes on TCP and UDP.

// protocolOf returns the protocol of pkt above IP. It does not look behind extension headers of
// IPv6.
func protocolOf(pkt []byte) int {
	ip := pkt[vnetLen:]
	switch {
	case len(ip) >= 20 && ip[0]>>4 == 4:
		return int(ip[9])
	case len(ip) >= 40 && ip[0]>>4 == 6:
		return int(ip[6])
	}
	return 0
}

const (
	flagSYN       = 2
	optionEnd     = 0
	optionNop     = 1
	optionScaling = 3
)

// unscale removes the window scale option (RFC 7323, section 2.2) from pkt if it is a SYN: it
// overwrites three bytes with no-operation options.
func unscale(pkt []byte) {
	l4 := tcpHeader(pkt)
	if l4 == 0 || pkt[l4+13]&flagSYN == 0 {
		return
	}
	end := min(len(pkt), l4+int(pkt[l4+12]>>4)*4)
	for at := l4 + 20; at < end; {
		switch kind := pkt[at]; {
		case kind == optionEnd:
			return
		case kind == optionNop:
			at++
		case at+1 >= end || pkt[at+1] < 2:
			return
		case kind == optionScaling && pkt[at+1] == 3 && at+3 <= end:
			for range 3 {
				change(pkt, l4, at, optionNop)
				at++
			}
		default:
			at += int(pkt[at+1])
		}
	}
}

// change sets a byte of the TCP header at l4 and updates the checksum, unless the device has yet
// to compute that.
func change(pkt []byte, l4, at int, to byte) {
	was := pkt[at]
	pkt[at] = to
	if pkt[0]&vnetNeedsCsum != 0 {
		return
	}
	shift := 8 * (1 - (at-l4)%2)
	sum := uint32(^binary.BigEndian.Uint16(pkt[l4+16:])) + uint32(^(uint16(was) << shift)) + uint32(to)<<shift // RFC 1624, equation 3
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(pkt[l4+16:], ^uint16(sum))
}
