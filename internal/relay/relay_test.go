package relay

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/fxfer/fxfer/internal/client"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/server"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/session/sessiontest"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// start starts a relay, and returns its URL with an invitation to grants.
func start(t *testing.T, opt Options, grants identity.Grants) (*Relay, session.URL) {
	t.Helper()
	opt.Home, opt.Listen = t.TempDir(), "127.0.0.1:0"
	r, err := New(opt)
	require.NoError(t, err)
	t.Cleanup(sessiontest.Run(t, r))
	u := session.URL{Host: "127.0.0.1", Port: r.Addr().(*net.TCPAddr).Port, Pin: identity.Pin(r.Pin())}
	u.Token, err = r.store.Invite(grants, 0, "")
	require.NoError(t, err)
	return r, u
}

// serve starts a server, and returns an invitation to its share.
func serve(t *testing.T) (dir string, u session.URL) {
	t.Helper()
	dir = t.TempDir()
	s, err := server.New(server.Options{Home: t.TempDir(), Listen: "127.0.0.1:0",
		Shares: []server.Share{{Name: "data", Dir: dir, Rights: identity.Read | identity.Write}}})
	require.NoError(t, err)
	t.Cleanup(sessiontest.Run(t, s))
	text, err := s.Invite(server.InviteOptions{Host: "127.0.0.1"})
	require.NoError(t, err)
	u, err = session.ParseURL(text)
	require.NoError(t, err)
	return dir, u
}

// tap passes connections on to an address, and keeps all that they carry.
type tap struct {
	mu   sync.Mutex
	seen bytes.Buffer
}

func (x *tap) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.seen.Write(p)
}

func (x *tap) listen(t *testing.T, to string) (port int) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var running sync.WaitGroup
	t.Cleanup(func() { l.Close(); running.Wait() })
	running.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer near.Close()
				far, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer far.Close()
				running.Go(func() { _, _ = io.Copy(io.MultiWriter(near, x), far); near.Close() })
				_, _ = io.Copy(io.MultiWriter(far, x), near)
			})
		}
	})
	return l.Addr().(*net.TCPAddr).Port
}

// TestOpaque: what clients send and get through a relay is whole, and neither on the line to the relay
// nor behind it anybody can read of it.
func TestOpaque(t *testing.T) {
	dir, u := serve(t)
	var before, behind tap
	u.Port = behind.listen(t, u.Address())
	r, via := start(t, Options{Targets: []string{u.Address()}}, identity.Grants{u.Address(): identity.Read})
	via.Port = before.listen(t, r.Addr().String())

	c, err := client.New(client.Options{Home: t.TempDir(), Via: []session.URL{via}})
	require.NoError(t, err)
	secret := []byte("the quick brown fox jumps over the lazy dog")
	file := filepath.Join(t.TempDir(), "unspoken-name")
	want := bytes.Repeat(secret, 100_000)
	require.NoError(t, os.WriteFile(file, want, 0o600))
	_, err = c.Send(t.Context(), []string{file}, u, client.Transfer{})
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(dir, "unspoken-name"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))

	u.Token, u.Pin, u.Path = "", "", "unspoken-name"
	back := t.TempDir()
	_, err = c.Get(t.Context(), []session.URL{u}, back, client.Transfer{})
	require.NoError(t, err)
	got, err = os.ReadFile(filepath.Join(back, "unspoken-name"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))

	for _, x := range []*tap{&before, &behind} {
		x.mu.Lock()
		require.Greater(t, x.seen.Len(), 2*len(want), "both transfers")
		require.False(t, bytes.Contains(x.seen.Bytes(), secret))
		require.False(t, bytes.Contains(x.seen.Bytes(), []byte("unspoken")))
		x.mu.Unlock()
	}
	before.mu.Lock()
	defer before.mu.Unlock()
	require.False(t, bytes.Contains(before.seen.Bytes(), []byte(u.Address())), "the name of the server")
}

