package client

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/server"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/session/sessiontest"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
	"lukechampine.com/blake3"
)

func TestSendGetList(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Read|identity.Write)
	defer s.stop()
	home, dir := t.TempDir(), t.TempDir()
	data := sessiontest.RandomFile(t, filepath.Join(dir, "big"), 40<<20+17)
	var files []session.FileResult
	c := newClient(t, home, Options{})
	call := Transfer{File: func(r session.FileResult) { files = append(files, r) }}
	report, err := c.Send(t.Context(), []string{filepath.Join(dir, "big")}, s.invited(t), call)
	require.NoError(t, err)
	sum := blake3.Sum256(data)
	require.Equal(t, digest.Hex(sum), report.Digest)
	require.Equal(t, int64(len(data)), report.Written)
	require.Len(t, files, 1)
	got, err := os.ReadFile(filepath.Join(s.dir, "big"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))

	report, err = c.Send(t.Context(), []string{filepath.Join(dir, "big")}, s.plain(t, ""), Transfer{})
	require.NoError(t, err)
	require.Equal(t, int64(1), report.Same)
	require.Zero(t, report.Written)

	back := t.TempDir()
	report, err = c.Get(t.Context(), []session.URL{s.plain(t, "big")}, back, Transfer{})
	require.NoError(t, err)
	require.Equal(t, digest.Hex(sum), report.Digest)
	got, err = os.ReadFile(filepath.Join(back, "big"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))

	_, err = c.SendStream(t.Context(), bytes.NewReader(data), s.plain(t, "sub/stream"), Transfer{})
	require.NoError(t, err)
	list, err := c.List(t.Context(), s.plain(t, ""))
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, "big", list[0].Path)
	require.Equal(t, "folder", list[1].Kind)
	u := s.plain(t, "")
	u.Share = ""
	list, err = c.List(t.Context(), u)
	require.NoError(t, err)
	require.Equal(t, "data", list[0].Path)
	require.Equal(t, "rw", list[0].Rights)
}

func TestTrust(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Read)
	defer s.stop()
	dir := t.TempDir()
	sessiontest.RandomFile(t, filepath.Join(dir, "f"), 1000)
	send := func(home string, u session.URL) error {
		_, err := newClient(t, home, Options{}).Send(t.Context(), []string{filepath.Join(dir, "f")}, u, Transfer{})
		return err
	}
	get := func(home string, u session.URL, opt Options) error {
		_, err := newClient(t, home, opt).Get(t.Context(), []session.URL{u}, t.TempDir(), Transfer{})
		return err
	}
	newcomer, member := t.TempDir(), t.TempDir()
	require.ErrorIs(t, get(newcomer, s.plain(t, "f"), Options{}), identity.ErrUnknownServer)
	require.Equal(t, session.KindTrust, session.KindOf(get(newcomer, s.plain(t, "f"), Options{Pin: s.Pin()})), "not admitted")

	invitation := s.invited(t)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "f"), []byte("hello"), 0o644))
	invitation.Path = "f"
	require.NoError(t, get(member, invitation, Options{}))
	require.NoError(t, get(member, s.plain(t, "f"), Options{}))
	require.Equal(t, session.KindTrust, session.KindOf(get(newcomer, invitation, Options{})), "a token is good once")
	require.Equal(t, session.KindTrust, session.KindOf(send(member, s.plain(t, ""))), "the share is read-only")
	other := s.plain(t, "f")
	other.Share = "other"
	require.Equal(t, session.KindTrust, session.KindOf(get(member, other, Options{})))
	require.Equal(t, session.KindNotFound, session.KindOf(get(member, s.plain(t, "missing"), Options{})))

	imposter := serve(t, identity.Read)
	defer imposter.stop()
	wrong := imposter.plain(t, "f")
	require.Equal(t, session.KindTrust, session.KindOf(get(member, wrong, Options{Pin: s.Pin()})))
}

