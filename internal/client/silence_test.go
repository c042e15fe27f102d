package client

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

// The silence of a peer is reported in time, once, and so is its return.
func TestIdleWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var heard atomic.Int64
		var said []string
		var when []time.Duration
		start := time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			v := idleWatch{peer: "host:7433"}
			v.run(ctx, heard.Load, func(text string) { said, when = append(said, text), append(when, time.Since(start)) })
		}()
		time.Sleep(idleEvery / 2) // so that nothing happens at the very moment of a check
		for range 12 {            // it lives
			time.Sleep(5 * time.Second)
			heard.Add(1)
		}
		time.Sleep(25 * time.Second)
		heard.Add(1)
		time.Sleep(15 * time.Second)
		stop()
		<-done
		require.Equal(t, []string{"nothing heard from host:7433 for 8 s", "host:7433 is heard again, after 25 s", "nothing heard from host:7433 for 8 s"}, said)
		require.Greater(t, when[0], 60*time.Second, "until then it lived")
		require.LessOrEqual(t, when[0], 70*time.Second, "10 s after the last sign of life")
	})
}

// A process that was suspended does not blame its peer.
func TestIdleWatchSuspended(t *testing.T) {
	v := idleWatch{peer: "host:7433"}
	now := time.Now()
	for range 5 {
		require.Empty(t, v.check(now, 7))
		now = now.Add(idleEvery)
	}
	now = now.Add(time.Minute)
	require.Empty(t, v.check(now, 7))
	for range int(silentAfter/idleEvery) - 1 {
		now = now.Add(idleEvery)
		require.Empty(t, v.check(now, 7))
	}
	require.Equal(t, "nothing heard from host:7433 for 8 s", v.check(now.Add(idleEvery), 7))
}

// A session ends soon if nothing comes on its control stream although the server can be reached, and
// only then.
func TestWatchDead(t *testing.T) {
	// run watches a control stream that is alive for a time, with a server that answers from a time on.
	run := func(t *testing.T, lived, answers, until time.Duration) (ended time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			ctx, stop := context.WithTimeout(t.Context(), until)
			defer stop()
			heard := func() int64 { return int64(min(time.Since(start), lived) / (5 * time.Second)) }
			reach := func(ctx context.Context) error {
				if wait := answers - time.Since(start); wait > 0 {
					if !session.Sleep(ctx, min(wait, deadAfter)) {
						return ctx.Err()
					}
					if wait > deadAfter {
						return context.DeadlineExceeded
					}
				}
				return nil
			}
			watchDead(ctx, heard, func() time.Duration { return 0 }, reach, func(err error) {
				require.ErrorIs(t, err, errDead)
				ended = time.Since(start)
			})
		})
		return ended
	}
	require.Zero(t, run(t, time.Hour, 0, time.Hour), "it lives")
	require.Zero(t, run(t, 10*time.Second, 30*time.Second, 29*time.Second), "the server is away: the engine waits")
	require.InDelta(t, 17.5, run(t, 10*time.Second, 0, time.Hour).Seconds(), 1)
	require.InDelta(t, 41.5, run(t, 10*time.Second, 40*time.Second, time.Hour).Seconds(), 2)
}

// Nobody is silent while this host is busy with what it has heard.
func TestHearing(t *testing.T) {
	in, out := io.Pipe()
	var h controlActivity
	r := heardReader{in, &h}
	before := h.look()
	require.NotEqual(t, before, h.look(), "nobody reads yet")
	read := make(chan int)
	go func() {
		n, _ := r.Read(make([]byte, 10))
		read <- n
	}()
	for !h.waiting.Load() {
		runtime.Gosched()
	}
	before = h.look()
	require.Equal(t, before, h.look(), "it waits")
	_, err := out.Write([]byte("abc"))
	require.NoError(t, err)
	require.Equal(t, 3, <-read)
	require.GreaterOrEqual(t, h.look(), before+3)
}

// pipeConn is a connection to nobody: what is written fills the pipe.
type pipeConn struct {
	transport.Conn
	pipe net.Conn
}

func (c pipeConn) Close() error                       { return c.pipe.Close() }
func (c pipeConn) Read(b []byte) (int, error)         { return c.pipe.Read(b) }
func (c pipeConn) Write(b []byte) (int, error)        { return c.pipe.Write(b) }
func (c pipeConn) SetReadDeadline(t time.Time) error  { return c.pipe.SetReadDeadline(t) }
func (c pipeConn) SetWriteDeadline(t time.Time) error { return c.pipe.SetWriteDeadline(t) }

