// Package transporttest tests the contract that every transport has to keep.
package transporttest

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// patience is how long anything in the suite may take before it counts as stuck.
const patience = time.Minute

// Conn is a stream of any transport.
type Conn interface {
	net.Conn
	Abort() error
	CloseWrite() error
	ReadRest(p []byte) (int, error)
	WriteBuffers(header, payload []byte) (int, error)
	PeerKey() ed25519.PublicKey
	Exporter(label string, length int) ([]byte, error)
	Handshake(ctx context.Context) error
	Admit()
}

// Listener is a listener of any transport. Accept returns before the handshake.
type Listener interface {
	Accept() (Conn, error)
	Addr() net.Addr
	Close() error
}

// Factory makes ends of one transport. Network is the network of package net for bare connections
// to it. It is empty if there are none: then Accept returns streams whose connection has had its
// handshake.
type Factory struct {
	Network string
	Listen  func(identity ed25519.PrivateKey) (Listener, error)
	Dial    func(ctx context.Context, addr string, identity ed25519.PrivateKey, expect func(ed25519.PublicKey) error) (Conn, error)
}

// Run tests a transport.
func Run(t *testing.T, f Factory) {
	tests := []struct {
		name string
		run  func(*testing.T, Factory)
	}{
		{"Echo", testEcho},
		{"LargeTransfer", testLarge},
		{"BothDirections", testBoth},
		{"WriteBuffers", testWriteBuffers},
		{"ReadRest", testReadRest},
		{"Deadlines", testDeadlines},
		{"CloseUnblocks", testCloseUnblocks},
		{"CloseTwice", testCloseTwice},
		{"Abort", testAbort},
		{"HalfClose", testHalfClose},
		{"UseAfterClose", testUseAfterClose},
		{"Identity", testIdentity},
		{"Exporter", testExporter},
		{"Truncated", testTruncated},
		{"Altered", testAltered},
		{"WrongKey", testWrongKey},
		{"BeforeHandshake", testBeforeHandshake},
		{"SlowPeerBlocksNobody", testSlowPeer},
		{"HandshakeFlood", testFlood},
		{"HandshakeDeadline", testHandshakeDeadline},
		{"DialCanceled", testDialCanceled},
		{"ListenerClose", testListenerClose},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			// Registered first, so it looks after everything else was cleaned up.
			t.Cleanup(func() { goleak.VerifyNone(t) })
			test.run(t, f)
		})
	}
}

// NewKey makes an identity.
func NewKey(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	return key
}

func public(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }

