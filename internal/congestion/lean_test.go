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

// windowed has a session begin with little of a line, beside a flow that its window bounds. The queue of that is in all RTTs,
// and its bursts let the RTT and what is in flight come and go. It returns when the session first had a quarter of the
// line, and its part at the end. silent reports whether nothing arrives at a time, and late is how much later than usual
// the sample after that comes.
func windowed(silent func(at time.Duration) bool, late func(i int) time.Duration) (soon time.Duration, part float64) {
	const line, base, theirs, tick = 283e6 / 8, 80 * time.Millisecond, 3.4e6, 25 * time.Millisecond
	c := New()
	ours, s := 0.6e6, Sample{MSS: 1448, Streams: 4, Backlog: 1 << 20, Delivered: 1 << 20, Least: base, Deviation: 20 * time.Millisecond}
	c.model.base, c.line, c.rate, c.doubts.best = 97*time.Millisecond, 44e6/8, 44e6/8, 60e6/8
	c.others.first = base
	c.enter(Cruise, 0)
	for i := 0; s.At < 25*time.Second; i++ {
		dt := tick + late(i)
		s.At += dt
		if silent(s.At) {
			c.Update(s)
			continue
		}
		got := line * ours / (ours + theirs)
		ours += (min(c.rate, 2*line) - got) * dt.Seconds()
		s.Delivered += int64(got * dt.Seconds())
		burst := []float64{0, 0.1, 0.25, 0.1}[i%4] // of a round trip
		s.RTT = seconds((ours + theirs) / line * (0.95 + burst/2))
		s.InFlight = int64(ours * (1 + burst))
		c.Update(s)
		if part = ours / (ours + theirs); part >= 0.25 && soon == 0 {
			soon = s.At
		}
	}
	return soon, part
}

// TestProbes: a session with little of the line soon finds out that more brings more, and takes its part.
func TestProbes(t *testing.T) {
	soon, part := windowed(func(time.Duration) bool { return false }, func(int) time.Duration { return 0 })
	require.Less(t, soon, 6*time.Second, "a quarter of the line")
	require.Greater(t, part, 0.25)
	require.Less(t, part, 0.45)
}

// TestProbesThroughPauses: so does one whose host is late now and then, and one after an outage.
func TestProbesThroughPauses(t *testing.T) {
	for at := time.Second; at < 8*time.Second; at += 100 * time.Millisecond {
		_, part := windowed(
			func(now time.Duration) bool { return now > at && now < at+time.Second },
			func(i int) time.Duration {
				if i%120 < 2 {
					return 50 * time.Millisecond
				}
				return 0
			})
		require.Greater(t, part, 0.2, "outage at %v", at)
	}
}
