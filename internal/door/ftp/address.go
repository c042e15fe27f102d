package ftp

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// minActive is the least port to which a server connects for a client: services are below.
const minActive = 1024

var (
	errAddress = errors.New("this is not an address and port")
	errFamily  = errors.New("this is neither IPv4 (1) nor IPv6 (2)")
)

// The address families of EPRT and EPSV, RFC 2428.
const (
	familyIPv4 = "1"
	familyIPv6 = "2"
)

func familyOf(a netip.Addr) string {
	if a.Is4() {
		return familyIPv4
	}
	return familyIPv6
}

// parsePort reads the argument of PORT: h1,h2,h3,h4,p1,p2 (RFC 959).
func parsePort(arg string) (netip.AddrPort, error) {
	var b [6]byte
	parts := strings.Split(arg, ",")
	if len(parts) != len(b) {
		return netip.AddrPort{}, errAddress
	}
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 10, 8)
		if err != nil {
			return netip.AddrPort{}, errAddress
		}
		b[i] = byte(n)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[:4])), uint16(b[4])<<8|uint16(b[5])), nil
}

// parseExtendedPort reads the argument of EPRT: |family|address|port| with any delimiter (RFC 2428).
//
// Errors also match errFamily.
func parseExtendedPort(arg string) (netip.AddrPort, error) {
	if len(arg) == 0 || arg[0] < 33 || arg[0] > 126 {
		return netip.AddrPort{}, errAddress
	}
	parts := strings.Split(arg, arg[:1])
	if len(parts) != 5 || parts[0] != "" || parts[4] != "" {
		return netip.AddrPort{}, errAddress
	}
	if parts[1] != familyIPv4 && parts[1] != familyIPv6 {
		return netip.AddrPort{}, errFamily
	}
	addr, err := netip.ParseAddr(parts[2])
	port, errPort := strconv.ParseUint(parts[3], 10, 16)
	if err != nil || errPort != nil || addr.Zone() != "" || familyOf(addr) != parts[1] {
		return netip.AddrPort{}, errAddress
	}
	return netip.AddrPortFrom(addr, uint16(port)), nil
}

// checkActive returns why a server does not connect to an address, or nil. Only the client's own
// address is right: otherwise the server could be made to attack others.
func checkActive(to netip.AddrPort, client netip.Addr) error {
	switch {
	case to.Addr().Unmap() != client.WithZone(""):
		return fmt.Errorf("this server connects only to the client's own address, which is %s", client)
	case to.Port() < minActive:
		return fmt.Errorf("this server connects only to ports from %d on", minActive)
	}
	return nil
}

// formatPassive is the address in the answer to PASV.
func formatPassive(addr netip.Addr, port uint16) string {
	b := addr.As4()
	return fmt.Sprintf("(%d,%d,%d,%d,%d,%d)", b[0], b[1], b[2], b[3], port>>8, port&0xff)
}
