package server

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/client"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/session/sessiontest"
	"github.com/stretchr/testify/require"
)

const kbit = 1000

// pin returns the pin of a client whose home folder is home.
func pin(t *testing.T, home string) string {
	t.Helper()
	_, key, err := session.OpenIdentity(home)
	require.NoError(t, err)
	return string(identity.PinOf(key.Public().(ed25519.PublicKey)))
}

// admitting runs a server that admits one client by its options.
func admitting(t *testing.T, home string, opt Options) (*site, Options) {
	t.Helper()
	opt.Clients = []Admission{{Key: pin(t, home), Name: "one", Rights: map[string]identity.Rights{"data": identity.Read | identity.Write}}}
	s := serveWith(t, opt, identity.Read|identity.Write)
	now := s.opt
	return s, now
}

// TestReload changes the rate of a running session, and what the next one may do.
func TestReload(t *testing.T) {
	t.Parallel()
	for _, push := range []bool{true, false} {
		t.Run(fmt.Sprintf("push=%t", push), func(t *testing.T) {
			t.Parallel()
			home, dir := t.TempDir(), t.TempDir()
			s, opt := admitting(t, home, Options{RateLimit: 8 * kbit}) // it would take hours
			defer s.stop()
			from, to := dir, s.dir
			if !push {
				from, to = s.dir, dir
			}
			data := sessiontest.RandomFile(t, filepath.Join(from, "big"), 8<<20)
			began := make(chan struct{})
			var once sync.Once
			c := newClient(t, home, client.Options{Pin: s.Pin()})
			call := client.Transfer{Progress: func(p session.Progress) {
				if p.BytesDone > 0 || p.Elapsed > 3*time.Second {
					once.Do(func() { close(began) })
				}
			}}
			u := s.plain(t, "")
			done := make(chan error, 1)
			go func() {
				var err error
				if push {
					_, err = c.Send(t.Context(), []string{filepath.Join(dir, "big")}, u, call)
				} else {
					u.Path = "big"
					_, err = c.Get(t.Context(), []session.URL{u}, dir+"/", call)
				}
				done <- err
			}()
			<-began
			select {
			case err := <-done:
				t.Fatal("the limit held nothing back: ", err)
			default:
			}
			bad := opt
			bad.RateLimit, bad.Shares = 0, []Share{{Name: "data", Dir: s.dir, Rights: identity.Read}, {Name: "other", Dir: filepath.Join(s.dir, "none"), Rights: identity.Read}}
			require.ErrorContains(t, s.Reload(bad), "other")
			require.Equal(t, int64(8*kbit), s.total.in.Rate())
			opt.RateLimit = 0
			opt.Shares = []Share{{Name: "new", Dir: s.dir, Rights: identity.Read}} // a running session keeps its share
			require.NoError(t, s.Reload(opt))
			select {
			case err := <-done:
				require.NoError(t, err)
			case <-time.After(time.Minute):
				t.Fatal("the limit has not gone")
			}
			got, err := os.ReadFile(filepath.Join(to, "big"))
			require.NoError(t, err)
			require.True(t, bytes.Equal(data, got))
			u.Share = "data"
			_, err = c.List(t.Context(), u)
			require.ErrorContains(t, err, `there is no share "data"`)
		})
	}
}

// held starts a session that goes on until it is ended.
func held(t *testing.T, c *client.Client, s *site, u session.URL) (ended chan error) {
	t.Helper()
	r, w := io.Pipe()
	t.Cleanup(func() { _ = w.Close() })
	ended = make(chan error, 1)
	go func() {
		_, err := c.SendStream(t.Context(), r, u, client.Transfer{})
		_ = r.CloseWithError(err)
		ended <- err
	}()
	_, err := w.Write(make([]byte, 4<<20)) // more than is read ahead: the session runs
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.sessionsOpen() == 1 && len(s.Status().Transfers) == 1 }, 20*time.Second, time.Millisecond)
	return ended
}

// TestRevoked ends the running session of a client that is revoked, whether the options or an
// invitation admitted it, and of a client that loses a right.
func TestRevoked(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	s, opt := admitting(t, home, Options{})
	defer s.stop()
	c := newClient(t, home, client.Options{Pin: s.Pin(), RetryFor: time.Hour})
	expect := func(ended chan error, text string) {
		t.Helper()
		select {
		case err := <-ended:
			require.ErrorContains(t, err, text)
			require.Equal(t, session.KindTrust, session.KindOf(err))
		case <-time.After(30 * time.Second):
			t.Fatal("the session goes on")
		}
		require.Eventually(t, func() bool { return s.sessionsOpen() == 0 }, 20*time.Second, time.Millisecond)
	}
	ended := held(t, c, s, s.plain(t, "stream"))
	readOnly := opt
	readOnly.Clients = []Admission{{Key: pin(t, home), Rights: map[string]identity.Rights{"data": identity.Read}}}
	require.NoError(t, s.Reload(readOnly))
	expect(ended, "lost its right on share")

	require.NoError(t, s.Reload(opt))
	ended = held(t, c, s, s.plain(t, "stream"))
	require.NoError(t, s.store.Revoke(identity.Principal(pin(t, home))))
	expect(ended, "has been revoked")
	_, err := c.List(t.Context(), s.plain(t, ""))
	require.Equal(t, session.KindTrust, session.KindOf(err))

	_, err = c.List(t.Context(), s.invited(t))
	require.Equal(t, session.KindTrust, session.KindOf(err), "an invitation does not undo that")
	require.NoError(t, s.store.Admit(identity.Principal(pin(t, home)), identity.Grants{"data": identity.Read | identity.Write}, ""))
	ended = held(t, c, s, s.plain(t, "stream"))
	opt.Clients = nil
	require.NoError(t, s.Reload(opt)) // it has its rights from authorized_clients
	require.NoError(t, s.store.Revoke(identity.Principal(pin(t, home))))
	expect(ended, "has been revoked")
}

