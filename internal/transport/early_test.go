package transport

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/transport/transporttest"
	"github.com/quic-go/quic-go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// earlySite is a server behind a proxy, of which a client has a ticket.
type earlySite struct {
	*quicListener
	identity ed25519.PrivateKey
	proxy    *transporttest.UDPProxy
	cfg      Config // of the client
	taken    chan Conn
	taking   sync.WaitGroup
}

func newEarlySite(t *testing.T) *earlySite {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	s := &earlySite{identity: testIdentity(t)}
	s.start(t, "127.0.0.1:0", s.identity)
	s.proxy = transporttest.NewUDPProxy(t, s.Addr().String())
	s.cfg = Config{Identity: testIdentity(t), Protocol: QUIC, Early: true, Tickets: t.TempDir()}
	s.warm(t, s.proxy.Addr())
	return s
}

// start listens, and takes what comes.
func (s *earlySite) start(t *testing.T, addr string, identity ed25519.PrivateKey) {
	t.Helper()
	l, err := listenQUIC(addr, Config{Identity: identity})
	require.NoError(t, err)
	s.quicListener, s.taken = l, make(chan Conn, 100)
	s.taking.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.taken <- c
		}
	})
	t.Cleanup(func() { s.end(l) })
}

func (s *earlySite) end(l *quicListener) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	l.Shutdown(gone)
	s.taking.Wait()
}

func (s *earlySite) warm(t *testing.T, addr string) {
	t.Helper()
	require.True(t, Warm(soon(t), addr, s.cfg))
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func (s *earlySite) dial(t *testing.T, cfg Config) *quicConn {
	t.Helper()
	if cfg.Group == nil {
		cfg.Group = s.group(t)
	}
	c, err := Dial(soon(t), s.proxy.Addr(), cfg, anyKey)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c.(*quicConn)
}

// group ends with the test, at once.
func (s *earlySite) group(t *testing.T) *Group {
	g := &Group{}
	t.Cleanup(func() { g.Close(0) })
	return g
}

// accepted is the next stream that the server gets.
func (s *earlySite) accepted(t *testing.T) Conn {
	t.Helper()
	select {
	case c := <-s.taken:
		require.NoError(t, c.Handshake(soon(t)))
		t.Cleanup(func() { _ = c.Close() })
		return c
	case <-soon(t).Done():
		t.Fatal("the server got nothing")
		return nil
	}
}

// gets reads all that comes on a stream of the server.
func gets(t *testing.T, c Conn, want []byte) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
	got, err := io.ReadAll(c)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got), "%d bytes instead of %d, or others", len(got), len(want))
}

func (s *earlySite) has0RTT(t *testing.T, clients int) {
	t.Helper()
	require.Eventually(t, func() bool { return s.proxy.Early() >= clients }, 20*time.Second, time.Millisecond)
}

func randomBytes(t *testing.T, n int) []byte {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)}).Read(b)
	return b
}

// TestEarly: what is written before the server has answered is there when the handshake is over, and not before.
func TestEarly(t *testing.T) {
	s := newEarlySite(t)
	s.proxy.Hold()
	c := s.dial(t, s.cfg)
	_, err := c.Write([]byte("first"))
	require.NoError(t, err)
	s.has0RTT(t, 1)
	require.Nil(t, c.PeerKey())
	_, err = c.Exporter("label", 32)
	require.Error(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Millisecond)))
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, c.SetReadDeadline(time.Time{}))
	require.Eventually(t, func() bool { return s.proxy.Held() > 0 }, 20*time.Second, time.Millisecond)
	select {
	case <-s.taken:
		t.Fatal("the server has used a stream before the handshake was over")
	default:
	}
	s.proxy.Release()
	require.NoError(t, c.Handshake(soon(t)))
	require.True(t, c.link.conn.ConnectionState().Used0RTT)
	require.EqualValues(t, s.identity.Public(), c.PeerKey())
	server := s.accepted(t)
	require.EqualValues(t, s.cfg.Identity.Public(), server.PeerKey())
	_, err = c.Write([]byte(" second"))
	require.NoError(t, err)
	require.NoError(t, c.CloseWrite())
	gets(t, server, []byte("first second"))
	ours, err := c.Exporter("label", 32)
	require.NoError(t, err)
	theirs, err := server.Exporter("label", 32)
	require.NoError(t, err)
	require.Equal(t, ours, theirs)
}

