package explain

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/gopacket/gopacket/layers"
)

// segment is what the headers of a TCP segment say. Captures cut payload off, so the length is that
// of the IP header.
type segment struct {
	at                      time.Duration // since the first packet
	from, to                netip.AddrPort
	seq, ack                uint32
	length                  int64 // of the payload
	window                  int64 // as the header has it, not scaled
	syn, isAck, fin, rst    bool
	mss                     int64
	scale                   int // -1 without the option
	sackOK, sacks, stamped  bool
	stampValue, stampAnswer uint32
}

// decodeFrame reads a captured frame. It reports false for what is no TCP segment.
func decodeFrame(link layers.LinkType, b []byte, full int) (s segment, ok bool) {
	switch link {
	case layers.LinkTypeEthernet:
		return decodeEthernet(b, full)
	case layers.LinkTypeLinuxSLL:
		return decodeAfter(b, full, 16)
	case layers.LinkTypeLinuxSLL2:
		return decodeAfter(b, full, 20)
	case layers.LinkTypeNull, layers.LinkTypeLoop:
		return decodeAfter(b, full, 4)
	case layers.LinkTypeRaw, layers.LinkTypeIPv4, layers.LinkTypeIPv6, 12, 14: // DLT_RAW of some systems
		return decodeIP(b, full)
	}
	return s, false
}

func decodeAfter(b []byte, full, header int) (s segment, ok bool) {
	if len(b) < header {
		return s, false
	}
	return decodeIP(b[header:], full-header)
}

func decodeEthernet(b []byte, full int) (s segment, ok bool) {
	at := 12
	for range 3 { // up to two VLAN tags
		if len(b) < at+2 {
			return s, false
		}
		switch binary.BigEndian.Uint16(b[at:]) {
		case 0x8100, 0x88a8:
			at += 4
			continue
		case 0x0800, 0x86dd:
			return decodeAfter(b, full, at+2)
		}
		return s, false
	}
	return s, false
}

func decodeIP(b []byte, full int) (s segment, ok bool) {
	if len(b) < 20 {
		return s, false
	}
	switch b[0] >> 4 {
	case 4:
		header, total := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
		if total == 0 { // the interface card cuts it later
			total = full
		}
		fragment := binary.BigEndian.Uint16(b[6:])&0x1fff != 0
		if b[9] != 6 || fragment || header < 20 || len(b) < header {
			return s, false
		}
		from, to := netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		return decodeTCP(b[header:], total-header, from, to)
	case 6:
		if len(b) < 40 || b[6] != 6 {
			return s, false
		}
		total := int(binary.BigEndian.Uint16(b[4:]))
		if total == 0 {
			total = full - 40
		}
		return decodeTCP(b[40:], total, netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40])))
	}
	return s, false
}

// decodeTCP reads a header of which the options may be cut off. total is its length with payload.
func decodeTCP(b []byte, total int, from, to netip.Addr) (s segment, ok bool) {
	if len(b) < 20 {
		return s, false
	}
	header := int(b[12]>>4) * 4
	if header < 20 || total < header {
		return s, false
	}
	s = segment{
		from: netip.AddrPortFrom(from, binary.BigEndian.Uint16(b)), to: netip.AddrPortFrom(to, binary.BigEndian.Uint16(b[2:])),
		seq: binary.BigEndian.Uint32(b[4:]), ack: binary.BigEndian.Uint32(b[8:]),
		fin: b[13]&1 != 0, syn: b[13]&2 != 0, rst: b[13]&4 != 0, isAck: b[13]&16 != 0,
		window: int64(binary.BigEndian.Uint16(b[14:])), length: int64(total - header), scale: -1,
	}
	s.options(b[20:min(header, len(b))])
	return s, true
}

// options reads the options of RFC 9293 and 7323 that matter.
func (s *segment) options(b []byte) {
	for len(b) > 0 {
		kind := b[0]
		if kind == 0 {
			return
		}
		if kind == 1 {
			b = b[1:]
			continue
		}
		if len(b) < 2 || int(b[1]) < 2 || int(b[1]) > len(b) {
			return
		}
		value := b[2:b[1]]
		switch {
		case kind == 2 && len(value) == 2:
			s.mss = int64(binary.BigEndian.Uint16(value))
		case kind == 3 && len(value) == 1:
			s.scale = int(min(value[0], 14))
		case kind == 4:
			s.sackOK = true
		case kind == 5:
			s.sacks = true
		case kind == 8 && len(value) == 8:
			s.stamped, s.stampValue, s.stampAnswer = true, binary.BigEndian.Uint32(value), binary.BigEndian.Uint32(value[4:])
		}
		b = b[b[1]:]
	}
}
