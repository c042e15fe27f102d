package client

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// afterWrite is a control stream of which nothing is read before a write has failed.
type afterWrite struct {
	transport.Conn
	failed chan struct{}
}

func (c afterWrite) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		close(c.failed) // the second time would panic: after the first nobody writes
	}
	return n, err
}

func (c afterWrite) Read(p []byte) (int, error) {
	<-c.failed
	return c.Conn.Read(p)
}

// refuser answers every Hello with a refusal, and closes the connection at once. Linux lets the
// client read what arrived before the reset; other systems may not.
func refuser(t *testing.T, over session.Transport, code wire.Code) session.URL {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	l, err := transport.Listen("127.0.0.1:0", transport.Config{Identity: key, Protocol: session.ProtocolOf(over)})
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { // one that says nothing holds up nobody
				if conn.Handshake(t.Context()) == nil {
					_, _ = wire.NewReader(conn, wire.MaxFirstMessage).Next()
					_, _ = conn.Write(wire.Append(nil, &wire.Refuse{Code: code, Text: "no"}))
					_ = conn.CloseWrite()
				}
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); serving.Wait() })
	u, err := session.ParseURL("fxfer://" + l.Addr().String() + "/data")
	require.NoError(t, err)
	return u
}

// TestRefusedWhileWriting: a client whose write fails because it is refused reports the refusal, not
// the broken connection.
func TestRefusedWhileWriting(t *testing.T) {
	t.Parallel()
	for _, over := range []session.Transport{session.TransportTCP, session.TransportQUIC} {
		c := newClient(t, t.TempDir(), Options{Transport: over,
			Confirm: func(context.Context, string, string, []string) (bool, error) { return true, nil }})
		u := refuser(t, over, wire.CodeTrust)
		begin := func() *exchange { // its writes fail
			x, err := c.begin(t.Context(), u, wire.Hello{Intent: wire.List, Share: u.Share})
			require.NoError(t, err)
			require.NoError(t, x.conn.SetWriteDeadline(time.Now().Add(10*time.Second)))
			for err == nil {
				_, err = x.conn.Write(make([]byte, 1<<10))
			}
			return x
		}
		x := begin()
		x.send(&wire.Ping{})
		_, err := x.next()
		require.Equal(t, session.KindTrust, session.KindOf(err), "exchange over %s: %v", over, err)
		x.close()

		x = begin()
		control := afterWrite{x.conn, make(chan struct{})}
		engine := session.NewSender(control, wire.NewReader(control, wire.MaxMessage), &transfer.TreeSource{},
			transfer.SenderOptions{Speculate: true, Clock: transfer.NewClock()})
		err = engine.Run(t.Context())
		require.Equal(t, session.KindTrust, session.KindOf(err), "transfer over %s: %v", over, err)
		x.close()
	}
}

// TestSendEarlyToOlderServer: a server that does not know the intent says so.
func TestSendEarlyToOlderServer(t *testing.T) {
	t.Parallel()
	c := newClient(t, t.TempDir(), Options{
		Confirm: func(context.Context, string, string, []string) (bool, error) { return true, nil },
	})
	err := c.SendEarly(t.Context(), t.TempDir(), refuser(t, session.TransportTCP, wire.CodeProtocol), Early{
		Next:   func(ctx context.Context) (string, int64, bool) { <-ctx.Done(); return "", 0, false },
		Result: func(string, int64, error) {},
	})
	require.ErrorIs(t, err, ErrNoEarly)
}

// TestSendRangeToOlderServer: a server that does not know the intent says so.
func TestSendRangeToOlderServer(t *testing.T) {
	t.Parallel()
	c := newClient(t, t.TempDir(), Options{
		Confirm: func(context.Context, string, string, []string) (bool, error) { return true, nil },
	})
	dir, _ := ranged(t)
	_, err := c.SendRange(t.Context(), dir, rangesOf(t, dir)[0], refuser(t, session.TransportTCP, wire.CodeProtocol), Transfer{})
	require.ErrorIs(t, err, ErrNoRange)
}

// TestCopyWithOlderServers: neither a server that is asked for a copy nor one that gets it takes the
// session for another one, if it does not know the intent.
func TestCopyWithOlderServers(t *testing.T) {
	t.Parallel()
	yes := func(context.Context, string, string, []string) (bool, error) { return true, nil }
	c := newClient(t, t.TempDir(), Options{Confirm: yes})
	old := refuser(t, session.TransportTCP, wire.CodeProtocol)
	target := old
	target.Pin = identity.PinOfPrivate(keyOfHome(t, t.TempDir()))
	_, err := c.Copy(t.Context(), old, target, CopyOptions{})
	require.ErrorIs(t, err, ErrNoCopies)

	s := serve(t, identity.Read)
	defer s.stop()
	source, err := s.OpenCopy(t.Context(), session.Copy{User: string(identity.PinOfPrivate(keyOfHome(t, enrol(t, s)))), Share: "data"})
	require.NoError(t, err)
	defer source.Close(nil)
	_, err = c.SendFrom(t.Context(), source, nil, old, Transfer{})
	require.Equal(t, session.KindUsage, session.KindOf(err), "whose key is named by nobody")
	pin, known, err := c.store.KnownServer(old.Address())
	require.NoError(t, err)
	require.True(t, known)
	c = newClient(t, t.TempDir(), Options{Pin: string(pin), Forget: true})
	_, err = c.SendFrom(t.Context(), source, nil, old, Transfer{})
	require.ErrorIs(t, err, ErrNoCopies)
}
