package fxfer

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

// QUIC's handshakes of one address wait for each other, as TCP's do.
func TestQUICTurns(t *testing.T) {
	t.Parallel()
	const each, n = 500 * time.Millisecond, 3
	s := serveWith(t, ServerOptions{Transport: TransportQUIC, MaxConnectionsPerAddress: 8, MaxHandshakesPerAddress: int(time.Second / each)}, identity.Read)
	defer s.stop()
	c := client(t, t.TempDir(), Options{Transport: TransportQUIC})
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
	data := randomFile(t, source, 9<<20+17)
	c := client(t, t.TempDir(), Options{Transport: TransportQUIC})
	r, err := c.Send(t.Context(), []string{source}, s.invited(t))
	require.NoError(t, err)
	require.Equal(t, TransportQUIC, r.Transport)
	require.Equal(t, r.Streams, r.Connections, "each stream has its own")
	back := filepath.Join(t.TempDir(), "back")
	_, err = c.Get(t.Context(), []URL{s.plain(t, "f")}, back)
	require.NoError(t, err)
	got, err := os.ReadFile(back)
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))

	_, err = NewClient(Options{Home: t.TempDir(), Transport: TransportQUIC, SockBuf: 1 << 16})
	require.Equal(t, KindUsage, KindOf(err))
	_, err = NewClient(Options{Home: t.TempDir(), Transport: "pigeon"})
	require.Equal(t, KindUsage, KindOf(err))
}

// TestGetTurns: the streams of a get that goes on with another transport end when all that they carry has come, and nothing is sent twice.
func TestGetTurns(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Read|identity.Write)
	defer s.stop()
	home := t.TempDir()
	source, back := filepath.Join(t.TempDir(), "f"), filepath.Join(t.TempDir(), "back")
	data := randomFile(t, source, 48<<20)
	_, err := client(t, home, Options{}).Send(t.Context(), []string{source}, s.invited(t))
	require.NoError(t, err)

	tree, below, err := openTarget(back)
	require.NoError(t, err)
	defer tree.Close()
	var session *clientSession
	var sender *transfer.Sender
	var turned, ended bool
	c := client(t, home, Options{Transport: TransportTCP, RateLimit: 200e6, Progress: func(p Progress) {
		switch {
		case !turned && p.Written > 0:
			s.mu.Lock()
			for _, x := range s.sessions {
				sender = x.sender
			}
			s.mu.Unlock()
			turned = session.turn(t.Context(), choice{TransportQUIC, "asked to"})
		case turned && p.BytesDone < p.Bytes:
			ended = true
			for _, d := range session.set.streams() {
				i, _ := d.Info()
				ended = ended && i.Protocol == transport.QUIC
			}
		}
	}})
	u := s.plain(t, "f")
	r, err := c.transfer(t.Context(), u, wire.Hello{Intent: wire.Pull, Share: u.Share, Paths: []string{u.Path}}, []string{back},
		func(string) (*disk.Tree, string) { return tree, below },
		func(x *clientSession) { x.target, x.path, session = tree, below, x })
	require.NoError(t, err)
	require.True(t, turned)
	require.True(t, ended, "those of TCP end before the transfer does")
	require.Equal(t, TransportQUIC, r.Transport)
	require.Zero(t, sender.Stats().Resent)
	got, err := os.ReadFile(back)
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))
}

// TestManyQUICClients: 100 clients at a time all get through, and leave nothing behind.
func TestManyQUICClients(t *testing.T) {
	if testing.Short() {
		t.Skip("200 connections")
	}
	const clients = 100
	s := serveWith(t, ServerOptions{MaxSessionsPerClient: clients}, identity.Read|identity.Write)
	defer s.stop()
	home := t.TempDir()
	source := filepath.Join(t.TempDir(), "f")
	randomFile(t, source, 1<<20)
	opt := Options{Transport: TransportQUIC, Streams: 1, RetryFor: time.Minute}
	_, err := client(t, home, opt).Send(t.Context(), []string{source}, s.invited(t))
	require.NoError(t, err)
	before := runtime.NumGoroutine()
	var all sync.WaitGroup
	errs := make(chan error, clients)
	for i := range clients {
		to := s.plain(t, fmt.Sprintf("copy%d", i))
		c := client(t, home, opt)
		all.Go(func() {
			_, err := c.Send(t.Context(), []string{source}, to)
			errs <- err
		})
	}
	all.Wait()
	for range clients {
		require.NoError(t, <-errs)
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+5 }, 30*time.Second, 50*time.Millisecond, "what is left of the connections")
}