// AnyKey accepts every server.
func AnyKey(ed25519.PublicKey) error { return nil }

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func listen(t *testing.T, f Factory, key ed25519.PrivateKey) Listener {
	t.Helper()
	l, err := f.Listen(key)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// proxy stands between the ends of a stream and changes what the client sends.
type proxy struct {
	l        net.Listener
	to       string
	network  string
	finished chan struct{}
}

// newProxy forwards what a client sends, piece by piece, after change has rewritten the piece. If
// change returns false, the stream ends there.
func newProxy(t *testing.T, f Factory, to string, change func(piece []byte) bool) *proxy {
	t.Helper()
	if f.Network == "" {
		t.Skip("this transport has no bare connections")
	}
	l, err := net.Listen(f.Network, "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{l: l, to: to, network: f.Network, finished: make(chan struct{})}
	go p.serve(change)
	t.Cleanup(func() {
		l.Close()
		<-p.finished
	})
	return p
}

func (p *proxy) serve(change func([]byte) bool) {
	defer close(p.finished)
	client, err := p.l.Accept()
	if err != nil {
		return
	}
	defer client.Close()
	server, err := net.Dial(p.network, p.to)
	if err != nil {
		return
	}
	back := make(chan struct{})
	go func() {
		defer close(back)
		_, _ = io.Copy(client, server)
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := client.Read(buf)
		if err != nil || !change(buf[:n]) {
			break
		}
		if _, err := server.Write(buf[:n]); err != nil {
			break
		}
	}
	server.Close()
	<-back
}

// pair returns two admitted ends of one stream that are closed at the end of the test.
func pair(t *testing.T, f Factory) (client, server Conn) {
	t.Helper()
	l := listen(t, f, NewKey(t))
	return pairAt(t, f, l, l.Addr().String())
}

// pairAt is pair for a client that dials addr.
func pairAt(t *testing.T, f Factory, l Listener, addr string) (client, server Conn) {
	t.Helper()
	type accepted struct {
		conn Conn
		err  error
	}
	got := make(chan accepted, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			err = c.Handshake(within(t))
		}
		got <- accepted{c, err}
	}()
	client, err := f.Dial(within(t), addr, NewKey(t), AnyKey)
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	s := <-got
	require.NoError(t, s.err)
	t.Cleanup(func() { s.conn.Close() })
	s.conn.Admit()
	for _, c := range []Conn{client, s.conn} {
		require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	}
	return client, s.conn
}

// run calls each function in a goroutine of its own and waits for all of them.
func run(t *testing.T, fs ...func() error) {
	t.Helper()
	errs := make(chan error, len(fs))
	for _, f := range fs {
		go func() { errs <- f() }()
	}
	for range fs {
		require.NoError(t, <-errs)
	}
}

func testEcho(t *testing.T, f Factory) {
	client, server := pair(t, f)
	message := []byte("hello over there")
	run(t,
		func() error {
			buf := make([]byte, len(message))
			if _, err := io.ReadFull(server, buf); err != nil {
				return err
			}
			_, err := server.Write(buf)
			return err
		},
		func() error {
			if n, err := client.Write(message); err != nil || n != len(message) {
				return fmt.Errorf("wrote %d: %w", n, err)
			}
			buf := make([]byte, len(message))
			if _, err := io.ReadFull(client, buf); err != nil {
				return err
			}
			if !bytes.Equal(message, buf) {
				return fmt.Errorf("got %q", buf)
			}
			return nil
		})
}

// noise writes total random bytes made from seed, in writes of random sizes, some of them in two
// pieces.
func noise(c Conn, seed uint64, total int) error {
	data := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	sizes := rand.New(rand.NewPCG(seed, 1))
	buf := make([]byte, 300_000)
	for total > 0 {
		p := buf[:min(total, size(sizes, len(buf)))]
		_, _ = data.Read(p) // never fails
		cut := sizes.IntN(len(p) + 1)
		sum := bytes.Clone(p)
		n, err := c.WriteBuffers(p[:cut], p[cut:])
		if err != nil || n != len(p) {
			return fmt.Errorf("wrote %d of %d: %w", n, len(p), err)
		}
		if !bytes.Equal(sum, p) {
			return errors.New("the argument was changed")
		}
		total -= len(p)
	}
	return c.CloseWrite()
}

// listenTo reads what noise writes, in reads of random sizes, up to io.EOF.
func listenTo(c Conn, seed uint64, total int) error {
	data := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	sizes := rand.New(rand.NewPCG(seed, 2))
	buf, want := make([]byte, 300_000), make([]byte, 300_000)
	got := 0
	for {
		n, err := c.Read(buf[:size(sizes, len(buf))])
		_, _ = data.Read(want[:n]) // never fails
		if !bytes.Equal(want[:n], buf[:n]) {
			return fmt.Errorf("wrong data in bytes %d to %d", got, got+n)
		}
		got += n
		if errors.Is(err, io.EOF) && got == total {
			return nil
		}
		if err != nil {
			return fmt.Errorf("after %d of %d bytes: %w", got, total, err)
		}
	}
}

// size is small, near a TLS record or anything up to most.
func size(r *rand.Rand, most int) int {
	switch r.IntN(3) {
	case 0:
		return 1 + r.IntN(100)
	case 1:
		return 1<<14 - 30 + r.IntN(60)
	}
	return 1 + r.IntN(most)
}

func testLarge(t *testing.T, f Factory) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	const total = 32 << 20
	client, server := pair(t, f)
	run(t,
		func() error { return noise(client, seed, total) },
		func() error { return listenTo(server, seed, total) })
}

func testBoth(t *testing.T, f Factory) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	const total = 8 << 20
	client, server := pair(t, f)
	run(t,
		func() error { return noise(client, seed, total) },
		func() error { return listenTo(server, seed, total) },
		func() error { return noise(server, seed+1, total) },
		func() error { return listenTo(client, seed+1, total) })
}

func testWriteBuffers(t *testing.T, f Factory) {
	client, server := pair(t, f)
	header, payload := bytes.Repeat([]byte{1}, 64), bytes.Repeat([]byte{2}, 100_000)
	run(t,
		func() error {
			n, err := client.WriteBuffers(header, payload)
			if n != len(header)+len(payload) {
				return fmt.Errorf("wrote %d: %w", n, err)
			}
			return err
		},
		func() error {
			got := make([]byte, len(header)+len(payload))
			if _, err := io.ReadFull(server, got); err != nil {
				return err
			}
			if !bytes.Equal(got, append(bytes.Clone(header), payload...)) {
				return errors.New("wrong data")
			}
			return nil
		})
}

