package server

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fxfer/fxfer/internal/connlimit"
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
		s.accept(ctx, l.Accept, func(transport.Conn, *connlimit.Slot) { t.Error("none comes") })
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
	s.acceptAll(t.Context(), func(transport.Conn, *connlimit.Slot) { t.Error("none comes") })
	require.ErrorIs(t, s.Call(t.Context(), to.Addr().String(), []byte("for you")), net.ErrClosed)
}

func serveBounds(t *testing.T) *Server {
	t.Helper()
	s := &Server{log: slog.New(slog.DiscardHandler)}
	require.NoError(t, s.opt.fill(0))
	return s
}
