package client

import (
	"context"
	"crypto/ed25519"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/server"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/session/sessiontest"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

// TestConfirm: the user may take longer than any transport may take to connect, is asked once, and
// both transports are offered.
func TestConfirm(t *testing.T) {
	t.Parallel()
	source := filepath.Join(t.TempDir(), "f")
	sessiontest.RandomFile(t, source, 1<<10)
	for name, call := range map[string]func(*testing.T, *Client, session.URL) error{
		"list": func(t *testing.T, c *Client, u session.URL) error {
			_, err := c.List(t.Context(), u)
			return err
		},
		"send": func(t *testing.T, c *Client, u session.URL) error {
			_, err := c.Send(t.Context(), []string{source}, u, Transfer{})
			return err
		},
		"probe": func(t *testing.T, c *Client, u session.URL) error {
			_, err := c.Probe(t.Context(), u, ProbeOptions{Time: minProbeTime})
			return err
		},
	} {
		for transport, first := range map[string]int{"tcp": tcpChosen, "quic": quicChosen} {
			t.Run(name+" "+transport, func(t *testing.T) {
				t.Parallel()
				s := serve(t, identity.Read|identity.Write)
				defer s.stop()
				u := s.invited(t)
				u.Pin = ""
				var asked atomic.Int32
				// A busy server may seem to be dead: the transfer goes on then, and asks no more.
				c := newClient(t, t.TempDir(), Options{RetryFor: time.Minute, Confirm: func(ctx context.Context, _, _ string, _ []string) (bool, error) {
					asked.Add(1)
					_, limited := ctx.Deadline()
					return !limited && session.Sleep(ctx, 3*otherWithin), ctx.Err()
				}})
				c.learn(u.Address()+chosen, first)
				require.NoError(t, call(t, c, u))
				require.EqualValues(t, 1, asked.Load())
			})
		}
	}
}

// TestKey: a client that is given a key proves that one, and not the one of its home.
func TestKey(t *testing.T) {
	t.Parallel()
	_, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	home := t.TempDir()
	for admitted, want := range map[identity.Pin]session.Kind{
		identity.PinOfPrivate(key):                session.KindOther,
		identity.PinOfPrivate(keyOfHome(t, home)): session.KindTrust,
	} {
		s := serveWith(t, server.Options{Clients: []server.Admission{{Key: string(admitted), Rights: identity.Grants{"data": identity.Read}}}}, identity.Read)
		_, err := newClient(t, home, Options{Key: key, Pin: s.Pin(), Forget: true}).List(t.Context(), s.plain(t, ""))
		require.Equal(t, want, session.KindOf(err), err)
		require.Equal(t, want == session.KindOther, err == nil, err)
		s.stop()
	}
	_, err = New(Options{Home: home, Key: key[:3]})
	require.Equal(t, session.KindUsage, session.KindOf(err))
}

// TestPinStays: a command that used an invitation up, but failed, leaves a client that knows the server
// and is known to it.
func TestPinStays(t *testing.T) {
	t.Parallel()
	source := filepath.Join(t.TempDir(), "f")
	sessiontest.RandomFile(t, source, 1<<10)
	for name, call := range map[string]func(*Client, session.URL) error{
		"list": func(c *Client, u session.URL) error {
			_, err := c.List(t.Context(), u)
			return err
		},
		"send": func(c *Client, u session.URL) error {
			_, err := c.Send(t.Context(), []string{source}, u, Transfer{})
			return err
		},
		"get": func(c *Client, u session.URL) error {
			_, err := c.Get(t.Context(), urls(u), t.TempDir(), Transfer{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, identity.Read)
			defer s.stop()
			u, home := s.invited(t), t.TempDir()
			u.Path = "none"
			require.Error(t, call(newClient(t, home, Options{}), u))
			_, err := newClient(t, home, Options{}).List(t.Context(), s.plain(t, ""))
			require.NoError(t, err)
		})
	}
}

// TestPinBeforeHello: a client that dies after it has sent an invitation's proof has stored the pin
// before. The server here ends without an answer instead.
func TestPinBeforeHello(t *testing.T) {
	t.Parallel()
	home, key := t.TempDir(), keyOfHome(t, t.TempDir())
	l, err := transport.Listen("127.0.0.1:0", transport.Config{Identity: key})
	require.NoError(t, err)
	defer l.Close()
	pin := identity.PinOfPrivate(key)
	u, err := session.ParseURL("fxfer://" + l.Addr().String() + "/data")
	require.NoError(t, err)
	u.Pin, u.Token = pin, "TOKEN"
	known := make(chan identity.Pin, 1)
	go func() {
		defer close(known)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		if conn.Handshake(t.Context()) != nil {
			return
		}
		if _, err := wire.NewReader(conn, wire.MaxFirstMessage).Next(); err != nil {
			return
		}
		store, err := identity.OpenStore(home)
		if err != nil {
			return
		}
		stored, _, _ := store.KnownServer(u.Address())
		known <- stored
	}()
	_, err = newClient(t, home, Options{Transport: session.TransportTCP}).List(t.Context(), u)
	require.Error(t, err)
	require.Equal(t, pin, <-known)
}