// TestLearned: the number of streams that a path needed is remembered.
func TestLearned(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Read|identity.Write)
	defer s.stop()
	home, dir := t.TempDir(), t.TempDir()
	sessiontest.RandomFile(t, filepath.Join(dir, "f"), 1000)
	c := newClient(t, home, Options{})
	server := serverOf(s.plain(t, ""))
	require.Zero(t, c.learned(server))
	_, err := c.Send(t.Context(), []string{filepath.Join(dir, "f")}, s.invited(t), Transfer{})
	require.NoError(t, err)
	require.Positive(t, c.learned(server))
	c.learn(server, 24)
	report, err := newClient(t, home, Options{}).Get(t.Context(), []session.URL{s.plain(t, "f")}, filepath.Join(dir, "g"), Transfer{})
	require.NoError(t, err)
	require.Positive(t, report.Streams)
	c.learn(server, 20)
	require.Equal(t, 20, newClient(t, home, Options{}).learned(server))
	require.NoError(t, os.WriteFile(c.pathFile(server), []byte("nonsense"), 0o600))
	require.Zero(t, c.learned(server))
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Read)
	u := s.plain(t, "f")
	s.stop()
	_, err := newClient(t, t.TempDir(), Options{Pin: s.Pin()}).Get(t.Context(), []session.URL{u}, t.TempDir(), Transfer{})
	require.Equal(t, session.KindUnreachable, session.KindOf(err), "%v", err)
}

// TestContext: whatever a caller ends by its context has one kind of error, which matches the cause.
func TestContext(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Read|identity.Write)
	defer s.stop()
	c := newClient(t, t.TempDir(), Options{RetryFor: time.Hour})
	source := filepath.Join(t.TempDir(), "f")
	data := sessiontest.RandomFile(t, source, 3<<20)
	_, err := c.Send(t.Context(), []string{source}, s.invited(t), Transfer{})
	require.NoError(t, err)
	u := s.plain(t, "f")
	verbs := map[string]func(context.Context) error{
		"send": func(ctx context.Context) error { _, err := c.Send(ctx, []string{source}, u, Transfer{}); return err },
		"stream": func(ctx context.Context) error {
			_, err := c.SendStream(ctx, bytes.NewReader(data), u, Transfer{})
			return err
		},
		"get":    func(ctx context.Context) error { _, err := c.Get(ctx, urls(u), t.TempDir(), Transfer{}); return err },
		"get to": func(ctx context.Context) error { _, err := c.GetTo(ctx, u, io.Discard, Transfer{}); return err },
		"list":   func(ctx context.Context) error { _, err := c.List(ctx, u); return err },
		"verify": func(ctx context.Context) error {
			_, err := c.Verify(ctx, u, filepath.Dir(source), Verification{})
			return err
		},
		"files": func(ctx context.Context) error { _, err := c.Files(ctx, u); return err },
		"probe": func(ctx context.Context) error { _, err := c.Probe(ctx, u, ProbeOptions{}); return err },
	}
	mine := errors.New("mine")
	canceled, cancel := context.WithCancelCause(t.Context())
	cancel(mine)
	late, cancelLate := context.WithTimeout(t.Context(), 0)
	defer cancelLate()
	for name, do := range verbs {
		err := do(canceled)
		require.Equal(t, session.KindInterrupted, session.KindOf(err), "%s: %v", name, err)
		require.ErrorIs(t, err, context.Canceled, name)
		require.ErrorIs(t, err, mine, name)
		err = do(late)
		require.Equal(t, session.KindInterrupted, session.KindOf(err), "%s: %v", name, err)
		require.ErrorIs(t, err, context.DeadlineExceeded, name)
	}
	ctx, cancelSoon := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancelSoon()
	_, err = c.GetTo(ctx, u, writeFunc(func(p []byte) (int, error) { <-ctx.Done(); return len(p), nil }), Transfer{})
	require.Equal(t, session.KindInterrupted, session.KindOf(err), "%v", err)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// TestRetry stops the server during a transfer and starts another one in its place.