// testReadRest: nothing follows a message until it was answered, so that a reader who waits for more
// than its rest waits forever. A message may also end early.
func testReadRest(t *testing.T, f Factory) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	client, server := pair(t, f)
	const messages, most, half = 40, 900_000, 300_000
	message := func(r *rand.Rand) []byte { return make([]byte, 1+size(r, most)) }
	run(t,
		func() error {
			r, cuts := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
			for range messages {
				p := message(r)
				cut := cuts.IntN(len(p) + 1)
				for _, part := range [][]byte{p[:cut], p[cut:]} {
					if _, err := client.Write(part); err != nil {
						return err
					}
				}
				if _, err := io.ReadFull(client, p[:1]); err != nil {
					return err
				}
			}
			_, err := client.Write(make([]byte, half))
			return errors.Join(err, client.CloseWrite())
		},
		func() error {
			r := rand.New(rand.NewPCG(seed, 1))
			for range messages {
				p := message(r)
				if _, err := io.ReadFull(server, p[:1]); err != nil {
					return err
				}
				if n, err := io.ReadFull(restOf{server}, p[1:]); err != nil {
					return fmt.Errorf("%d of %d: %w", n, len(p)-1, err)
				}
				if _, err := server.Write(p[:1]); err != nil {
					return err
				}
			}
			n, err := io.ReadFull(restOf{server}, make([]byte, most))
			if n != half || !errors.Is(err, io.ErrUnexpectedEOF) {
				return fmt.Errorf("%d bytes at the end: %w", n, err)
			}
			return nil
		})
}

// restOf reads by ReadRest.
type restOf struct{ Conn }

func (r restOf) Read(p []byte) (int, error) { return r.ReadRest(p) }

func testDeadlines(t *testing.T, f Factory) {
	client, server := pair(t, f)
	require.NoError(t, client.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
	_, err := client.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)

	// Reading goes on with a new deadline.
	require.NoError(t, client.SetReadDeadline(time.Now().Add(patience)))
	run(t, func() error { _, err := server.Write([]byte{7}); return err })
	one := make([]byte, 1)
	_, err = io.ReadFull(client, one)
	require.NoError(t, err)
	require.EqualValues(t, 7, one[0])

	// Nobody reads, so writing must stall. A message stuck in the middle is lost, so later writes
	// fail.
	require.NoError(t, client.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
	_, err = writeUntilError(client)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, client.SetWriteDeadline(time.Now().Add(patience)))
	_, err = client.Write([]byte{1})
	require.Error(t, err)
}

func writeUntilError(c Conn) (int, error) {
	buf := make([]byte, 1<<20)
	total := 0
	for {
		n, err := c.Write(buf)
		total += n
		if err != nil {
			return total, err
		}
	}
}

func testCloseUnblocks(t *testing.T, f Factory) {
	client, _ := pair(t, f)
	errs := make(chan error, 2)
	go func() { _, err := client.Read(make([]byte, 1)); errs <- err }()
	go func() { _, err := writeUntilError(client); errs <- err }()
	// Let both block first. An earlier Close would not fail, but test less.
	<-time.After(50 * time.Millisecond)
	require.NoError(t, client.Close())
	for range 2 {
		require.ErrorIs(t, <-errs, net.ErrClosed)
	}
}

func testCloseTwice(t *testing.T, f Factory) {
	client, _ := pair(t, f)
	require.NoError(t, client.Close())
	require.NoError(t, client.Close())
}

func testHalfClose(t *testing.T, f Factory) {
	client, server := pair(t, f)
	run(t,
		func() error {
			if _, err := client.Write([]byte("question")); err != nil {
				return err
			}
			if err := client.CloseWrite(); err != nil {
				return err
			}
			if _, err := client.Write([]byte("more")); !errors.Is(err, net.ErrClosed) {
				return fmt.Errorf("write after CloseWrite: %w", err)
			}
			got, err := io.ReadAll(client)
			if string(got) != "answer" {
				return fmt.Errorf("got %q: %w", got, err)
			}
			return err
		},
		func() error {
			got, err := io.ReadAll(server)
			if err != nil || string(got) != "question" {
				return fmt.Errorf("got %q: %w", got, err)
			}
			if _, err := server.Write([]byte("answer")); err != nil {
				return err
			}
			return server.Close()
		})
}

// testAbort: what a stream was given and has not sent is gone, and the peer does not take the rest for all.
func testAbort(t *testing.T, f Factory) {
	client, server := pair(t, f)
	piece, taken := make([]byte, 16<<10), int64(0)
	for {
		require.NoError(t, client.SetWriteDeadline(time.Now().Add(200*time.Millisecond)))
		if _, err := client.Write(piece); err != nil { // the peer reads nothing
			break
		}
		taken += int64(len(piece))
	}
	require.NoError(t, client.Abort())
	require.NoError(t, client.Close())
	arrived, err := io.Copy(io.Discard, server)
	require.Error(t, err)
	require.Less(t, arrived, taken)
}

