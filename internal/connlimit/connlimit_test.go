package connlimit

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// limitOf returns a Limit of b, in which 0 stands for a server's default.
func limitOf(b Bounds) *Limit {
	return New(Bounds{
		Connections: cmp.Or(b.Connections, 2048), PerAddress: cmp.Or(b.PerAddress, min(512, cmp.Or(b.Connections, 2048))),
		Handshakes: cmp.Or(b.Handshakes, 400), HandshakesPerAddress: cmp.Or(b.HandshakesPerAddress, 200),
	})
}

func TestConnLimit(t *testing.T) {
	t.Parallel()
	l := limitOf(Bounds{})
	from := func(n int) net.Addr { return &net.TCPAddr{IP: net.IPv4(10, byte(n>>8), byte(n), 1), Port: 1} }
	var slots []*Slot
	for i := range 128 {
		v := l.Acquire(from(1))
		require.NotNil(t, v, i)
		slots = append(slots, v)
	}
	require.Nil(t, l.Acquire(from(1)), "unauthenticated ones of one address")
	for i := range 512 - 128 {
		require.NotNil(t, l.Acquire(from(2+i)), i)
	}
	require.Nil(t, l.Acquire(from(999)), "unauthenticated ones in all")
	for _, v := range slots {
		v.Authenticated()
		v.Authenticated()
	}
	for i := range 128 {
		require.NotNil(t, l.Acquire(from(1+i/32*(1000+i))), i)
	}
	slots[0].Release()
	require.Nil(t, l.Acquire(from(999)), "an authenticated one no longer counts among the others")
	require.Equal(t, 512+128-1, l.count)

	l = limitOf(Bounds{Connections: 8, PerAddress: 4})
	slots = nil
	for i := range 8 {
		v := l.Acquire(from(i / 4))
		require.NotNil(t, v, i)
		v.Authenticated()
		slots = append(slots, v)
		if i == 3 {
			require.Nil(t, l.Acquire(from(0)), "connections of one address")
		}
	}
	require.Nil(t, l.Acquire(from(9)), "connections in all")
	for _, v := range slots {
		v.Release()
	}
	require.Zero(t, l.count)
	require.Zero(t, l.unauthenticated.Taken())
	require.Empty(t, l.addresses)
}

// TestConnLimitOfKnownPeers: strangers do not take the place of a peer's further connections.
func TestConnLimitOfKnownPeers(t *testing.T) {
	t.Parallel()
	l := limitOf(Bounds{Connections: 16, PerAddress: 8})
	at := func(last byte) net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, last), Port: 1} }
	for last := byte(1); l.Acquire(at(last)) != nil; last++ {
		require.Less(t, strangersOf(l), 16)
	}
	require.Nil(t, l.Acquire(at(200)), "all places of strangers are taken")
	var known []*Slot
	for range 8 {
		slot := l.AcquireAuthenticated(at(200))
		require.NotNil(t, slot)
		known = append(known, slot)
	}
	require.Nil(t, l.AcquireAuthenticated(at(200)), "connections of one address")
	strangers := strangersOf(l)
	for _, slot := range known {
		slot.Release()
	}
	require.Equal(t, strangers, strangersOf(l))
	require.Equal(t, strangers, l.count)
}

// TestConnLimitOfNetworks: somebody with four IPv6 /64 takes as many places as four addresses have
// together, but leaves some for others.
func TestConnLimitOfNetworks(t *testing.T) {
	t.Parallel()
	l := limitOf(Bounds{})
	for n := range 2000 {
		ip := net.ParseIP(fmt.Sprintf("2001:db8:7:%x::%x", n%4, n))
		l.Acquire(&net.TCPAddr{IP: ip, Port: 1})
	}
	require.Less(t, strangersOf(l), 300)
	for i := range 200 {
		require.NotNil(t, l.Acquire(&net.TCPAddr{IP: net.IPv4(10, 0, byte(i), 1), Port: 1}), i)
	}
}

// TestHandshakePace makes handshakes wait for earlier ones of their address, but not for those of
// other addresses.
func TestHandshakePace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limitOf(Bounds{Handshakes: 1000, HandshakesPerAddress: 10, PerAddress: 4})
		handshake := func(last byte) time.Duration {
			v := l.Acquire(&net.TCPAddr{IP: net.IPv4(192, 0, 2, last)})
			require.NotNil(t, v)
			defer v.Release()
			start := time.Now()
			require.NoError(t, v.Wait(t.Context()))
			return time.Since(start)
		}
		for range 10 {
			require.Zero(t, handshake(1))
		}
		for range 5 {
			require.Equal(t, 100*time.Millisecond, handshake(1), "closing the connection does not help")
		}
		require.Zero(t, handshake(2))

		v := l.Acquire(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)})
		defer v.Release()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		require.Error(t, v.Wait(ctx), "the context ends first")

		// The number of remembered addresses is bounded.
		for i := range 2 * maxAddresses {
			w := l.Acquire(&net.TCPAddr{IP: net.IPv4(10, byte(i>>16), byte(i>>8), byte(i))})
			if w == nil {
				time.Sleep(time.Second) // until idle addresses are forgotten
				w = l.Acquire(&net.TCPAddr{IP: net.IPv4(10, byte(i>>16), byte(i>>8), byte(i))})
			}
			require.NotNil(t, w)
			require.NoError(t, w.Wait(t.Context()))
			w.Release()
			require.LessOrEqual(t, len(l.addresses), maxAddresses)
		}
	})
}

func strangersOf(l *Limit) int {
	n, _ := l.Unauthenticated()
	return n
}
