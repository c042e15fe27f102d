package fxfer

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/transport/transporttest"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"lukechampine.com/blake3"
)

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

// earlySite is a server that can be started again, behind a proxy.
type earlySite struct {
	*site
	opt   ServerOptions
	log   *lockedBuffer
	proxy *transporttest.UDPProxy
}

func newEarlySite(t *testing.T) *earlySite {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	s := &earlySite{site: &site{dir: t.TempDir()}, log: &lockedBuffer{}}
	s.opt = ServerOptions{Home: t.TempDir(), Listen: "127.0.0.1:0", Audit: slog.New(slog.NewTextHandler(s.log, nil)), Log: slog.New(slog.NewTextHandler(s.log, nil)),
		Shares: []Share{{Name: "data", Dir: s.dir, Rights: identity.Read | identity.Write, Quota: 1 << 30, QuotaFiles: 1000}}}
	s.start(t)
	s.opt.Listen = s.Addr().String()
	s.proxy = transporttest.NewUDPProxy(t, s.opt.Listen)
	return s
}

func (s *earlySite) start(t *testing.T) {
	t.Helper()
	var err error
	s.Server, err = NewServer(s.opt)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Serve(ctx) }()
	s.stop = func() {
		cancel()
		require.NoError(t, <-done)
	}
	q := s.rules.Load().shares["data"].quota
	require.Eventually(t, func() bool { q.mu.Lock(); defer q.mu.Unlock(); return !q.counted.IsZero() }, 20*time.Second, time.Millisecond)
}

// url is that of the share, by way of the proxy.
func (s *earlySite) url(t *testing.T, token bool) URL {
	t.Helper()
	u := s.plain(t, "")
	if token {
		u = s.invited(t)
	}
	_, port, err := net.SplitHostPort(s.proxy.Addr())
	require.NoError(t, err)
	u.Port, err = strconv.Atoi(port)
	require.NoError(t, err)
	return u
}

// files is all that is below a folder.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			all[path] = ""
			return err
		}
		b, err := os.ReadFile(path)
		all[path] = hexDigest(blake3.Sum256(b))
		return err
	}))
	return all
}

// state is what there is on a server that a replay could change.
func (s *earlySite) state(t *testing.T) (state []any) {
	t.Helper()
	s.mu.Lock()
	state = append(state, len(s.sessions), len(s.guests), fmt.Sprint(s.seats), s.more)
	s.mu.Unlock()
	q := s.rules.Load().shares["data"].quota
	q.mu.Lock()
	state = append(state, q.there, q.held)
	q.mu.Unlock()
	return append(state, files(t, s.dir), files(t, s.opt.Home), s.log.String(), s.Status().Counters)
}

// TestReplayedTransfer: the first flight of a transfer, captured and sent three times more, changes nothing on the server, nor on one that was
// started anew.
func TestReplayedTransfer(t *testing.T) {
	s := newEarlySite(t)
	home, source := t.TempDir(), filepath.Join(t.TempDir(), "f")
	const streams = 2
	opt := Options{Transport: TransportQUIC, Streams: streams}
	randomFile(t, source, 1000)
	_, err := client(t, home, opt).Send(t.Context(), []string{source}, s.url(t, true))
	require.NoError(t, err)

	data := randomFile(t, source, 500_000)
	s.proxy.Hold()
	sent := make(chan error, 1)
	to := s.url(t, false)
	to.Path = "second"
	c := client(t, home, opt)
	go func() {
		_, err := c.Send(context.Background(), []string{source}, to)
		sent <- err
	}()
	require.Eventually(t, func() bool { // all that the first congestion windows let through
		size := 0
		for _, f := range s.proxy.Flights() {
			for _, b := range f {
				size += len(b)
			}
		}
		return s.proxy.Early() == 1+streams && size > streams*30_000
	}, 20*time.Second, time.Millisecond, "data of the file is in the flight")
	require.NotContains(t, files(t, s.dir), filepath.Join(s.dir, "second"))
	s.proxy.Release()
	require.NoError(t, <-sent)
	got, err := os.ReadFile(filepath.Join(s.dir, "second"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))
	flights := s.proxy.Flights()
	require.Eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.sessions) == 0 && len(s.guests) == 0 }, 20*time.Second, time.Millisecond)
	before := s.state(t)
	rounds := 3
	if testing.Short() {
		rounds = 1 // each waits until the server has given up the one before, 5 s
	}
	for range rounds {
		transporttest.Replay(t, flights, s.Addr().String())
	}
	require.Equal(t, before, s.state(t))
	s.stop()
	stopped := files(t, s.dir)
	s.start(t)
	defer func() { s.stop() }()
	before = s.state(t)
	transporttest.Replay(t, flights, s.Addr().String())
	require.Equal(t, before, s.state(t))
	require.Equal(t, stopped, files(t, s.dir))

	// The client's ticket is of the server before: it gets through all the same. Revoked, it does not, with a ticket that is known.
	for _, name := range []string{"third", "fourth"} {
		to.Path = name
		_, err = client(t, home, opt).Send(t.Context(), []string{source}, to)
		require.NoError(t, err)
	}
	early := s.proxy.Early()
	require.NoError(t, s.store.Revoke(identity.Principal(pin(t, home))))
	to.Path = "fifth"
	_, err = client(t, home, opt).Send(t.Context(), []string{source}, to)
	require.Equal(t, KindTrust, KindOf(err), "%v", err)
	require.Greater(t, s.proxy.Early(), early)
	require.NotContains(t, files(t, s.dir), filepath.Join(s.dir, "fifth"))
}

// TestEarlyWithoutQUIC: a session that has begun in 0-RTT goes over to TCP if nothing answers.
func TestEarlyWithoutQUIC(t *testing.T) {
	s := newEarlySite(t)
	home, source := t.TempDir(), filepath.Join(t.TempDir(), "f")
	data := randomFile(t, source, 300_000)
	to := s.plain(t, "first")
	invited := s.invited(t)
	invited.Path = to.Path
	_, err := client(t, home, Options{Transport: TransportQUIC}).Send(t.Context(), []string{source}, invited)
	require.NoError(t, err)
	s.stop()
	s.opt.Transport = TransportTCP
	s.start(t)
	defer func() { s.stop() }()
	c := client(t, home, Options{Transport: TransportAuto})
	c.learn(serverOf(to)+chosen, quicChosen)
	to.Path = "second"
	r, err := c.Send(t.Context(), []string{source}, to)
	require.NoError(t, err)
	require.Equal(t, TransportTCP, r.Transport)
	got, err := os.ReadFile(filepath.Join(s.dir, "second"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))
}
