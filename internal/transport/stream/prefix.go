package stream

import (
	"net"
	"net/netip"
)

// PrefixOf returns what the connections of an address are counted by. The owner of an IPv6 address
// usually has its whole /64 (RFC 6177).
func PrefixOf(addr net.Addr) netip.Prefix {
	a, ok := addr.(interface{ AddrPort() netip.AddrPort })
	if !ok {
		return netip.Prefix{}
	}
	ip := a.AddrPort().Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits) // in range
	return p
}