// TestEarlyBounds: a client sends no more than earlyMost, waits then, and can be told not to.
func TestEarlyBounds(t *testing.T) {
	s := newEarlySite(t)
	s.proxy.Hold()
	cfg := s.cfg
	cfg.Group = s.group(t) // both streams on one connection
	a, b := s.dial(t, cfg), s.dial(t, cfg)
	require.NoError(t, a.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
	n, err := a.Write(make([]byte, 1<<20))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.LessOrEqual(t, n, earlyMost)
	require.Positive(t, n)
	writing := make(chan error)
	go func() {
		_, err := b.Write(make([]byte, 1<<20))
		writing <- err
	}()
	require.NoError(t, b.Close())
	require.ErrorIs(t, <-writing, net.ErrClosed)
	_, err = b.Write([]byte{1})
	require.ErrorIs(t, err, net.ErrClosed)
	_, err = b.Read([]byte{1})
	require.ErrorIs(t, err, net.ErrClosed)
	s.proxy.Release()
}

// TestEarlyClosed: what was written before Close arrives, though that was before the handshake.
func TestEarlyClosed(t *testing.T) {
	s := newEarlySite(t)
	s.proxy.Hold()
	c := s.dial(t, s.cfg)
	_, err := c.Write([]byte("last words"))
	require.NoError(t, err)
	require.NoError(t, c.Close())
	s.proxy.Release()
	gets(t, s.accepted(t), []byte("last words"))
}

// TestEarlyRejected: where the server does not take 0-RTT, everything arrives all the same, once and in order.
func TestEarlyRejected(t *testing.T) {
	none := func(*testing.T, *earlySite) {}
	tests := map[string]struct {
		before, refused, after func(t *testing.T, s *earlySite)
	}{
		"restarted": {func(t *testing.T, s *earlySite) {
			s.end(s.quicListener)
			s.start(t, s.Addr().String(), s.identity)
		}, none, none},
		"crowded": { // it asks back, and promises less
			func(_ *testing.T, s *earlySite) { s.crowd(askBack, 0) }, none,
			func(_ *testing.T, s *earlySite) { s.crowd(-askBack, 0) },
		},
		"refused": { // and then tried again
			func(_ *testing.T, s *earlySite) { s.crowd(0, strangeLinksFrom) },
			func(_ *testing.T, s *earlySite) { s.crowd(0, -strangeLinksFrom) }, none,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newEarlySite(t)
			test.before(t, s)
			s.proxy.Hold()
			cfg := s.cfg
			cfg.Group = s.group(t)
			const streams = 3
			var conns []*quicConn
			for range streams {
				conns = append(conns, s.dial(t, cfg))
			}
			data := randomBytes(t, 3*earlyMost)
			var writing sync.WaitGroup
			for i, c := range conns {
				writing.Go(func() {
					_, err := c.Write([]byte{byte(i)})
					if err == nil {
						_, err = c.WriteBuffers(data[:100], data[100:])
					}
					if err == nil {
						err = c.CloseWrite()
					}
					if err != nil {
						t.Errorf("stream %d: %v", i, err)
					}
				})
			}
			s.has0RTT(t, 1)
			require.Eventually(t, func() bool { return s.proxy.Held() > 0 }, 20*time.Second, time.Millisecond)
			test.refused(t, s)
			s.proxy.Release()
			got := make(chan []byte, streams)
			for range streams {
				server := s.accepted(t)
				require.NoError(t, server.SetReadDeadline(time.Now().Add(20*time.Second)))
				go func() {
					b, _ := io.ReadAll(server)
					_ = server.Close()
					got <- b
				}()
			}
			seen := make(map[byte]bool)
			for range streams {
				b := <-got
				require.Len(t, b, 1+len(data))
				require.False(t, seen[b[0]])
				seen[b[0]] = true
				require.True(t, bytes.Equal(data, b[1:]))
			}
			writing.Wait()
			test.after(t, s)
			require.False(t, conns[0].link.conn.ConnectionState().Used0RTT)
			for _, c := range conns {
				require.NoError(t, c.Close())
			}
			cfg.Group.Close(20 * time.Second) // with all that was written
		})
	}
}

