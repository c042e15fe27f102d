package congestion

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestForetoldLine: a session of low priority that took a burst at the start, or before others came, for what the line
// carries, learns from a queue of its own that it is less. The line carries 30 Mbit/s here.
func TestForetoldLine(t *testing.T) {
	t.Parallel()
	const (
		carries, believed = 30e6 / 8, 56e6 / 8
		base              = 15 * ms
		trip              = 25 * ms
	)
	after := func(queue time.Duration) (*Controller, Sample) {
		c := &Controller{priority: Low, state: Cruise, line: believed, rate: believed}
		var s Sample
		for i := range 40 {
			at := time.Duration(i+1) * LeastEvery
			s = Sample{
				At: at, RTT: base, MSS: 1448, Streams: 4, Backlog: 1 << 20,
				Delivered: int64(carries * at.Seconds()), InFlight: int64(carries * (base + queue).Seconds()),
			}
			if i > 10 {
				s.RTT += queue
			}
			c.prior, c.last = c.last, s
			c.model.update(s)
		}
		return c, s
	}

	c, s := after(0)
	c.state, c.since, c.from, c.had = Drain, s.At-10*base, c.model.past[0], carries
	c.drain(s) // the start ends
	require.Equal(t, Cruise, c.state)
	c.remember(s, LeastEvery)
	require.Zero(t, c.known, "it was not measured")

	c, s = after(12 * ms)
	c.guess = true
	c.cruise(s, LeastEvery)
	require.InEpsilon(t, carries, c.line, 0.05, "the start")

	for _, x := range []struct {
		back bool // others were there, and the session has not had the whole line since
		line float64
	}{{false, believed}, {true, carries}} {
		c, s = after(0)
		c.others.back = x.back
		c.room.since = s.At - roomTrips*trip - standingTime - ms
		require.False(t, c.makesRoom(s, c.aim(s), trip))
		require.InEpsilon(t, x.line, c.line, 0.05, "nobody came, back %v", x.back)
	}
}
