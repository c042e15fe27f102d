package congestion

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWindowed: the host of the peer has too little time for a while. Less is delivered, and the RTT grows
// in spite of less that is sent, as if others had come. Where the peer's windows hold streams meanwhile, the
// session keeps what it knows of the line; otherwise it looks for others.
func TestWindowed(t *testing.T) {
	const (
		line = 5e9 / 8
		base = 50 * time.Millisecond
		tick = 25 * time.Millisecond
		mss  = 1448
	)
	for _, c := range []struct {
		name     string
		windowed float64
		priority Priority
		keeps    bool
	}{
		{"the windows of the peer hold streams", 0.3, Normal, true},
		{"they hardly do", 0.01, Normal, false},
		{"of low priority, in doubt, it yields", 0.3, Low, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := New()
			x.SetPriority(c.priority)
			x.model.base, x.line, x.rate, x.known, x.doubts.best = base, line, line, line, line
			x.enter(Cruise, 0)
			s := Sample{MSS: mss, Streams: 16, Least: base, Backlog: 1 << 20, Delivered: 1 << 20}
			for s.At < 3*time.Second {
				carries := 1.0
				s.RTT, s.Windowed = base, 0
				if s.At > time.Second {
					carries, s.Windowed = 0.4, c.windowed
					s.RTT += min((s.At-time.Second)/20, 12*time.Millisecond)
				}
				s.At += tick
				got := min(x.decision().Rate, carries*line)
				s.Delivered += int64(got * tick.Seconds())
				s.InFlight = int64(got * s.RTT.Seconds())
				d := x.Update(s)
				if others := d.State == Compete || d.State == Yield; others {
					require.False(t, c.keeps, "%v: %v", s.At, d.State)
					return
				}
			}
			require.Equal(t, c.keeps, x.line > 0.7*line, "%.0f of %.0f", x.line, line)
		})
	}
}
