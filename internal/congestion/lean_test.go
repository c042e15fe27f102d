package congestion

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLeans: beside others whose windows bound them, a session finds the queue with which it has its part of the
// line. Alone, it only tries one for a moment now and then, and does so again once they are gone.
func TestLeans(t *testing.T) {
	for _, c := range []struct {
		priority    Priority
		theirs      float64 // window, as a part of what fills the line
		least, most float64 // part of the line
	}{
		{Normal, 0.95, 0.29, 0.45},
		{High, 0.45, 0.68, 0.9},
	} {
		leans(t, c.priority, c.theirs, c.least, c.most)
	}
}

func leans(t *testing.T, priority Priority, theirs, least, most float64) {
	const line, base, tick = 100e6, 50 * time.Millisecond, 25 * time.Millisecond
	c := New()
	c.SetPriority(priority)
	c.enter(Cruise, 0)
	s := Sample{MSS: 1448, Streams: 8, Backlog: 1 << 20, RTT: base}
	// run returns the mean queue and the session's part of the line.
	run := func(window float64, long time.Duration) (queue time.Duration, part float64) {
		before, n := s.Delivered, 0
		for end := s.At + long; s.At < end; n++ {
			s.At += tick
			s.RTT = base + c.lean.queue
			s.Delivered += int64((line - window/s.RTT.Seconds()) * tick.Seconds())
			c.model.update(s)
			c.leans(s, base)
			queue += c.lean.queue
		}
		return queue / time.Duration(n), float64(s.Delivered-before) / line / long.Seconds()
	}
	queue, _ := run(0, time.Minute)
	require.Less(t, queue, 3*time.Millisecond)
	run(theirs*line*base.Seconds(), time.Minute)
	_, part := run(theirs*line*base.Seconds(), time.Minute)
	require.Greater(t, part, least)
	require.Less(t, part, most)
	run(0, time.Minute)
	queue, _ = run(0, time.Minute)
	require.Less(t, queue, 3*time.Millisecond)
	queue, part = run(0.1*line*base.Seconds(), time.Minute)
	require.Less(t, queue, 3*time.Millisecond, "nobody has much")
	require.Greater(t, part, 0.89)
}
