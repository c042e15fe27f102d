package client

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"io"
	"os"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/server"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

// rawPeer is a client that speaks the protocol by hand, on its control stream alone.
type rawPeer struct {
	t    testing.TB
	conn transport.Conn
	r    *wire.Reader
	got  bytes.Buffer // all that the server sent
}

func keyOfHome(t testing.TB, home string) ed25519.PrivateKey {
	t.Helper()
	st, err := identity.OpenStore(home)
	require.NoError(t, err)
	k, err := st.Key()
	require.NoError(t, err)
	return k
}

// rawDial says hello to the server of s. The caller closes the peer.
func rawDial(t testing.TB, s *site, key ed25519.PrivateKey, h wire.Hello) *rawPeer {
	t.Helper()
	conn, err := transport.Dial(context.Background(), s.Addr().String(), transport.Config{Identity: key}, func(ed25519.PublicKey) error { return nil })
	require.NoError(t, err)
	h.Version, h.Agent, h.MaxStreams = wire.Version, "hand", 4
	_, _ = rand.Read(h.Session[:])
	_, _ = rand.Read(h.Secret[:])
	p := &rawPeer{t: t, conn: conn}
	p.r = wire.NewReader(io.TeeReader(conn, &p.got), wire.MaxMessage)
	require.NoError(t, conn.SetDeadline(time.Now().Add(2*time.Minute)))
	p.send(&h)
	return p
}

func (p *rawPeer) close() { _ = p.conn.Close() }

// send ignores errors: the server's answer shows whether it took the messages.
func (p *rawPeer) send(ms ...wire.Message) {
	for _, m := range ms {
		_, _ = p.conn.Write(wire.Append(nil, m))
	}
}

// until reads messages until visit is satisfied or the server has ended. It returns why the server
// refused, nil if it did not.
func (p *rawPeer) until(visit func(wire.Message) bool) (refused *wire.Error) {
	for {
		m, err := p.r.Next()
		if err != nil {
			require.NotErrorIs(p.t, err, os.ErrDeadlineExceeded, "the server neither answers nor ends")
			return refused
		}
		if r, ok := m.(*wire.Refuse); ok {
			return &wire.Error{Code: r.Code, Text: r.Text}
		}
		if visit(m) {
			return nil
		}
	}
}

// finished reports the end of a transfer.
func finished(m wire.Message) bool {
	_, ok := m.(*wire.Finished)
	return ok
}

// enrol has the server admit a new client, and returns its home.
func enrol(t testing.TB, s *site) (home string) {
	t.Helper()
	home = t.TempDir()
	text, err := s.Invite(server.InviteOptions{Host: "127.0.0.1"})
	require.NoError(t, err)
	u, err := session.ParseURL(text)
	require.NoError(t, err)
	u.Share = ""
	c, err := New(Options{Home: home})
	require.NoError(t, err)
	_, err = c.List(context.Background(), u)
	require.NoError(t, err)
	return home
}
