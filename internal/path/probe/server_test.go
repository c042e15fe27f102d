package probe

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) != "" {
		os.Exit(play())
	}
	goleak.VerifyTestMain(m)
}

// plain is a stream without TLS.
type plain struct{ *net.TCPConn }

func (p plain) LimitUnsent(int) {}

func (p plain) SetCork(on bool) error { return transport.SetCork(p.TCPConn, on) }

func (p plain) Info() (transport.Info, bool) { return transport.InfoOf(p.TCPConn) }

// served serves connections with s until the test ends. It returns a function that connects.
func served(t *testing.T, s *Session) func() plain {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		acceptAll(ctx, ln, s)
	}()
	t.Cleanup(func() {
		cancel()
		ln.Close()
		<-done
	})
	return func() plain {
		c, err := net.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		require.NoError(t, c.SetDeadline(time.Now().Add(30*time.Second)))
		return plain{c.(*net.TCPConn)}
	}
}

// acceptAll serves connections until the listener is closed and all of them have ended.
func acceptAll(ctx context.Context, ln net.Listener, s *Session) {
	var running atomic.Int64
	idle := make(chan struct{}, 1)
	for {
		c, err := ln.Accept()
		if err != nil {
			break
		}
		running.Add(1)
		go func() {
			p := plain{c.(*net.TCPConn)}
			var coded *wire.Error
			if err := s.Serve(ctx, p); errors.As(err, &coded) {
				_, _ = p.Write(wire.Append(nil, &wire.Refuse{Code: coded.Code, Text: coded.Text}))
				_ = p.CloseWrite()
				_, _ = io.Copy(io.Discard, p)
			}
			c.Close()
			if running.Add(-1) == 0 {
				select {
				case idle <- struct{}{}:
				default:
				}
			}
		}()
	}
	for running.Load() > 0 {
		<-idle
	}
}

// refusedWith fails unless the session ends the stream with the given code.
func refusedWith(t *testing.T, c plain, code wire.Code) {
	t.Helper()
	_ = c.CloseWrite()
	m, err := wire.NewReader(c, wire.MaxMessage).Next()
	require.NoError(t, err)
	require.Equal(t, code, m.(*wire.Refuse).Code)
}

func TestHostileClient(t *testing.T) {
	dial := served(t, NewSession(&net.TCPAddr{}))
	send := func(c plain, b []byte) {
		_, err := c.Write(b)
		require.NoError(t, err)
	}
	test := func(m wire.Test) []byte { return wire.Append(nil, &m) }

	c := dial()
	send(c, test(wire.Test{Kind: 99}))
	refusedWith(t, c, wire.CodeUnsupported)

	c = dial() // a flow without marked blocks
	block := make([]byte, wire.FlowBlock)
	block[0] = 2
	send(c, append(test(wire.Test{Kind: wire.Upload, Time: 1000}), block...))
	for {
		m, err := wire.NewReader(c, wire.MaxMessage).Next()
		require.NoError(t, err)
		if r, ok := m.(*wire.Refuse); ok {
			require.Equal(t, wire.CodeProtocol, r.Code)
			break
		}
	}

	c = dial() // a flow that ends within a block
	send(c, append(test(wire.Test{Kind: wire.Upload, Time: 1000}), 0, 0, 0))
	require.NoError(t, c.CloseWrite())
	_, err := io.Copy(io.Discard, c)
	require.NoError(t, err)

	c = dial() // the decoder rejects a message that is too large; an unknown message is skipped
	send(c, []byte{200, 0, 0, 0, 1, 7})
	send(c, test(wire.Test{Kind: wire.Exchange, Size: wire.MaxExchange + 1}))
	_, err = io.Copy(io.Discard, c)
	require.NoError(t, err)

	// The client moves more bytes than a session allows.
	s := NewSession(&net.TCPAddr{})
	s.budget.Store(4 * wire.FlowBlock)
	dial = served(t, s)
	c = dial()
	send(c, test(wire.Test{Kind: wire.Download, Time: 60_000}))
	n, marked := 0, false
	for !marked {
		_, err := io.ReadFull(c, block)
		require.NoError(t, err)
		n, marked = n+1, block[0] == 1
	}
	require.LessOrEqual(t, n, 4)
	m, err := wire.NewReader(c, wire.MaxMessage).Next()
	require.NoError(t, err)
	require.IsType(t, &wire.Sample{}, m)
	send(c, test(wire.Test{Kind: wire.Exchange, Size: wire.MaxExchange}))
	send(c, make([]byte, wire.MaxExchange))
	refusedWith(t, c, wire.CodeProtocol)
}

