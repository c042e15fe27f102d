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
