package client

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
)

const (
	nearPath = 300 * time.Microsecond
	farPath  = 50 * time.Millisecond
)

// attempt is how a try to connect a data stream goes, in the time of a bubble.
type attempt struct {
	syn   time.Duration // until the SYN is answered
	shake time.Duration // the handshake
	fails bool          // then
	leave time.Duration // until a stream that is one too many has closed its connection
	lives time.Duration // 0 is until the session ends
}

// start is how the streams of a session connect.
type start struct {
	rtt      time.Duration
	after    bool          // the data streams connect after the control stream, not beside it
	control  time.Duration // the handshake of the control stream
	attempts []attempt     // of data streams in a row; all later ones succeed
	wants    []want
}

// want is a number of data streams that the tuner asks for after a time.
type want struct {
	after time.Duration
	n     int
}

// noEngine takes data streams, and does nothing with them.
type noEngine struct {
	session.Engine
	lives func(*session.DataStream)
}

func (noEngine) Done() <-chan struct{}             { return nil }
func (noEngine) Sends() bool                       { return true }
func (e noEngine) AddStream(d *session.DataStream) { e.lives(d) }

// idleConn is a connection on which nothing happens.
type idleConn struct {
	transport.Conn
	lives time.Duration
}

func (idleConn) Close() error                 { return nil }
func (idleConn) Info() (transport.Info, bool) { return transport.Info{}, false }

// outcome is what a session has at the end.
type outcome struct {
	streams, missing int // data streams; how many fewer than wanted and possible
	dialing          int // being connected
	err              error
}

// run connects a session that begins with 16 data streams on a far path, and with fewer on a near
// one.
func (s *start) run(t *testing.T) (o outcome) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		d := &dialer{client: &Client{}}
		p := newStreamPool(ctx, cancel, d, session.NewStreamSet(nil, nil))
		d.gate.hold(session.InitialStreams)
		tries := 0
		p.join = func(uint64) (transport.Conn, error) {
			p.mu.Lock()
			a := attempt{syn: s.rtt, shake: s.rtt}
			if tries < len(s.attempts) {
				a = s.attempts[tries]
			}
			tries++
			p.mu.Unlock()
			return s.join(ctx, &d.gate, false, a)
		}
		p.tasks.Go(func() {
			for _, w := range s.wants {
				if session.Sleep(ctx, w.after) {
					p.setWant(w.n)
				}
			}
		})
		if !s.after {
			p.grow(session.InitialStreams)
		}
		_, err := s.join(ctx, &d.gate, true, attempt{syn: s.rtt, shake: s.control})
		require.NoError(t, err)
		p.use(noEngine{lives: func(d *session.DataStream) {
			if lives := d.Conn.(idleConn).lives; lives > 0 {
				p.tasks.Go(func() { session.Sleep(ctx, lives); _ = d.Close() })
			}
		}})
		p.grow(d.gate.first(session.InitialStreams))

		time.Sleep(10 * session.DialTimeout)
		p.mu.Lock()
		o = outcome{p.set.Count(), max(0, p.boundLocked(p.want)-p.set.Count()), p.dialing, context.Cause(ctx)}
		p.mu.Unlock()
		p.close()
		cancel(nil)
		p.tasks.Wait()
	})
	return o
}

// join connects a stream as a transport would.
func (s *start) join(ctx context.Context, gate *startGate, control bool, a attempt) (transport.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, session.DialTimeout)
	defer cancel()
	cfg := transport.Config{Connected: func(context.Context, time.Time, time.Duration) error { return nil }}
	expect := gate.follow(&cfg, control, func(ed25519.PublicKey) error { return nil })
	session.Sleep(ctx, a.syn)
	if err := cfg.Connected(ctx, time.Now().Add(-s.rtt), s.rtt); err != nil {
		session.Sleep(ctx, a.leave)
		return nil, err
	}
	if session.Sleep(ctx, a.shake); a.fails {
		return nil, errors.New("handshake")
	}
	return idleConn{lives: a.lives}, cmp.Or(ctx.Err(), expect(nil))
}

// The few streams that pass the gate of a near path fail while the others, which are too many, still
// count.
func TestStreamsGiveUp(t *testing.T) {
	t.Parallel()
	s := start{rtt: nearPath, control: nearPath}
	for range session.InitialStreams {
		s.attempts = append(s.attempts, attempt{syn: nearPath, shake: 10 * nearPath, fails: true, leave: 2 * firstPause})
	}
	few := session.StartingStreams(nearPath, session.InitialStreams)
	require.Equal(t, outcome{streams: few}, s.run(t))
}

// On a near path, a session that connects its data streams late connects few. When these fail, the
// gate does not wait for the SYNs of more.
func TestStreamsConnectAgain(t *testing.T) {
	t.Parallel()
	few := session.StartingStreams(nearPath, session.InitialStreams)
	failing := slices.Repeat([]attempt{{syn: nearPath, shake: nearPath, fails: true}}, few)
	s := start{rtt: nearPath, control: nearPath, after: true, attempts: failing}
	require.Equal(t, outcome{streams: few}, s.run(t))
}

// Whatever fails at first, and in whatever order: once the server answers, a session has streams, as
// many as its tuner asks for.
func TestStreamsReturn(t *testing.T) {
	t.Parallel()
	pause := func(t *rapid.T, label string) time.Duration {
		return rapid.SampledFrom([]time.Duration{0, nearPath, farPath, firstPause, 2 * firstPause, 2 * time.Second}).Draw(t, label)
	}
	rapid.Check(t, func(rt *rapid.T) {
		s := start{
			rtt:     rapid.SampledFrom([]time.Duration{nearPath, farPath}).Draw(rt, "rtt"),
			after:   rapid.Bool().Draw(rt, "after"),
			control: pause(rt, "control"),
		}
		for range rapid.IntRange(0, 40).Draw(rt, "attempts") {
			s.attempts = append(s.attempts, attempt{
				syn: max(s.rtt, pause(rt, "syn")), shake: pause(rt, "shake"), leave: pause(rt, "leave"),
				fails: rapid.Bool().Draw(rt, "fails"), lives: pause(rt, "lives"),
			})
		}
		asked := rapid.SliceOfN(rapid.IntRange(1, 32), 0, 3).Draw(rt, "wants")
		for _, n := range asked {
			s.wants = append(s.wants, want{pause(rt, "wanted after"), n})
		}
		if o := s.run(t); o.streams == 0 || o.dialing > 0 || o.err != nil {
			rt.Fatalf("%+v", o)
		}
		s.wants = append(s.wants, want{session.DialTimeout, 7})
		if o := s.run(t); o.missing > 0 || o.dialing > 0 || o.err != nil {
			rt.Fatalf("%+v", o)
		}
	})
}