// TestRefusals: each missing right has its own error.
func TestRefusals(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	s, opt := admitting(t, home, Options{})
	defer s.stop()
	c := newClient(t, home, client.Options{Pin: s.Pin()})
	elsewhere := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")}
	here := append([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, elsewhere...)
	for _, x := range []struct {
		text   string
		change func(*Options)
	}{
		{"", func(o *Options) { o.Allow, o.Clients[0].Allow, o.Shares[0].Allow = here, here, here }},
		{"the address 127.0.0.1 may not use this server", func(o *Options) { o.Allow = elsewhere }},
		{"the address 127.0.0.1 may not be used with this client's key", func(o *Options) { o.Clients[0].Allow = elsewhere }},
		{`the address 127.0.0.1 may not use share "data"`, func(o *Options) { o.Shares[0].Allow = elsewhere }},
		{`share "data" may not be listed`, func(o *Options) { o.Shares[0].Rights = identity.Write }},
		{`there is no share "data" for this client`, func(o *Options) { o.Clients[0].Rights = map[string]identity.Rights{"other": identity.Read} }},
		{"", func(o *Options) { o.Clients[0].Rights = map[string]identity.Rights{"*": identity.List} }},
	} {
		now := opt
		now.Shares, now.Clients = []Share{opt.Shares[0]}, []Admission{opt.Clients[0]}
		x.change(&now)
		require.NoError(t, s.Reload(now))
		_, err := c.List(t.Context(), s.plain(t, ""))
		if x.text == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, x.text)
		require.Equal(t, session.KindTrust, session.KindOf(err))
	}
	_, err := c.Get(t.Context(), []session.URL{s.plain(t, "x")}, t.TempDir(), client.Transfer{})
	require.ErrorContains(t, err, `share "data" may not be read`)

	opt.Clients[0].MaxSessions = 1
	require.NoError(t, s.Reload(opt))
	ended := held(t, c, s, s.plain(t, "stream"))
	_, err = c.List(t.Context(), s.plain(t, ""))
	require.ErrorContains(t, err, "this client has 1 sessions on the server, which is its limit")
	require.Equal(t, session.KindUnreachable, session.KindOf(err))
	require.NoError(t, s.store.Revoke(identity.Principal(pin(t, home))))
	require.Error(t, <-ended)
}

// TestShareFolderReplaced removes the folder of a share: sessions are refused until there is a folder
// at its path again. No restart is needed.
func TestShareFolderReplaced(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Read|identity.Write)
	defer s.stop()
	c := newClient(t, t.TempDir(), client.Options{})
	dir := t.TempDir()
	want := sessiontest.RandomFile(t, filepath.Join(dir, "f"), 100_000)
	send := func(u session.URL) error {
		_, err := c.Send(t.Context(), []string{filepath.Join(dir, "f")}, u, client.Transfer{})
		return err
	}
	require.NoError(t, send(s.invited(t)))
	require.NoError(t, os.RemoveAll(s.dir))
	err := send(s.plain(t, ""))
	require.Equal(t, session.KindRemoteDisk, session.KindOf(err), "%v", err)
	require.ErrorContains(t, err, "is not there")
	for range 2 {
		require.NoError(t, os.RemoveAll(s.dir))
		require.NoError(t, os.Mkdir(s.dir, 0o755))
		require.NoError(t, send(s.plain(t, "")))
		got, err := os.ReadFile(filepath.Join(s.dir, "f"))
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got))
		list, err := c.List(t.Context(), s.plain(t, ""))
		require.NoError(t, err)
		require.Len(t, list, 1)
	}
}

// TestPartialAge: abandoned partial files go after 14 days, unless the options say otherwise, and
// only where clients may write.
func TestPartialAge(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		age    time.Duration
		rights identity.Rights
		left   []string // by their age in days
	}{
		"default":   {0, identity.Write, []string{"13"}},
		"a week":    {7 * day, identity.Append, nil},
		"never":     {-1, identity.Write, []string{"13", "15"}},
		"read only": {0, identity.Read, []string{"13", "15"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := New(Options{
				Home: t.TempDir(), Listen: "127.0.0.1:0", PartialAge: c.age,
				Shares: []Share{{Name: "data", Dir: t.TempDir(), Rights: c.rights}},
			})
			require.NoError(t, err)
			dir := s.live.Load().shares["data"].Dir
			partial := func(days string) string {
				return filepath.Join(dir, ".fxfer-"+strings.Repeat("0", 30)+days+".part")
			}
			for days, age := range map[string]time.Duration{"13": 13 * day, "15": 15 * day} {
				require.NoError(t, os.WriteFile(partial(days), nil, 0o600))
				then := time.Now().Add(-age)
				require.NoError(t, os.Chtimes(partial(days), then, then))
			}
			s.sweepPartials(t.Context(), s.live.Load())
			var left []string
			for _, days := range []string{"13", "15"} {
				if _, err := os.Stat(partial(days)); err == nil {
					left = append(left, days)
				}
			}
			require.Equal(t, c.left, left)
			ctx, stop := context.WithCancel(t.Context())
			stop()
			require.NoError(t, s.Serve(ctx)) // closes what New opened
		})
	}
}
