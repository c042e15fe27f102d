package congestion

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSpacing: the time that a packet of each stream waits at the peer for the next is no queue. A session alone neither
// blames others for it, nor sends less.
func TestSpacing(t *testing.T) {
	t.Parallel()
	const mss, streams = 1448, 16
	for _, tt := range []struct {
		name      string
		line      float64 // Mbit/s
		base      time.Duration
		intervals float64 // between packets of a stream, that the RTT holds
	}{
		{"single packets, 20 Mbit/s", 18.8, 30 * time.Millisecond, 1},
		{"single packets, 32 Mbit/s", 30, 15 * time.Millisecond, 1},
		{"pairs that are not the peer's", 18.8, 30 * time.Millisecond, 2},
		{"pairs of the peer", 18.8, 30 * time.Millisecond, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, line := New(), tt.line*1e6/8
			s := Sample{RTT: tt.base, Least: tt.base, MSS: mss, Streams: streams, Backlog: 1 << 20}
			queue, delivered, half := 0.0, 0.0, 0.0
			var most float64
			for s.At < 20*time.Second {
				d := c.Update(s)
				require.NotContains(t, []State{Compete, Yield}, d.State, "at %v: %v", s.At, c)
				dt := d.Every.Seconds()
				rate := min(d.Rate, 2*line)
				sent := min(line, rate+queue/dt)
				queue = max(0, queue+(rate-line)*dt)
				wait := 0.0
				if !math.IsInf(d.Rate, 1) && d.State != Startup && d.State != Drain {
					wait = tt.intervals * streams * mss / rate
				}
				s.At += d.Every
				delivered += sent * dt
				s.Delivered = int64(delivered)
				s.InFlight = int64(sent * (tt.base.Seconds() + queue/line + wait/2))
				s.RTT = tt.base + seconds(queue/line+wait)
				if s.At > 10*time.Second {
					most = max(most, queue/line)
				} else {
					half = delivered
				}
			}
			require.Greater(t, (delivered-half)/10, 0.96*line, "%v", c)
			require.Less(t, most, 0.02)
		})
	}
}