// ask does what a client does until the relay has answered.
func ask(t *testing.T, r *Relay, key ed25519.PrivateKey, cfg transport.Config, m wire.Message) (transport.Conn, wire.Message, error) {
	t.Helper()
	cfg.Identity = key
	c, err := transport.Dial(t.Context(), r.Addr().String(), cfg, func(ed25519.PublicKey) error { return nil })
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	_, err = c.Write(wire.Append(nil, m))
	require.NoError(t, err)
	answer, err := wire.NewReader(c, wire.MaxFirstMessage).Next()
	return c, answer, err
}

// TestRefusals: who is not admitted, or asks for another server, reaches nobody.
func TestRefusals(t *testing.T) {
	trap, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer trap.Close()
	listed := trap.Addr().String()
	r, _ := start(t, Options{Targets: []string{listed, "127.0.0.1:1"}}, identity.Grants{"*": identity.Read})
	admit := func(grants identity.Grants) ed25519.PrivateKey {
		_, key, err := ed25519.GenerateKey(nil)
		require.NoError(t, err)
		if grants != nil {
			require.NoError(t, r.store.Admit(identity.Principal(identity.PinOfPrivate(key)), grants, ""))
		}
		return key
	}
	some, all := admit(identity.Grants{"127.0.0.1:1": identity.Read}), admit(identity.Grants{"*": identity.Read})
	revoked := admit(identity.Grants{"*": identity.Read})
	require.NoError(t, r.store.Revoke(identity.Principal(identity.PinOfPrivate(revoked))))
	to := func(target string) *wire.Relay { return &wire.Relay{Version: wire.Version, Target: target} }
	for name, x := range map[string]struct {
		key  ed25519.PrivateKey
		m    wire.Message
		code wire.Code
	}{
		"a stranger":              {admit(nil), to(listed), wire.CodeTrust},
		"a stranger's invitation": {admit(nil), &wire.Relay{Version: wire.Version, Target: listed, Proof: make([]byte, 32)}, wire.CodeTrust},
		"revoked":                 {revoked, to(listed), wire.CodeTrust},
		"not for this server":     {some, to(listed), wire.CodeRight},
		"not on the list":         {all, to("127.0.0.1:2"), wire.CodeRight},
		"the same by a name":      {all, to(strings.Replace(listed, "127.0.0.1", "localhost", 1)), wire.CodeRight},
		"no server":               {all, to(""), wire.CodeRight},
		"mapped to IPv6":          {all, to(strings.Replace(listed, "127.0.0.1", "[::ffff:127.0.0.1]", 1)), wire.CodeRight},
		"mapped, in hexadecimal":  {all, to(strings.Replace(listed, "127.0.0.1", "[::ffff:7f00:1]", 1)), wire.CodeRight},
		"loopback of IPv6":        {all, to(strings.Replace(listed, "127.0.0.1", "[::1]", 1)), wire.CodeRight},
		"any address":             {all, to(strings.Replace(listed, "127.0.0.1", "0.0.0.0", 1)), wire.CodeRight},
		"any address of IPv6":     {all, to(strings.Replace(listed, "127.0.0.1", "[::]", 1)), wire.CodeRight},
		"in short":                {all, to(strings.Replace(listed, "127.0.0.1", "127.1", 1)), wire.CodeRight},
		"as a number":             {all, to(strings.Replace(listed, "127.0.0.1", "2130706433", 1)), wire.CodeRight},
		"in octal":                {all, to(strings.Replace(listed, "127.0.0.1", "0177.0.0.1", 1)), wire.CodeRight},
		"without a host":          {all, to(strings.TrimPrefix(listed, "127.0.0.1")), wire.CodeRight},
		"without a port":          {all, to("127.0.0.1"), wire.CodeRight},
		"another port with zeros": {all, to("127.0.0.1:01"), wire.CodeRight},
		"with a dot at the end":   {all, to(strings.Replace(listed, ":", ".:", 1)), wire.CodeRight},
		"with a NUL":              {all, to(listed + "\x00"), wire.CodeRight},
		"two servers":             {all, to(listed + ",127.0.0.1:2"), wire.CodeRight},
		"all servers":             {all, to("*"), wire.CodeRight},
		"the relay itself":        {all, to(r.Addr().String()), wire.CodeRight},
		"nobody listens":          {all, to("127.0.0.1:1"), wire.CodeBusy},
		"of another version":      {all, &wire.Relay{Version: wire.Version + 1}, wire.CodeVersion},
		"for a server":            {all, &wire.Hello{Version: wire.Version}, wire.CodeProtocol},
	} {
		_, answer, err := ask(t, r, x.key, transport.Config{}, x.m)
		require.NoError(t, err, name)
		require.IsType(t, &wire.Refuse{}, answer, name)
		require.Equal(t, x.code, answer.(*wire.Refuse).Code, name)
	}
	require.NoError(t, trap.(*net.TCPListener).SetDeadline(time.Now().Add(time.Millisecond)))
	_, err = trap.Accept()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "nobody came")
	require.Eventually(t, func() bool { return r.conns.Count() == 0 }, time.Minute, time.Millisecond)
	require.Empty(t, r.clients)
}

