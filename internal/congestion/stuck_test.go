package congestion

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestStuck: a session of 16 streams sends next to nothing of a line that is free, so the peer delays each
// acknowledgement. It takes that for no queue, and soon has the line again.
func TestStuck(t *testing.T) {
	const (
		line    = 200e6 / 8
		base    = 20 * time.Millisecond
		tick    = 25 * time.Millisecond
		streams = 16
		mss     = 1448
	)
	for _, c := range []struct {
		name  string
		known float64
		back  bool
	}{
		{"the line carried much more of late", line, true},
		{"it never did", 0, false},
	} {
		x := New()
		x.model.base, x.line, x.rate, x.known, x.doubts.best = base, 130e3, 130e3, c.known, c.known
		x.enter(Cruise, 0)
		s, got := Sample{MSS: mss, Streams: streams, Least: base, Backlog: 1 << 20, Delivered: 1 << 20}, 0.0
		for s.At < 10*time.Second {
			got = min(x.decision().Rate, line)
			s.At += tick
			s.Delivered += int64(got * tick.Seconds())
			s.RTT = base
			if seconds(2*streams*mss/got) > delayedAck {
				s.RTT += delayedAck
			}
			s.InFlight = int64(got * s.RTT.Seconds())
			x.Update(s)
		}
		require.Equal(t, c.back, got > 0.9*line, "%s: %.0f of %.0f", c.name, got, line)
	}
}

// TestNotStuck: where others are, or much is lost, the queue is no delayed acknowledgement.
func TestNotStuck(t *testing.T) {
	for _, x := range []struct {
		what   string
		state  State
		losses float64
		random float64
		deaf   time.Duration
		want   bool
	}{
		{"alone", Cruise, 0, 0, 0, true},
		{"beside others", Compete, 0, 0, 0, false},
		{"with loss", Cruise, 0.05, 0, 0, false},
		{"with random loss", Cruise, 0.05, 0.05, 0, true},
		{"with the loss of an outage", Cruise, 0.05, 0, time.Minute, true},
	} {
		c := New()
		c.state, c.line, c.known = x.state, 130e3, 25e6
		c.model.losses, c.loss.random, c.outage.deaf = x.losses, x.random, x.deaf
		require.Equal(t, x.want, c.stuck(Sample{At: time.Minute, MSS: 1448, Streams: 16}), x.what)
	}
}

// TestStuckAfterOutage: an outage right after the start leaves streams with small windows. The line carried much
// more before, so their sparse packets are no queue, although no rate with a short queue was known yet.
func TestStuckAfterOutage(t *testing.T) {
	c := New()
	c.state, c.model.base, c.doubts.best, c.line, c.known = Cruise, 20*time.Millisecond, 12e6, 130e3, 0
	s := Sample{At: time.Second, MSS: 1448, Streams: 24, RTT: 60 * time.Millisecond}
	require.False(t, c.stuck(s))
	c.resume(s)
	require.True(t, c.stuck(s))
}