// A server that reads nothing holds up no question to it.
func TestExchangeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		x := exchange{conn: pipeConn{pipe: here}, patience: session.DialTimeout}
		x.r = wire.NewReader(x.conn, wire.MaxMessage)
		x.watch(t.Context())
		defer x.watching.Wait()
		defer x.end(nil)
		began := time.Now()
		x.send(&wire.Folder{Path: ".", Names: []string{"a"}})
		_, err := x.next()
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, 2*session.DialTimeout, time.Since(began))
	})
}

// A server that has heard nothing from a client for long ends the session, but accepts a new one.
func TestSilenceIsTemporary(t *testing.T) {
	require.True(t, temporary(&wire.Error{Code: wire.CodeSilent, Remote: true}))
	require.False(t, temporary(&wire.Error{Code: wire.CodeOther, Remote: true}))
}

// The time for tries starts again after each session that got somewhere or was in contact for long,
// but not after one that failed at once.
func TestMadeProgress(t *testing.T) {
	require.True(t, madeProgress(1, 1, time.Second))
	require.True(t, madeProgress(0, 1, time.Minute), "it compared")
	require.False(t, madeProgress(0, 0, time.Minute), "nobody was there")
	require.False(t, madeProgress(0, 1000, time.Second))
	require.False(t, madeProgress(-5, 1000, time.Second), "what was there turned out damaged")
}

// TestReplaces: a client that reconnects ends its own old session, and no other client's.
func TestReplaces(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Write|identity.Read)
	defer s.stop()
	begin := func(c *Client, id, replaces byte) (transport.Conn, *wire.Reader) {
		x := &dialer{client: c, url: s.plain(t, ""), cfg: transport.Config{Identity: c.key},
			hello: wire.Hello{Intent: wire.Push, Share: "data", Paths: []string{""}, Session: [16]byte{id}, Replaces: [16]byte{replaces}}}
		conn, err := x.open(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
		r := wire.NewReader(conn, wire.MaxMessage)
		m, err := r.Next()
		require.NoError(t, err)
		require.IsType(t, &wire.Welcome{}, m)
		return conn, r
	}
	// next skips messages that any live session sends.
	next := func(r *wire.Reader) wire.Message {
		for {
			m, err := r.Next()
			require.NoError(t, err)
			switch m.(type) {
			case *wire.Ping, *wire.Sample:
			default:
				return m
			}
		}
	}
	var clients []*Client
	for range 2 {
		c := newClient(t, t.TempDir(), Options{Pin: s.Pin()})
		_, err := c.List(t.Context(), s.invited(t))
		require.NoError(t, err)
		clients = append(clients, c)
	}
	first, heard := begin(clients[0], 1, 9) // there is no 9
	begin(clients[1], 2, 1)
	_, err := first.Write(wire.Append(nil, &wire.Ping{Time: 7}))
	require.NoError(t, err)
	require.Equal(t, &wire.Pong{Time: 7}, next(heard), "another client's session goes on")
	begin(clients[0], 3, 1)
	m, ok := next(heard).(*wire.Refuse)
	require.True(t, ok)
	require.Equal(t, wire.CodeSilent, m.Code)
}

// TestContinues: a session whose connections died is continued at once if the server answers on new
// ones, without RetryFor, but not twice without progress. Nothing else is.
func TestContinues(t *testing.T) {
	dead := fmt.Errorf("data stream: %w", errDead)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context //nolint:containedctx // a column of the table
		job  job
		err  error
		want bool
	}{
		"dead connections":             {t.Context(), job{intent: &push{}}, dead, true},
		"those of a get":               {t.Context(), job{intent: &pull{}}, dead, true},
		"again, without progress":      {t.Context(), job{intent: &push{}, tries: 1}, dead, false},
		"standard input":               {t.Context(), job{intent: &push{once: true}}, dead, false},
		"the user ended it":            {canceled, job{intent: &push{}}, dead, false},
		"the server is away":           {t.Context(), job{intent: &push{}}, context.DeadlineExceeded, false},
		"nothing is wrong":             {t.Context(), job{intent: &push{}}, nil, false},
		"the server has heard nothing": {t.Context(), job{intent: &push{}}, &wire.Error{Code: wire.CodeSilent, Remote: true}, false},
	} {
		require.Equal(t, c.want, c.job.continues(c.ctx, c.err), name)
	}
}