// names answers all questions for addresses of a name by this one, until the test ends.
func names(t *testing.T, addr netip.Addr) {
	t.Helper()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	old := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", udp.LocalAddr().String())
	}}
	served := make(chan struct{})
	t.Cleanup(func() { net.DefaultResolver = old; udp.Close(); <-served })
	go func() {
		defer close(served)
		for b := make([]byte, 1500); ; {
			n, from, err := udp.ReadFrom(b)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(b[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			m = dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true}, Questions: m.Questions}
			var body dnsmessage.ResourceBody
			switch {
			case q.Type == dnsmessage.TypeA && addr.Is4():
				body = &dnsmessage.AResource{A: addr.As4()}
			case q.Type == dnsmessage.TypeAAAA && addr.Is6():
				body = &dnsmessage.AAAAResource{AAAA: addr.As16()}
			}
			if body != nil {
				m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1}, Body: body}}
			}
			if packed, err := m.Pack(); err == nil {
				_, _ = udp.WriteTo(packed, from)
			}
		}
	}()
}

// TestRebinding: whoever answers for the name of a server leads it to the relay's own host. Nobody
// gets there.
func TestRebinding(t *testing.T) {
	trap, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	defer trap.Close()
	target := net.JoinHostPort("nas.example.org", strconv.Itoa(trap.Addr().(*net.TCPAddr).Port))
	log := new(tap)
	r, _ := start(t, Options{Targets: []string{target}, Log: slog.New(slog.NewTextHandler(log, nil))}, identity.Grants{"*": identity.Read})
	_, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	require.NoError(t, r.store.Admit(identity.Principal(identity.PinOfPrivate(key)), identity.Grants{"*": identity.Read}, ""))
	for _, addr := range []string{"127.0.0.1", "127.9.9.9", "0.0.0.0", "169.254.169.254", "::1", "::", "::ffff:127.0.0.1", "224.0.0.1"} {
		t.Run(addr, func(t *testing.T) {
			names(t, netip.MustParseAddr(addr))
			_, answer, err := ask(t, r, key, transport.Config{}, &wire.Relay{Version: wire.Version, Target: target})
			require.NoError(t, err)
			require.IsType(t, &wire.Refuse{}, answer)
			require.Equal(t, wire.CodeBusy, answer.(*wire.Refuse).Code)
			log.mu.Lock()
			defer log.mu.Unlock()
			require.Contains(t, log.seen.String(), "on the relay's own host or link")
			log.seen.Reset()
		})
	}
	require.NoError(t, trap.(*net.TCPListener).SetDeadline(time.Now().Add(time.Millisecond)))
	_, err = trap.Accept()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "nobody came")
}

// TestPermit: what is refused is loopback and the link behind a name, and nothing else.
func TestPermit(t *testing.T) {
	t.Parallel()
	for target, allowed := range map[string][]string{
		"nas:7433":         {"10.0.0.1", "192.168.1.1", "203.0.113.9", "2001:db8::1", "fd00::1", "fe80::1%eth0"},
		"localhost:7433":   {"127.0.0.1", "::1"},
		"127.0.0.1:7433":   {"127.0.0.1"},
		"[::1]:7433":       {"::1"},
		"169.254.0.9:7433": {"169.254.0.9"},
	} {
		for _, addr := range allowed {
			require.NoError(t, permit(target, netip.MustParseAddr(addr)), "%s at %s", target, addr)
		}
	}
	for _, addr := range []string{"127.0.0.1", "127.255.0.1", "0.0.0.0", "::", "::1", "::ffff:127.0.0.1", "169.254.169.254", "224.0.0.1", "ff02::1"} {
		require.Error(t, permit("nas:7433", netip.MustParseAddr(addr)), addr)
	}
}

