package stream

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPlaces: who has a network, or several, leaves places for others.
func TestPlaces(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		address   func(network, n int) string
		networks  int
		most      int // places for all networks together
		elsewhere string
	}{
		{"an IPv6 /48", func(_, n int) string { return fmt.Sprintf("2001:db8:1:%x::1", n%256) }, 1, 257, "2001:db8:2::1"},
		{"an IPv4 /24", func(_, n int) string { return fmt.Sprint("192.0.2.", n%256) }, 1, 257, "198.51.100.1"},
		{"IPv4 in IPv6", func(_, n int) string { return fmt.Sprint("::ffff:192.0.2.", n%256) }, 1, 257, "198.51.100.1"},
		{
			"four networks", func(network, n int) string { return fmt.Sprintf("2001:db8:%x:%x::1", network, n%256) },
			4, 412, "2001:db8:ff::1",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := NewPlaces(512, 128)
			var taken []netip.Prefix
			for n := range 2000 {
				for network := range tt.networks {
					if a := prefixOf(t, tt.address(network, n)); p.Take(a) {
						taken = append(taken, a)
					}
				}
			}
			require.LessOrEqual(t, len(taken), tt.most)
			require.Len(t, taken, p.Taken())
			require.True(t, p.Take(prefixOf(t, tt.elsewhere)), "there is no place for others")
			p.Give(prefixOf(t, tt.elsewhere))
			for _, a := range taken {
				p.Give(a)
			}
			require.Equal(t, NewPlaces(512, 128), p)
		})
	}
}

// TestPlacesInANetwork: few addresses, each of which takes what it can, leave places for their
// neighbours.
func TestPlacesInANetwork(t *testing.T) {
	t.Parallel()
	for addresses := 1; addresses <= 20; addresses++ {
		p := NewPlaces(512, 128)
		for n := range 10_000 {
			p.Take(prefixOf(t, fmt.Sprint("192.0.2.", 1+n%addresses)))
		}
		neighbour := 0
		for p.Take(prefixOf(t, "192.0.2.200")) {
			neighbour++
		}
		require.Positive(t, neighbour, "%d addresses", addresses)
	}
}

// TestPlacesOfAnAddress: an address has its bound, and one place is enough for the first.
func TestPlacesOfAnAddress(t *testing.T) {
	t.Parallel()
	p := NewPlaces(512, 128)
	taken := 0
	for n := range 200 { // a /64 counts as one address
		if p.Take(prefixOf(t, fmt.Sprintf("2001:db8::%x", n))) {
			taken++
		}
	}
	require.Equal(t, 128, taken)
	only := NewPlaces(1, 1)
	require.True(t, only.Take(netip.Prefix{}), "of no IP address")
	require.False(t, only.Take(prefixOf(t, "192.0.2.1")))
}

func prefixOf(t *testing.T, ip string) netip.Prefix {
	addr, err := netip.ParseAddr(ip)
	require.NoError(t, err)
	return PrefixOf(net.TCPAddrFromAddrPort(netip.AddrPortFrom(addr, 1)))
}
