package relay

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/client"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/server"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/session/sessiontest"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// TestCalls: clients reach a server by a relay that the server has called, and no other way. They get
// what they get from any server. When the relay was away, the server calls again.
func TestCalls(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	_, key, err := session.OpenIdentity(home)
	require.NoError(t, err)
	opt := Options{Home: t.TempDir(), Listen: "127.0.0.1:0", Targets: []string{"Web1=" + string(identity.PinOfPrivate(key))}}
	run := func() (*Relay, func()) {
		r, err := New(opt)
		require.NoError(t, err)
		opt.Listen = r.Addr().String() // for the next one
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Serve(ctx) }()
		return r, func() {
			cancel()
			require.NoError(t, <-ended)
		}
	}
	r, end := run()
	at := session.URL{Host: "127.0.0.1", Port: r.Addr().(*net.TCPAddr).Port, Pin: identity.Pin(r.Pin())}

	dir := t.TempDir()
	want := sessiontest.RandomFile(t, filepath.Join(dir, "f"), 8<<20)
	s, err := server.New(server.Options{Home: home, Listen: "127.0.0.1:0", Call: []session.URL{at},
		Shares: []server.Share{{Name: "data", Dir: dir, Rights: identity.Read | identity.Write}}})
	require.NoError(t, err)
	t.Cleanup(sessiontest.Run(t, s))
	text, err := s.Invite(server.InviteOptions{Host: "web1"})
	require.NoError(t, err)
	u, err := session.ParseURL(text)
	require.NoError(t, err)

	via := at
	via.Token, err = r.store.Invite(identity.Grants{"web1:7433": identity.Read}, 0, "")
	require.NoError(t, err)
	c, err := client.New(client.Options{Home: t.TempDir(), Via: []session.URL{via}, RetryFor: 2 * time.Minute})
	require.NoError(t, err)
	u.Path, u.Port = "f", identity.DefaultPort
	get := func() {
		t.Helper()
		to := t.TempDir()
		_, err := c.Get(t.Context(), []session.URL{u}, to, client.Transfer{})
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(to, "f"))
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got))
	}
	get()
	u.Token, u.Pin = "", ""
	end()
	r, end = run()
	defer func() { end() }()
	get()
	require.Eventually(t, func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.meetings) == 0 }, time.Minute, time.Millisecond)
}