// crowd lets there be more strangers, and more of them from this address.
func (s *earlySite) crowd(all, from int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.strange += all
	s.from[netip.MustParseAddr("127.0.0.1")] += from
}

// TestEarlyElsewhere: if the first address of a server is dead, what was sent there goes to the next one.
func TestEarlyElsewhere(t *testing.T) {
	s := newEarlySite(t)
	_, port, err := net.SplitHostPort(s.Addr().String())
	require.NoError(t, err)
	at := net.JoinHostPort("localhost", port) // often ::1, then 127.0.0.1
	s.warm(t, at)
	cfg := s.cfg
	cfg.Group = s.group(t)
	c, err := Dial(soon(t), at, cfg, anyKey)
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write([]byte("here"))
	require.NoError(t, err)
	require.NoError(t, c.CloseWrite())
	gets(t, s.accepted(t), []byte("here"))
}

// TestReplay: a captured first flight does nothing, although it is all that it takes.
func TestReplay(t *testing.T) {
	s := newEarlySite(t)
	s.proxy.Hold()
	c := s.dial(t, s.cfg)
	_, err := c.Write([]byte("act!"))
	require.NoError(t, err)
	s.has0RTT(t, 1)
	s.proxy.Release()
	require.NoError(t, c.CloseWrite())
	gets(t, s.accepted(t), []byte("act!"))
	flights := s.proxy.Flights()
	require.Len(t, flights, 1)

	transporttest.Replay(t, flights, s.Addr().String())
	s.end(s.quicListener)
	require.Empty(t, s.taken, "the server has used a replayed stream")

	// A server that does not wait for the handshake takes it.
	hasty := s.other(t, s.identity, "127.0.0.1:0")
	transporttest.Replay(t, flights, hasty.Addr().String())
	conn, err := hasty.Accept(soon(t))
	require.NoError(t, err)
	stream, err := conn.AcceptStream(soon(t))
	require.NoError(t, err)
	got := make([]byte, 5)
	_, err = io.ReadFull(stream, got)
	require.NoError(t, err)
	require.Equal(t, "\x00act!", string(got))
	require.NoError(t, conn.CloseWithError(0, ""))
}

// other is a server that knows the tickets, but not how to use them.
func (s *earlySite) other(t *testing.T, identity ed25519.PrivateKey, addr string) *quic.EarlyListener {
	t.Helper()
	cert, err := certificate(identity)
	require.NoError(t, err)
	secure := tlsConfig(cert, anyKey)
	secure.SessionTicketsDisabled, secure.WrapSession, secure.UnwrapSession = false, s.seal.wrap, s.seal.unwrap
	conf := quicConfig()
	conf.Allow0RTT, conf.MaxIncomingStreams, conf.MaxIncomingUniStreams, conf.InitialConnectionReceiveWindow = true, maxLinkStreams, 1, roomyWindow
	conf.AllowConnectionWindowIncrease = nil
	at, err := net.ResolveUDPAddr("udp", addr)
	require.NoError(t, err)
	udp, err := net.ListenUDP("udp", at)
	require.NoError(t, err)
	tr := &quic.Transport{Conn: udp}
	t.Cleanup(func() { _ = tr.Close(); _ = udp.Close() })
	l, err := tr.ListenEarly(secure, conf)
	require.NoError(t, err)
	return l
}