func testUseAfterClose(t *testing.T, f Factory) {
	client, server := pair(t, f)
	require.NoError(t, client.Close())
	_, err := client.Read(make([]byte, 1))
	require.ErrorIs(t, err, net.ErrClosed)
	_, err = client.Write([]byte{1})
	require.ErrorIs(t, err, net.ErrClosed)
	require.ErrorIs(t, client.CloseWrite(), net.ErrClosed)
	_, err = server.Read(make([]byte, 1))
	require.Equal(t, io.EOF, err)
	_, err = server.Read(make([]byte, 1))
	require.Equal(t, io.EOF, err, "end of stream must last")
}

func testIdentity(t *testing.T, f Factory) {
	serverKey, clientKey := NewKey(t), NewKey(t)
	l := listen(t, f, serverKey)
	run(t,
		func() error {
			c, err := l.Accept()
			if err != nil {
				return err
			}
			defer c.Close()
			if err := c.Handshake(within(t)); err != nil {
				return err
			}
			if !c.PeerKey().Equal(public(clientKey)) {
				return errors.New("server sees another key")
			}
			_, err = c.Read(make([]byte, 1))
			if !errors.Is(err, io.EOF) {
				return fmt.Errorf("read: %w", err)
			}
			return nil
		},
		func() error {
			var seen ed25519.PublicKey
			c, err := f.Dial(within(t), l.Addr().String(), clientKey, func(k ed25519.PublicKey) error { seen = k; return nil })
			if err != nil {
				return err
			}
			if err := c.Handshake(within(t)); err != nil {
				return err
			}
			if !seen.Equal(public(serverKey)) || !c.PeerKey().Equal(public(serverKey)) {
				return errors.New("client sees another key")
			}
			return c.Close()
		})
}

func testExporter(t *testing.T, f Factory) {
	client, server := pair(t, f)
	other, _ := pair(t, f)
	require.NoError(t, client.Handshake(within(t)))
	require.NoError(t, other.Handshake(within(t)))
	a, err := client.Exporter("fxfer test", 32)
	require.NoError(t, err)
	require.Len(t, a, 32)
	b, err := server.Exporter("fxfer test", 32)
	require.NoError(t, err)
	require.Equal(t, a, b)
	b, err = server.Exporter("fxfer test 2", 32)
	require.NoError(t, err)
	require.NotEqual(t, a, b, "labels must differ")
	b, err = other.Exporter("fxfer test", 32)
	require.NoError(t, err)
	require.NotEqual(t, a, b, "connections must differ")
}

// testTruncated: a connection that a third party ends must not look like the end of the stream.
func testTruncated(t *testing.T, f Factory) {
	var cut atomic.Bool
	l := listen(t, f, NewKey(t))
	p := newProxy(t, f, l.Addr().String(), func([]byte) bool { return !cut.Load() })
	client, server := pairAt(t, f, l, p.l.Addr().String())
	one := make([]byte, 1)
	run(t,
		func() error { _, err := client.Write([]byte{1}); return err },
		func() error { _, err := io.ReadFull(server, one); return err })
	cut.Store(true)
	_, err := client.Write([]byte{2})
	require.NoError(t, err)
	_, err = server.Read(one)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, err = server.Read(one)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF, "it must last")
}

// testAltered: a byte that is changed on the way is an error, and its record is not read.
func testAltered(t *testing.T, f Factory) {
	var alter atomic.Bool
	l := listen(t, f, NewKey(t))
	p := newProxy(t, f, l.Addr().String(), func(piece []byte) bool {
		if alter.Load() {
			piece[len(piece)-1] ^= 1
		}
		return true
	})
	client, server := pairAt(t, f, l, p.l.Addr().String())
	one := make([]byte, 1)
	run(t,
		func() error { _, err := client.Write([]byte{1}); return err },
		func() error { _, err := io.ReadFull(server, one); return err })
	alter.Store(true)
	_, err := client.Write([]byte("secret"))
	require.NoError(t, err)
	n, err := server.Read(make([]byte, 100))
	require.Zero(t, n)
	require.Error(t, err)
	require.NotErrorIs(t, err, io.EOF)
	// The client learns that the stream is broken.
	_, err = client.Read(one)
	require.Error(t, err)
	require.NotErrorIs(t, err, io.EOF)
}