// TestCallersRefused: a connection for a client is taken only from the server that was asked for it,
// once. Nobody else can wait for clients.
func TestCallersRefused(t *testing.T) {
	t.Parallel()
	newKey := func() (ed25519.PrivateKey, string) {
		_, key, err := ed25519.GenerateKey(nil)
		require.NoError(t, err)
		return key, string(identity.PinOfPrivate(key))
	}
	one, onePin := newKey()
	other, otherPin := newKey()
	stranger, _ := newKey()
	admitted, admittedPin := newKey()
	r, _ := start(t, Options{Targets: []string{"one=" + onePin, "other=" + otherPin}}, identity.Grants{"*": identity.Read})
	require.NoError(t, r.store.Admit(identity.Principal(admittedPin), identity.Grants{"*": identity.Read}, ""))

	for name, x := range map[string]struct {
		key  ed25519.PrivateKey
		m    wire.Message
		code wire.Code
	}{
		"a stranger waits":               {stranger, &wire.Await{Version: wire.Version}, wire.CodeTrust},
		"a client waits":                 {admitted, &wire.Await{Version: wire.Version}, wire.CodeTrust},
		"a stranger comes for a client":  {stranger, &wire.Meet{Version: wire.Version}, wire.CodeTrust},
		"of another version":             {one, &wire.Await{Version: wire.Version + 1}, wire.CodeVersion},
		"a server that was not asked":    {one, &wire.Meet{Version: wire.Version}, 0},
		"a client asks for who is away":  {admitted, &wire.Relay{Version: wire.Version, Target: "one:7433"}, wire.CodeBusy},
		"a server asks to reach another": {one, &wire.Relay{Version: wire.Version, Target: "other:7433"}, wire.CodeTrust},
	} {
		_, answer, err := ask(t, r, x.key, transport.Config{}, x.m)
		if x.code == 0 {
			require.Error(t, err, name)
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, x.code, answer.(*wire.Refuse).Code, name)
	}

	control, answer, err := ask(t, r, one, transport.Config{}, &wire.Await{Version: wire.Version})
	require.NoError(t, err)
	require.IsType(t, &wire.Ping{}, answer)
	relayed := make(chan wire.Message, 1)
	go func() {
		conn, err := transport.Dial(t.Context(), r.Addr().String(), transport.Config{Identity: admitted}, func(ed25519.PublicKey) error { return nil })
		if err == nil {
			_, _ = conn.Write(wire.Append(nil, &wire.Relay{Version: wire.Version, Target: "one:7433"}))
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			m, _ := wire.NewReader(conn, wire.MaxFirstMessage).Next()
			relayed <- m
			<-t.Context().Done()
			conn.Close()
		}
	}()
	m, err := wire.NewReader(control, wire.MaxFirstMessage).Next()
	require.NoError(t, err)
	id := m.(*wire.Called).ID
	for name, key := range map[string]ed25519.PrivateKey{"a stranger": stranger, "the other server": other, "the client": admitted} {
		_, answer, err := ask(t, r, key, transport.Config{}, &wire.Meet{Version: wire.Version, ID: id})
		if err == nil {
			require.Equal(t, wire.CodeTrust, answer.(*wire.Refuse).Code, name)
		}
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, name)
	}
	conn, err := transport.Dial(t.Context(), r.Addr().String(), transport.Config{Identity: one}, func(ed25519.PublicKey) error { return nil })
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write(wire.Append(nil, &wire.Meet{Version: wire.Version, ID: id}))
	require.NoError(t, err)
	require.IsType(t, &wire.Relayed{}, <-relayed)
	_, _, err = ask(t, r, one, transport.Config{}, &wire.Meet{Version: wire.Version, ID: id})
	require.Error(t, err, "it is taken")
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
}

// TestCallersCounted: what servers open for a client counts as the client's.
func TestCallersCounted(t *testing.T) {
	t.Parallel()
	_, server, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	_, member, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	r, _ := start(t, Options{MaxConnectionsPerClient: 5, Targets: []string{"one=" + string(identity.PinOfPrivate(server))}}, identity.Grants{"*": identity.Read})
	require.NoError(t, r.store.Admit(identity.Principal(identity.PinOfPrivate(member)), identity.Grants{"*": identity.Read}, ""))
	control, answer, err := ask(t, r, server, transport.Config{}, &wire.Await{Version: wire.Version})
	require.NoError(t, err)
	require.IsType(t, &wire.Ping{}, answer)
	in := wire.NewReader(control, wire.MaxFirstMessage)
	please := wire.Append(nil, &wire.Relay{Version: wire.Version, Target: "one:7433"})
	for range 2 {
		conn, err := transport.Dial(t.Context(), r.Addr().String(), transport.Config{Identity: member}, func(ed25519.PublicKey) error { return nil })
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		_, err = conn.Write(please)
		require.NoError(t, err)
		m, err := in.Next()
		require.NoError(t, err)
		require.IsType(t, &wire.Called{}, m)
	}
	_, answer, err = ask(t, r, member, transport.Config{}, &wire.Relay{Version: wire.Version, Target: "one:7433"})
	require.NoError(t, err)
	require.Contains(t, answer.(*wire.Refuse).Text, "no room")
}

// TestTargets: a name leads to one server.
func TestTargets(t *testing.T) {
	t.Parallel()
	pin := string(identity.PinOf(make([]byte, ed25519.PublicKeySize)))
	for targets, want := range map[string]string{
		"NAS": "nas:7433", "nas:1=" + pin: "nas:1=" + pin, "nas=x": "", "=" + pin: "", "[::1]:5": "[::1]:5",
	} {
		got, err := ParseTarget(targets)
		require.Equal(t, want == "", err != nil, targets)
		if err == nil {
			require.Equal(t, want, got)
		}
	}
	_, err := (&Options{Targets: []string{"nas", "nas:7433=" + pin}}).fill()
	require.ErrorContains(t, err, "two ways to nas:7433")
}