func TestRetry(t *testing.T) {
	t.Parallel()
	home, dir, source := t.TempDir(), t.TempDir(), t.TempDir()
	data := sessiontest.RandomFile(t, filepath.Join(source, "big"), 60<<20)
	start := func(listen string) (*server.Server, context.CancelFunc, chan error) {
		s, err := server.New(server.Options{Home: home, Listen: listen, Shares: []server.Share{{Name: "data", Dir: dir, Rights: identity.Read | identity.Write}}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- s.Serve(ctx) }()
		return s, cancel, done
	}
	first, cancel, done := start("127.0.0.1:0")
	text, err := first.Invite(server.InviteOptions{Host: "127.0.0.1"})
	require.NoError(t, err)
	u, err := session.ParseURL(text)
	require.NoError(t, err)
	var second chan error
	var stop context.CancelFunc
	opt := Options{RetryFor: 1 << 40, RateLimit: 200e6} // for some progress in between, on a busy machine, too
	var call Transfer
	call.Progress = func(p session.Progress) {
		if p.BytesDone > 10<<20 && second == nil {
			cancel()
			require.NoError(t, <-done)
			_, stop, second = start(first.Addr().String())
		}
	}
	report, err := newClient(t, t.TempDir(), opt).Send(t.Context(), []string{filepath.Join(source, "big")}, u, call)
	require.NoError(t, err)
	require.Equal(t, 1, report.Reconnects)
	require.Zero(t, report.Resumed, "nothing was there before this transfer")
	require.Less(t, report.Written, int64(len(data))+20<<20, "what was written before the end of the first server is not sent again")
	got, err := os.ReadFile(filepath.Join(dir, "big"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))
	stop()
	require.NoError(t, <-second)
}

// TestRenew: a transfer goes on with a server that has another port and key than the one before.
func TestRenew(t *testing.T) {
	t.Parallel()
	dir, source := t.TempDir(), filepath.Join(t.TempDir(), "big")
	data := sessiontest.RandomFile(t, source, 60<<20)
	_, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	rights := identity.Read | identity.Write
	start := func() (s *server.Server, stop func()) {
		s, err := server.New(server.Options{Ephemeral: true, Listen: "127.0.0.1:0",
			Shares:  []server.Share{{Name: "data", Dir: dir, Rights: rights}},
			Clients: []server.Admission{{Key: string(identity.PinOfPrivate(key)), Name: "a", Rights: map[string]identity.Rights{"data": rights}}}})
		require.NoError(t, err)
		return s, sessiontest.Run(t, s)
	}
	port := func(s *server.Server) int { return s.Addr().(*net.TCPAddr).Port }
	first, stop := start()
	var second *server.Server
	var end func()
	fails := 1
	c := newClient(t, t.TempDir(), Options{Key: key, Pin: first.Pin(), Forget: true, RetryFor: 1 << 40, RateLimit: 200e6,
		Renew: func(_ context.Context, opt *Options) (string, int, error) {
			if fails--; fails == 0 {
				return "", 0, &session.Error{Kind: session.KindUnreachable, Err: errors.New("not yet")}
			}
			opt.Pin = second.Pin()
			return "127.0.0.1", port(second), nil
		}})
	var call Transfer
	call.Progress = func(p session.Progress) {
		if p.BytesDone > 10<<20 && second == nil {
			stop()
			second, end = start()
		}
	}
	r, err := c.Send(t.Context(), []string{source}, session.URL{Host: "127.0.0.1", Port: port(first), Share: "data"}, call)
	require.NoError(t, err)
	defer end()
	require.NotEqual(t, first.Pin(), second.Pin())
	require.Negative(t, fails)
	require.Positive(t, r.Reconnects)
	got, err := os.ReadFile(filepath.Join(dir, "big"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))
}

// TestConnect: a client that cannot reach the server takes connections that the server makes.
func TestConnect(t *testing.T) {
	t.Parallel()
	s := serveWith(t, server.Options{Calls: true}, identity.Read|identity.Write)
	defer s.stop()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	const greeting = "for you"
	var one sync.Mutex
	c := newClient(t, t.TempDir(), Options{Connect: func(ctx context.Context) (*net.TCPConn, error) {
		one.Lock()
		defer one.Unlock()
		if err := s.Call(ctx, l.Addr().String(), []byte(greeting)); err != nil {
			return nil, err
		}
		conn, err := l.Accept()
		if err != nil {
			return nil, err
		}
		got := make([]byte, len(greeting))
		_, err = io.ReadFull(conn, got)
		require.Equal(t, greeting, string(got))
		return conn.(*net.TCPConn), err
	}})
	u := s.invited(t)
	u.Host, u.Port = "server.invalid", 1
	source := filepath.Join(t.TempDir(), "f")
	sessiontest.RandomFile(t, source, 3<<20+17)
	r, err := c.Send(t.Context(), []string{source}, u, Transfer{})
	require.NoError(t, err)
	require.Equal(t, session.TransportTCP, r.Transport)
	require.Equal(t, int64(1), r.Sent)

	_, err = New(Options{Home: t.TempDir(), Transport: session.TransportQUIC, Connect: func(context.Context) (*net.TCPConn, error) { return nil, net.ErrClosed }})
	require.Equal(t, session.KindUsage, session.KindOf(err))
}

// TestFresh: a transfer begins before the receiver answers if the caller knows that nothing is there,
// or if it is the first one and that can be remembered.
func TestFresh(t *testing.T) {
	t.Parallel()
	target := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(target, "old"), nil, 0o600))
	tree, below, err := openTarget(target, access.Asked{})
	require.NoError(t, err)
	defer tree.Close()
	get := &pull{args: []string{target}, tree: tree, below: below}
	require.NoError(t, os.Mkdir(filepath.Join(target, "empty"), 0o700))
	require.NoError(t, os.Mkdir(filepath.Join(target, "partial"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(target, "partial", ".fxfer-0.part"), nil, 0o600))
	into := func(name string) *pull {
		return &pull{args: []string{filepath.Join(target, name)}, tree: tree, below: name}
	}
	hello := func(intent wire.Intent, path string) wire.Hello {
		return wire.Hello{Intent: intent, Share: "data", Paths: []string{path}}
	}
	for _, c := range []struct {
		name   string
		opt    Options
		in     intent
		hello  wire.Hello
		target Target
		want   []bool // one call after the other
	}{
		{"known", Options{Fresh: true, Forget: true}, &push{}, hello(wire.Push, "a"), Target{}, []bool{true, true}},
		{"history", Options{}, &push{}, hello(wire.Push, "a"), Target{}, []bool{true, false}},
		{"no history", Options{Forget: true}, &push{}, hello(wire.Push, "a"), Target{}, []bool{false}},
		{"dry run", Options{Fresh: true}, &push{}, hello(wire.Push, "a"), Target{DryRun: true}, []bool{false}},
		{"get", Options{Fresh: true}, get, hello(wire.Pull, "new"), Target{}, []bool{true}},
		{"get again", Options{Fresh: true}, get, hello(wire.Pull, "old"), Target{}, []bool{false}},
		{"content", Options{Fresh: true}, into("none"), hello(wire.Pull, "d/"), Target{}, []bool{true}},
		{"content into empty", Options{Fresh: true}, into("empty"), hello(wire.Pull, "d/"), Target{}, []bool{true}},
		{"content again", Options{Fresh: true}, into("partial"), hello(wire.Pull, "d/"), Target{}, []bool{false}},
	} {
		j := &job{Client: newClient(t, t.TempDir(), c.opt), call: &Transfer{Target: c.target}, intent: c.in, hello: c.hello, server: "nas:1"}
		for _, want := range c.want {
			require.Equal(t, want, j.isFresh(), c.name)
		}
	}
}