// TestBounds: a client gets no more connections than it may have, a server that does not read holds
// the client up, and the end of a connection passes.
func TestBounds(t *testing.T) {
	far, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer far.Close()
	r, _ := start(t, Options{Targets: []string{far.Addr().String()}, MaxConnections: 16, MaxConnectionsPerClient: 2}, identity.Grants{"*": identity.Read})
	_, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	id := identity.Principal(identity.PinOfPrivate(key))
	require.NoError(t, r.store.Admit(id, identity.Grants{far.Addr().String(): identity.Read}, ""))
	m := &wire.Relay{Version: wire.Version, Target: far.Addr().String()}
	join := func() (near, at net.Conn) {
		c, answer, err := ask(t, r, key, transport.Config{}, m)
		require.NoError(t, err)
		require.IsType(t, &wire.Relayed{}, answer)
		near, err = transport.Detach(c)
		require.NoError(t, err)
		at, err = far.Accept()
		require.NoError(t, err)
		t.Cleanup(func() { at.Close() })
		return near, at
	}
	near, at := join()
	_, other := join()
	_, answer, err := ask(t, r, key, transport.Config{}, m)
	require.NoError(t, err)
	require.Equal(t, wire.CodeBusy, answer.(*wire.Refuse).Code)

	// It writes until nothing moves for a while: what is under way then is in sockets.
	const most = 256 << 20
	var sent int
	for piece := bytes.Repeat([]byte{7}, 1<<16); sent < most; {
		require.NoError(t, near.SetWriteDeadline(time.Now().Add(3*time.Second)))
		n, err := near.Write(piece)
		if sent += n; err != nil {
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			break
		}
	}
	require.Less(t, sent, most)
	require.NoError(t, near.(*net.TCPConn).CloseWrite())
	n, err := io.Copy(io.Discard, at)
	require.NoError(t, err)
	require.EqualValues(t, sent, n)
	_, err = at.Write([]byte("the other direction goes on"))
	require.NoError(t, err)
	require.NoError(t, at.Close())
	text, err := io.ReadAll(near)
	require.NoError(t, err)
	require.Equal(t, "the other direction goes on", string(text))

	require.NoError(t, r.store.Revoke(id)) // ends the other connection
	require.NoError(t, other.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err = other.Read(make([]byte, 1))
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Eventually(t, func() bool { return r.conns.Count() == 0 }, time.Minute, time.Millisecond)
}

// TestAnotherWay: when a relay ends in the middle of a transfer, it goes on by another one, from where
// it was.
func TestAnotherWay(t *testing.T) {
	dir, u := serve(t)
	opt := Options{Targets: []string{u.Address()}, ClientRateLimit: 200e6}
	grants := identity.Grants{u.Address(): identity.Read}
	_, second := start(t, opt, grants)
	opt.Home, opt.Listen = t.TempDir(), "127.0.0.1:0"
	r, err := New(opt)
	require.NoError(t, err)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Serve(ctx) }()
	first := session.URL{Host: "127.0.0.1", Port: r.Addr().(*net.TCPAddr).Port, Pin: identity.Pin(r.Pin())}
	first.Token, err = r.store.Invite(grants, 0, "")
	require.NoError(t, err)

	file := filepath.Join(t.TempDir(), "f")
	want := sessiontest.RandomFile(t, file, 24<<20)
	c, err := client.New(client.Options{Home: t.TempDir(), Via: []session.URL{first, second}})
	require.NoError(t, err)
	var once sync.Once
	report, err := c.Send(t.Context(), []string{file}, u, client.Transfer{Progress: func(p session.Progress) {
		if p.BytesDone > 0 {
			once.Do(end)
		}
	}})
	end()
	require.NoError(t, err)
	require.NoError(t, <-ended)
	require.Positive(t, report.Reconnects)
	got, err := os.ReadFile(filepath.Join(dir, "f"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))
}