// TestImpostor: who has the secret of a ticket, but not the server's key, is not believed.
func TestImpostor(t *testing.T) {
	s := newEarlySite(t)
	s.end(s.quicListener)
	mask := testIdentity(t)
	l := s.other(t, mask, s.Addr().String())
	s.proxy.Hold()
	c := s.dial(t, s.cfg)
	_, err := c.Write([]byte("act!"))
	require.NoError(t, err)
	s.proxy.Release()

	conn, err := l.Accept(soon(t))
	require.NoError(t, err)
	require.NoError(t, shaken(soon(t), conn))
	stream, err := conn.AcceptStream(soon(t))
	require.NoError(t, err)
	_, err = stream.Write([]byte("lies"))
	require.NoError(t, err)
	x := &link{}
	x.settle(conn, nil)
	require.True(t, x.tls.DidResume)
	_, err = c.Write([]byte("more")) // sent, as in 0-RTT
	require.NoError(t, err)
	_, err = x.show(mask, serverSigns)
	require.NoError(t, err)

	_, err = c.Read(make([]byte, 10))
	require.ErrorIs(t, err, ErrImpostor)
	require.ErrorIs(t, c.Handshake(soon(t)), ErrImpostor)
	require.Nil(t, c.PeerKey())
}

// TestTicketOfAnother: a ticket is of no use without the key of its owner.
func TestTicketOfAnother(t *testing.T) {
	s := newEarlySite(t)
	thief := s.cfg
	thief.Identity, thief.Tickets = testIdentity(t), t.TempDir()
	from := newTicketBox("x", s.proxy.Addr(), s.cfg.Identity.Public().(ed25519.PublicKey)).path
	to := newTicketBox("x", s.proxy.Addr(), thief.Identity.Public().(ed25519.PublicKey)).path
	stolen, err := os.ReadFile(filepath.Join(s.cfg.Tickets, filepath.Base(from)))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(thief.Tickets, filepath.Base(to)), stolen, 0o600))

	s.proxy.Hold()
	c := s.dial(t, thief)
	_, err = c.Write([]byte("act!"))
	require.NoError(t, err)
	s.proxy.Release()
	_ = c.Handshake(soon(t)) // the server's signature may come before its refusal
	require.True(t, c.link.tls.DidResume, "the ticket was not taken at all")
	require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	s.end(s.quicListener)
	require.Empty(t, s.taken)
}

// TestTicketOfChangedServer: a ticket of a server with another key than the expected one is not used, and a server that has another key now gets
// nothing that it can read.
func TestTicketOfChangedServer(t *testing.T) {
	s := newEarlySite(t)
	errChanged := errors.New("another key")
	old := s.identity.Public().(ed25519.PublicKey)
	_, err := Dial(soon(t), s.proxy.Addr(), s.cfg, func(key ed25519.PublicKey) error {
		if key.Equal(old) {
			return errChanged
		}
		return nil
	})
	require.ErrorIs(t, err, errChanged)
	require.Zero(t, s.proxy.Early())

	s.warm(t, s.proxy.Addr())
	s.end(s.quicListener)
	s.start(t, s.Addr().String(), testIdentity(t))
	cfg := s.cfg
	cfg.Group = s.group(t)
	s.proxy.Hold()
	c, err := Dial(soon(t), s.proxy.Addr(), cfg, func(key ed25519.PublicKey) error {
		if !key.Equal(old) {
			return fmt.Errorf("pinned: %w", errChanged)
		}
		return nil
	})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write([]byte("secret"))
	require.NoError(t, err)
	s.proxy.Release()
	require.ErrorIs(t, c.Handshake(soon(t)), errChanged)
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, errChanged)
	_, err = c.Write(make([]byte, earlyMost))
	require.ErrorIs(t, err, errChanged)
	s.end(s.quicListener)
	require.Empty(t, s.taken)
}