func TestStreamsAreBounded(t *testing.T) {
	s := NewSession(&net.TCPAddr{})
	for range maxConns {
		require.True(t, s.enter())
	}
	require.False(t, s.enter())
	s.leave()
	require.True(t, s.enter())
	s.leave()
	for range maxJoined - maxConns - 1 {
		require.True(t, s.enter())
		s.leave()
	}
	require.False(t, s.enter(), "in all")
}

// An older server would ignore TCP_CORK and refuse connections without TLS. A matrix leaves them out
// and says so.
func TestMatrixOfAnOlderServer(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ways         bool
		cells, notes int
	}{{true, 462, 0}, {false, 189, 1}} {
		p := newProber(func(ctx context.Context, _ transport.Path) (Conn, error) { return nil, ctx.Err() }, Options{
			Requests: true, Ways: c.ways, Time: time.Minute, Plain: func(ctx context.Context) (*net.TCPConn, error) { return nil, ctx.Err() },
		})
		require.ErrorIs(t, p.exchanges(over), context.Canceled)
		require.Len(t, p.report.Exchanges, c.cells)
		require.Len(t, p.report.Notes, c.notes)
		for _, l := range p.report.Exchanges {
			require.True(t, c.ways || l.TLS && !l.ServerCork, "%+v", l)
		}
	}
}

// When a session ends, its streams end, too.
func TestSessionEnds(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	in, err := ln.Accept()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	_, err = c.Write(wire.Append(nil, &wire.Test{Kind: wire.Exchange, Size: 64, Time: 60_000}))
	require.NoError(t, err)
	time.AfterFunc(10*time.Millisecond, cancel)
	require.ErrorIs(t, NewSession(ln.Addr()).Serve(ctx, plain{in.(*net.TCPConn)}), net.ErrClosed)
}

// A connection without TLS belongs to the test whose token it has, while that test's stream is open.
func TestPlain(t *testing.T) {
	s := NewSession(&net.TCPAddr{Port: 1})
	require.False(t, s.AwaitsPlain())
	c := served(t, s)()
	test, err := openPlain(c, wire.Test{Size: 2 * wire.MinExchange, Split: true, Time: 1000})
	require.NoError(t, err)
	require.True(t, s.AwaitsPlain())
	head := [PlainHead]byte{}
	require.False(t, s.ExpectsPlain(head))
	copy(head[1:], test.token[:])
	require.True(t, s.ExpectsPlain(head))

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	out, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer out.Close()
	in, err := ln.Accept()
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() {
		var head [PlainHead]byte
		_, err := io.ReadFull(in, head[:])
		if err == nil {
			err = s.ServePlain(plainLine{in.(*net.TCPConn)}, head)
		}
		served <- errors.Join(err, in.Close())
	}()
	x, err := test.exchanger(out.(*net.TCPConn), true, false)
	require.NoError(t, err)
	for _, last := range []bool{false, true} {
		_, _, err = x.once(last)
		require.NoError(t, err)
		require.Equal(t, x.msg, x.reply)
	}
	require.NoError(t, <-served)

	require.NoError(t, c.Close())
	require.Eventually(t, func() bool { return !s.ExpectsPlain(head) }, 10*time.Second, time.Millisecond)
	var refused *wire.Error
	require.ErrorAs(t, s.ServePlain(nil, head), &refused)
}
