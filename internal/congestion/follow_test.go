package congestion

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFollows: a session has taken a tenth of a line for all of it, and the queue stays short. What is
// delivered follows what it sends, so it has the line again soon, without more in flight than that explains.
func TestFollows(t *testing.T) {
	const (
		tick    = 25 * time.Millisecond
		streams = 16
		mss     = 1448
	)
	for _, c := range []struct {
		name   string
		line   float64 // bytes/s
		base   time.Duration
		proved bool
		held   int64 // bytes in flight that the peer has and does not acknowledge yet
		within time.Duration
	}{
		{"a near line, after the start", 1e9 / 8, 10 * time.Millisecond, false, 0, 2 * time.Second},
		{"a far line, after the start", 1e9 / 8, 50 * time.Millisecond, false, 0, 2 * time.Second},
		{"a fast line, after the start", 10e9 / 8, 50 * time.Millisecond, false, 0, 2 * time.Second},
		{"a far line, after a queue", 1e9 / 8, 50 * time.Millisecond, true, 0, 2 * time.Second},
		{"each second packet is acknowledged", 1e8 / 8, 20 * time.Millisecond, true, streams * mss / 2, 4 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := New()
			x.model.base, x.line, x.rate, x.proved = c.base, c.line/10, c.line/10, c.proved
			x.enter(Cruise, 0)
			s := Sample{MSS: mss, Streams: streams, Least: c.base, Backlog: 1 << 20, Delivered: 1 << 20}
			sent := []float64{x.rate} // in each tick, bytes/s
			for x.line < 0.9*c.line && s.At < 10*time.Second {
				s.At += tick
				trip := int(c.base / tick) // ticks until it is delivered
				arrives := min(sent[max(0, len(sent)-1-trip)], c.line)
				s.Delivered += int64(arrives * tick.Seconds())
				s.RTT = c.base
				s.InFlight = int64(sent[len(sent)-1]*c.base.Seconds()) + c.held
				sent = append(sent, min(x.Update(s).Rate, c.line))
			}
			require.Less(t, s.At, c.within)
		})
	}
}
