package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/stretchr/testify/require"
)

func TestBounds(t *testing.T) {
	t.Parallel()
	var o Options
	require.NoError(t, o.fill(0))
	require.Equal(t, Options{MaxSessions: 128, MaxSessionsPerClient: 32, MaxConnections: 2048, MaxConnectionsPerAddress: 512,
		MaxHandshakes: 400, MaxHandshakesPerAddress: 200, MaxMemory: 640 << 20}, o)
	require.Equal(t, 256, o.extraStreams(o.MaxSessions))

	o = Options{}
	require.NoError(t, o.fill(1024))
	require.Equal(t, 480, o.MaxConnections)
	require.Equal(t, 480, o.MaxConnectionsPerAddress)
	o = Options{MaxConnections: 10_000, MaxConnectionsPerAddress: 7}
	require.NoError(t, o.fill(1<<20))
	require.Equal(t, 10_000, o.MaxConnections)
	require.Equal(t, 7, o.MaxConnectionsPerAddress)

	for want, c := range map[string]struct {
		opt   Options
		files uint64
	}{
		"room for 480 connections, not for 481":                           {Options{MaxConnections: 481}, 1024},
		"a limit of 100 open files":                                       {Options{}, 100},
		"a limit of 1 open files":                                         {Options{}, 1},
		"at most -1 sessions":                                             {Options{MaxSessions: -1}, 0},
		"at most -5 bytes of memory":                                      {Options{MaxMemory: -5}, 0},
		"1000 sessions take 1564 MiB of memory, and the limit is 640 MiB": {Options{MaxSessions: 1000}, 0},
		"128 sessions take 256 MiB of memory, and the limit is 1 byte":    {Options{MaxMemory: 1}, 0},
	} {
		err := c.opt.fill(c.files)
		require.ErrorContains(t, err, want)
		require.Equal(t, session.KindUsage, session.KindOf(err))
	}
}

func connLimitOf(t *testing.T, o Options) *connLimit {
	t.Helper()
	require.NoError(t, o.fill(0))
	return newConnLimit(&o)
}

func TestConnLimit(t *testing.T) {
	t.Parallel()
	l := connLimitOf(t, Options{})
	from := func(n int) net.Addr { return &net.TCPAddr{IP: net.IPv4(10, byte(n>>8), byte(n), 1), Port: 1} }
	var slots []*connSlot
	for i := range 128 {
		v := l.acquire(from(1))
		require.NotNil(t, v, i)
		slots = append(slots, v)
	}
	require.Nil(t, l.acquire(from(1)), "unauthenticated ones of one address")
	for i := range 512 - 128 {
		require.NotNil(t, l.acquire(from(2+i)), i)
	}
	require.Nil(t, l.acquire(from(999)), "unauthenticated ones in all")
	for _, v := range slots {
		v.authenticated()
		v.authenticated()
	}
	for i := range 128 {
		require.NotNil(t, l.acquire(from(1+i/32*(1000+i))), i)
	}
	slots[0].release()
	require.Nil(t, l.acquire(from(999)), "an authenticated one no longer counts among the others")
	require.Equal(t, 512+128-1, l.count)

	l = connLimitOf(t, Options{MaxConnections: 8, MaxConnectionsPerAddress: 4})
	slots = nil
	for i := range 8 {
		v := l.acquire(from(i / 4))
		require.NotNil(t, v, i)
		v.authenticated()
		slots = append(slots, v)
		if i == 3 {
			require.Nil(t, l.acquire(from(0)), "connections of one address")
		}
	}
	require.Nil(t, l.acquire(from(9)), "connections in all")
	for _, v := range slots {
		v.release()
	}
	require.Zero(t, l.count)
	require.Zero(t, l.unauthenticated.Taken())
	require.Empty(t, l.addresses)
}

// TestConnLimitOfKnownPeers: strangers do not take the place of a peer's further connections.
func TestConnLimitOfKnownPeers(t *testing.T) {
	t.Parallel()
	l := connLimitOf(t, Options{MaxConnections: 16, MaxConnectionsPerAddress: 8})
	at := func(last byte) net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, last), Port: 1} }
	for last := byte(1); l.acquire(at(last)) != nil; last++ {
		require.Less(t, l.countUnauthenticated(), 16)
	}
	require.Nil(t, l.acquire(at(200)), "all places of strangers are taken")
	var known []*connSlot
	for range 8 {
		slot := l.acquireAuthenticated(at(200))
		require.NotNil(t, slot)
		known = append(known, slot)
	}
	require.Nil(t, l.acquireAuthenticated(at(200)), "connections of one address")
	strangers := l.countUnauthenticated()
	for _, slot := range known {
		slot.release()
	}
	require.Equal(t, strangers, l.countUnauthenticated())
	require.Equal(t, strangers, l.count)
}

