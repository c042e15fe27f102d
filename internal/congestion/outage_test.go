package congestion

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSilences: a host that pauses now and then stalls all streams, each time. Bursts of others that fill the queue once in
// a round trip do not, although one of them is short now and then.
func TestSilences(t *testing.T) {
	const rate, base, rtt, tick = 50e6 / 8, 90 * time.Millisecond, 130 * time.Millisecond, 5 * time.Millisecond
	for _, c := range []struct {
		what  string
		every time.Duration // between two silences
		long  func(i int) time.Duration
		want  int // in ten seconds
	}{
		{"pauses", time.Second, func(int) time.Duration { return 80 * time.Millisecond }, 9},
		{"bursts", rtt, func(i int) time.Duration { return time.Duration([]int{30, 70, 70, 70}[i%4]) * time.Millisecond }, 1},
	} {
		x := New()
		x.model.base, x.line, x.rate, x.doubts.best = base, rate, rate, rate
		x.enter(Cruise, 0)
		s := Sample{MSS: 1448, Streams: 4, Least: base, Backlog: 1 << 20, Delivered: 1 << 20, RTT: rtt}
		stalls, seen, waits := 0, time.Duration(0), 0.0
		for s.At < 10*time.Second {
			s.At += tick
			waits += rate * tick.Seconds()
			if s.At%c.every >= c.long(int(s.At/c.every)) {
				s.Delivered, waits = s.Delivered+int64(waits), 0
			}
			s.InFlight = int64(rate*rtt.Seconds() + waits)
			x.Update(s)
			if last := x.outage.stall.seen; last > seen+c.every/2 {
				stalls++
				seen = last
			}
		}
		require.InDelta(t, c.want, stalls, 1, c.what)
	}
}