func testWrongKey(t *testing.T, f Factory) {
	l := listen(t, f, NewKey(t))
	refused := errors.New("not the key I know")
	run(t,
		func() error {
			c, err := l.Accept()
			if f.Network == "" && errors.Is(err, net.ErrClosed) {
				return nil
			}
			if err != nil {
				return err
			}
			defer c.Close()
			if err := c.Handshake(within(t)); err == nil {
				return errors.New("server took a client that refused it")
			}
			if c.PeerKey() != nil {
				return errors.New("the client's identity reached a server it refused")
			}
			return nil
		},
		func() error {
			c, err := f.Dial(within(t), l.Addr().String(), NewKey(t), func(ed25519.PublicKey) error { return refused })
			if c != nil || !errors.Is(err, refused) {
				return fmt.Errorf("dial: %w", err)
			}
			if f.Network == "" { // nothing may come to Accept
				return l.Close()
			}
			return nil
		})
}

func testBeforeHandshake(t *testing.T, f Factory) {
	l := listen(t, f, NewKey(t))
	bare := dialBare(t, f, l)
	defer bare.Close()
	c, err := l.Accept()
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Read(make([]byte, 1))
	require.Error(t, err)
	_, err = c.Write([]byte{1})
	require.Error(t, err)
	_, err = c.Exporter("x", 1)
	require.Error(t, err)
	require.Error(t, c.CloseWrite())
	require.Nil(t, c.PeerKey())
}

func dialBare(t *testing.T, f Factory, l Listener) net.Conn {
	t.Helper()
	if f.Network == "" {
		t.Skip("this transport has no bare connections")
	}
	c, err := net.Dial(f.Network, l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	return c
}

// testSlowPeer: a silent peer must not hold up the handshake of another one.
func testSlowPeer(t *testing.T, f Factory) {
	l := listen(t, f, NewKey(t))
	bare := dialBare(t, f, l)
	defer bare.Close()
	slow, err := l.Accept()
	require.NoError(t, err)
	slowDone := make(chan error, 1)
	go func() { slowDone <- slow.Handshake(within(t)) }()
	run(t,
		func() error {
			c, err := l.Accept()
			if err != nil {
				return err
			}
			defer c.Close()
			return c.Handshake(within(t))
		},
		func() error {
			c, err := f.Dial(within(t), l.Addr().String(), NewKey(t), AnyKey)
			if err != nil {
				return err
			}
			return c.Close()
		})
	require.NoError(t, slow.Close())
	require.Error(t, <-slowDone)
}

// testFlood: an unknown peer that keeps sending is cut off before it has filled much memory.
func testFlood(t *testing.T, f Factory) {
	l := listen(t, f, NewKey(t))
	bare := dialBare(t, f, l)
	defer bare.Close()
	c, err := l.Accept()
	require.NoError(t, err)
	defer c.Close()
	done := make(chan error, 1)
	go func() { done <- c.Handshake(within(t)) }()
	// A ClientHello that announces 64 KiB, in records of full size.
	body := make([]byte, 1<<14)
	copy(body, []byte{1, 0, 0xff, 0xff})
	record := append([]byte{22, 3, 1, 0x40, 0}, body...)
	for range 64 {
		if _, err := bare.Write(record); err != nil {
			break
		}
	}
	require.Error(t, <-done)
}

func testHandshakeDeadline(t *testing.T, f Factory) {
	l := listen(t, f, NewKey(t))
	bare := dialBare(t, f, l)
	defer bare.Close()
	c, err := l.Accept()
	require.NoError(t, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(within(t), 30*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, c.Handshake(ctx), context.DeadlineExceeded)
}

func testDialCanceled(t *testing.T, f Factory) {
	// A listener that nobody serves: the kernel connects, and the handshake hangs.
	addr := listen(t, f, NewKey(t)).Addr().String()
	if f.Network == "" {
		silent, err := net.ListenPacket("udp", "127.0.0.1:0")
		require.NoError(t, err)
		defer silent.Close()
		addr = silent.LocalAddr().String()
	}
	ctx, cancel := context.WithTimeout(within(t), 30*time.Millisecond)
	defer cancel()
	_, err := f.Dial(ctx, addr, NewKey(t), AnyKey)
	// On a busy host the deadline may end before the kernel has connected.
	require.True(t, errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded), "%v", err)
}

func testListenerClose(t *testing.T, f Factory) {
	l := listen(t, f, NewKey(t))
	done := make(chan error, 1)
	go func() { _, err := l.Accept(); done <- err }()
	require.NoError(t, l.Close())
	require.ErrorIs(t, <-done, net.ErrClosed)
}
