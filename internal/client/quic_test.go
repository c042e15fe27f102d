package client

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/server"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/session/sessiontest"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

// TestQUICTurns: the server limits the handshakes of an address with QUIC as with TCP.
func TestQUICTurns(t *testing.T) {
	t.Parallel()
	const each, n = 500 * time.Millisecond, 3
	s := serveWith(t, server.Options{Transport: session.TransportQUIC, MaxConnectionsPerAddress: 8, MaxHandshakesPerAddress: int(time.Second / each)}, identity.Read)
	defer s.stop()
	c := newClient(t, t.TempDir(), Options{Transport: session.TransportQUIC})
	u := s.invited(t)
	since := time.Now()
	for range 2 + n { // the first two have not been preceded
		_, err := c.List(t.Context(), u)
		require.NoError(t, err)
		u.Token = ""
	}
	require.GreaterOrEqual(t, time.Since(since), (n-1)*each)
}

// TestQUIC moves a file there and back.
func TestQUIC(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Read|identity.Write)
	defer s.stop()
	source := filepath.Join(t.TempDir(), "f")
	data := sessiontest.RandomFile(t, source, 9<<20+17)
	c := newClient(t, t.TempDir(), Options{Transport: session.TransportQUIC})
	r, err := c.Send(t.Context(), []string{source}, s.invited(t), Transfer{})
	require.NoError(t, err)
	require.Equal(t, session.TransportQUIC, r.Transport)
	require.Equal(t, r.Streams, r.Connections, "each stream has its own")
	back := filepath.Join(t.TempDir(), "back")
	_, err = c.Get(t.Context(), []session.URL{s.plain(t, "f")}, back, Transfer{})
	require.NoError(t, err)
	got, err := os.ReadFile(back)
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))

	_, err = New(Options{Home: t.TempDir(), Transport: session.TransportQUIC, SockBuf: 1 << 16})
	require.Equal(t, session.KindUsage, session.KindOf(err))
	_, err = New(Options{Home: t.TempDir(), Transport: "pigeon"})
	require.Equal(t, session.KindUsage, session.KindOf(err))
}

// watchedPull is a pull that keeps its session.
type watchedPull struct {
	pull
	running *transferSession
}

func (p *watchedPull) engine(ctx context.Context, s *transferSession, control transport.Conn, r *wire.Reader) (session.Engine, error) {
	p.running = s
	return p.pull.engine(ctx, s, control, r)
}

// TestGetTurns: when a get changes its transport, the old streams end after their blocks have
// arrived, and nothing is sent twice.
func TestGetTurns(t *testing.T) {
	t.Parallel()
	for range 5 { // on a busy host, a stream may be taken for stuck, and what it carries goes again
		if getTurns(t) == 0 {
			return
		}
	}
	t.Fatal("turning sends again what was under way")
}

// getTurns returns how much a get that turned has sent again, bytes.
func getTurns(t *testing.T) (resent int64) {
	s := serve(t, identity.Read|identity.Write)
	defer s.stop()
	home := t.TempDir()
	source, back := filepath.Join(t.TempDir(), "f"), filepath.Join(t.TempDir(), "back")
	data := sessiontest.RandomFile(t, source, 48<<20)
	_, err := newClient(t, home, Options{}).Send(t.Context(), []string{source}, s.invited(t), Transfer{})
	require.NoError(t, err)

	tree, below, err := openTarget(back, access.Asked{})
	require.NoError(t, err)
	defer tree.Close()
	in := &watchedPull{pull: pull{args: []string{back}, tree: tree, below: below}}
	var turned, ended bool
	c := newClient(t, home, Options{Transport: session.TransportTCP, RateLimit: 200e6})
	call := Transfer{Progress: func(p session.Progress) {
		switch {
		case !turned && p.Written > 0:
			turned = in.running.streams.turn(choice{session.TransportQUIC, "asked to"})
		case turned && p.BytesDone < p.Bytes:
			ended = true
			for _, d := range in.running.set.Streams() {
				i, _ := d.Info()
				ended = ended && i.Protocol == transport.QUIC
			}
		}
	}}
	u := s.plain(t, "f")
	r, err := c.transfer(t.Context(), u, wire.Hello{Intent: wire.Pull, Share: u.Share, Paths: []string{u.Path}}, in, &call)
	require.NoError(t, err)
	require.True(t, turned)
	require.True(t, ended, "those of TCP end before the transfer does")
	require.Equal(t, session.TransportQUIC, r.Transport)
	for _, x := range s.Status().Counters.Traffic {
		if !x.Receive { // the get; the host may have been too busy for the send before it
			resent += x.Resent
		}
	}
	got, err := os.ReadFile(back)
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))
	return resent
}

// TestManyQUICClients: 100 clients at a time all succeed, and leave no goroutines.
func TestManyQUICClients(t *testing.T) {
	if testing.Short() {
		t.Skip("200 connections")
	}
	const clients = 100
	s := serveWith(t, server.Options{MaxSessionsPerClient: clients}, identity.Read|identity.Write)
	defer s.stop()
	home := t.TempDir()
	source := filepath.Join(t.TempDir(), "f")
	sessiontest.RandomFile(t, source, 256<<10)
	opt := Options{Transport: session.TransportQUIC, Streams: 1, RetryFor: time.Minute}
	_, err := newClient(t, home, opt).Send(t.Context(), []string{source}, s.invited(t), Transfer{})
	require.NoError(t, err)
	before := runtime.NumGoroutine()
	var all sync.WaitGroup
	errs := make(chan error, clients)
	for i := range clients {
		to := s.plain(t, fmt.Sprintf("copy%d", i))
		c := newClient(t, home, opt)
		all.Go(func() {
			_, err := c.Send(t.Context(), []string{source}, to, Transfer{})
			errs <- err
		})
	}
	all.Wait()
	for range clients {
		require.NoError(t, <-errs)
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+5 }, 30*time.Second, 50*time.Millisecond, "what is left of the connections")
}