// TestConnLimitOfNetworks: somebody with four IPv6 /64 takes as many places as four addresses have
// together, but leaves some for others.
func TestConnLimitOfNetworks(t *testing.T) {
	t.Parallel()
	l := connLimitOf(t, Options{})
	for n := range 2000 {
		ip := net.ParseIP(fmt.Sprintf("2001:db8:7:%x::%x", n%4, n))
		l.acquire(&net.TCPAddr{IP: ip, Port: 1})
	}
	require.Less(t, l.countUnauthenticated(), 300)
	for i := range 200 {
		require.NotNil(t, l.acquire(&net.TCPAddr{IP: net.IPv4(10, 0, byte(i), 1), Port: 1}), i)
	}
}

func TestPrefixOf(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"192.0.2.1:5": "192.0.2.1/32", "[::ffff:192.0.2.1]:5": "192.0.2.1/32", "[2001:db8:1:2:3:4:5:6]:5": "2001:db8:1:2::/64", "[fe80::1%eth0]:5": "fe80::/64",
	} {
		a := netip.MustParseAddrPort(addr)
		require.Equal(t, netip.MustParsePrefix(want), transport.PrefixOf(net.TCPAddrFromAddrPort(a)), addr)
		require.Equal(t, netip.MustParsePrefix(want), transport.PrefixOf(net.UDPAddrFromAddrPort(a)), addr)
	}
	require.Equal(t, transport.PrefixOf(&net.UnixAddr{}), transport.PrefixOf(nil))
}

// TestHandshakePace makes handshakes wait for earlier ones of their address, but not for those of
// other addresses.
func TestHandshakePace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := connLimitOf(t, Options{MaxHandshakes: 1000, MaxHandshakesPerAddress: 10, MaxConnectionsPerAddress: 4})
		handshake := func(last byte) time.Duration {
			v := l.acquire(&net.TCPAddr{IP: net.IPv4(192, 0, 2, last)})
			require.NotNil(t, v)
			defer v.release()
			start := time.Now()
			require.NoError(t, v.wait(t.Context()))
			return time.Since(start)
		}
		for range 10 {
			require.Zero(t, handshake(1))
		}
		for range 5 {
			require.Equal(t, 100*time.Millisecond, handshake(1), "closing the connection does not help")
		}
		require.Zero(t, handshake(2))

		v := l.acquire(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)})
		defer v.release()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		require.Error(t, v.wait(ctx), "the context ends first")

		// The number of remembered addresses is bounded.
		for i := range 2 * maxAddresses {
			w := l.acquire(&net.TCPAddr{IP: net.IPv4(10, byte(i>>16), byte(i>>8), byte(i))})
			if w == nil {
				time.Sleep(time.Second) // until idle addresses are forgotten
				w = l.acquire(&net.TCPAddr{IP: net.IPv4(10, byte(i>>16), byte(i>>8), byte(i))})
			}
			require.NotNil(t, w)
			require.NoError(t, w.wait(t.Context()))
			w.release()
			require.LessOrEqual(t, len(l.addresses), maxAddresses)
		}
	})
}

// fullListener fails as if the limit of open files were reached.
type fullListener struct {
	transport.Listener
	tries int
}

func (l *fullListener) Accept() (transport.Conn, error) { l.tries++; return nil, syscall.EMFILE }

// TestAcceptLives lets Accept fail: the server goes on, and can still be ended.
func TestAcceptLives(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serveBounds(t)
		l := &fullListener{}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second+time.Millisecond)
		defer cancel()
		start := time.Now()
		s.accept(ctx, l.Accept, func(transport.Conn, *connSlot) { t.Error("none comes") })
		require.Equal(t, 10*time.Second+time.Millisecond, time.Since(start))
		require.Equal(t, 1+int(10*time.Second/acceptPause), l.tries)
		require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
	})
}

// TestAcceptEnds closes the listeners: the server takes no connection any more, and no call waits for
// that.
func TestAcceptEnds(t *testing.T) {
	t.Parallel()
	s, err := New(Options{Ephemeral: true, Listen: "127.0.0.1:0", Shares: []Share{{Name: "a", Dir: t.TempDir(), Rights: identity.Read}}})
	require.NoError(t, err)
	defer s.closeShares()
	to, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer to.Close()
	for _, l := range s.listen {
		require.NoError(t, l.Close())
	}
	s.acceptAll(t.Context(), func(transport.Conn, *connSlot) { t.Error("none comes") })
	require.ErrorIs(t, s.Call(t.Context(), to.Addr().String(), []byte("for you")), net.ErrClosed)
}

func serveBounds(t *testing.T) *Server {
	t.Helper()
	s := &Server{log: slog.New(slog.DiscardHandler)}
	require.NoError(t, s.opt.fill(0))
	return s
}
