package client

import (
	"context"
	"crypto/ed25519"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
)

// line connects the streams of a gate over a line with a rate in bit/s, in the time of a bubble.
type line struct {
	gate *startGate
	rtt  time.Duration
	rate float64
	mu   sync.Mutex // guards what follows
	free time.Time  // when the line has sent all that waits
}

// cross waits until so many bytes have crossed the line and were answered.
func (l *line) cross(bytes int) (sent time.Time, rtt time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sent = time.Now()
	if l.free.Before(sent) {
		l.free = sent
	}
	l.free = l.free.Add(time.Duration(float64(bytes*8) / l.rate * float64(time.Second)))
	rtt = l.free.Sub(sent) + l.rtt
	return sent, rtt
}

// connect connects a stream as a transport would. It returns the error of the gate.
func (l *line) connect(control bool) error {
	cfg := transport.Config{Connected: func(context.Context, time.Time, time.Duration) error { return nil }}
	expect := l.gate.follow(&cfg, control, func(ed25519.PublicKey) error { return nil })
	sent, rtt := l.cross(60)
	time.Sleep(rtt)
	if err := cfg.Connected(context.Background(), sent, rtt); err != nil {
		return err
	}
	_, rtt = l.cross(3500)
	time.Sleep(rtt)
	return expect(nil)
}

// start connects a session with 16 data streams. It returns how many of these were refused, and
// after what time all others were connected.
func (l *line) start() (refused int, took time.Duration) {
	began := time.Now()
	errs := make(chan error)
	go func() { errs <- l.connect(true) }()
	for range 16 {
		go func() { errs <- l.connect(false) }()
		synctest.Wait() // one after the other, so that they take turns on the line
	}
	for range 17 {
		switch err := <-errs; err {
		case nil:
			took = time.Since(began)
		default:
			refused++
		}
	}
	return refused, took
}

func TestStartGate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate    float64
		rtt     time.Duration
		refused int
		within  time.Duration
	}{
		{9600, 150 * time.Millisecond, 15, 9 * time.Second},
		{9600, 700 * time.Millisecond, 15, 9 * time.Second},
		{128e3, 150 * time.Millisecond, 15, 900 * time.Millisecond},
		{512e3, 150 * time.Millisecond, 15, 450 * time.Millisecond},
		{512e3, 700 * time.Millisecond, 13, 1650 * time.Millisecond},
		{1e9, 100 * time.Millisecond, 0, 201 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := &line{gate: &startGate{}, rtt: c.rtt, rate: c.rate}
			l.gate.hold(16)
			require.Equal(t, 32, l.gate.bound(32), "nothing is known")
			rate, _ := l.gate.narrow()
			require.Zero(t, rate)
			refused, took := l.start()
			require.Equal(t, c.refused, refused, "%v bit/s", c.rate)
			require.LessOrEqual(t, took, c.within, "%v bit/s", c.rate)
			require.True(t, l.gate.settled())
			if refused == 0 {
				require.Equal(t, 32, l.gate.bound(32))
				return
			}
			require.Equal(t, 16-refused, l.gate.bound(32))
			rate, streams := l.gate.narrow()
			require.Equal(t, 16-refused, streams)
			require.InEpsilon(t, c.rate/8, rate, 0.1)
			require.NoError(t, l.connect(false), "a stream in place of one that ended")
			l.gate.delivered(1e9 / 8)
			require.Equal(t, 32, l.gate.bound(32), "the path carries more than it seemed to")
		})
	}
}

// On a near path, few streams are enough: the others never shake hands. Those that the session wants
// later pass.
func TestStartGateOfNearPath(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		few := session.StartingStreams(time.Microsecond, 16)
		l := &line{gate: &startGate{}, rtt: 300 * time.Microsecond, rate: 10e9}
		l.gate.hold(16)
		require.Equal(t, 16, l.gate.first(16), "nothing is known")
		refused, _ := l.start()
		require.Equal(t, 16-few, refused)
		require.Equal(t, few, l.gate.first(16))
		require.Equal(t, 1, l.gate.first(1))
		require.Equal(t, 32, l.gate.bound(32))
		require.NoError(t, l.connect(false))
	})
}

// Over QUIC, the handshake of the control stream decides. That of a host nearby may be late for other reasons.
func TestStartGateOfQUIC(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, c := range []struct {
		took, rtt time.Duration
		streams   int
	}{
		{7 * time.Second, 4 * time.Second, 1}, // 9.6 kbit/s, with an RTT of 1.5 s
		{900 * ms, 600 * ms, 1},               // 64 kbit/s
		{103 * ms, 100 * ms, 16},
		{60 * ms, 6 * ms, 16}, // hosts that were late
		{40 * ms, 1 * ms, 16},
	} {
		var g startGate
		g.holdAll(16)
		require.Equal(t, 16, g.bound(16), "nothing is known")
		g.shook(c.took, c.rtt)
		require.True(t, g.settled())
		require.Equal(t, 16, g.first(16))
		require.Equal(t, c.streams, g.bound(16), "%v", c)
		require.Equal(t, c.streams == 16, g.quiet.IsZero(), "%v", c)
		g.delivered(1e9 / 8)
		require.Equal(t, 16, g.bound(16), "the path carries more than it seemed to")
	}
	var open startGate
	open.holdAll(gatedFrom - 1)
	open.shook(time.Minute, time.Second)
	require.Equal(t, 4, open.bound(4))
}

func TestStartGateOfFewStreams(t *testing.T) {
	t.Parallel()
	var open startGate
	open.hold(gatedFrom - 1)
	require.True(t, open.settled())
	require.Equal(t, 4, open.bound(4))
	cfg := transport.Config{}
	open.follow(&cfg, false, nil)
	require.Nil(t, cfg.Connected)
}
