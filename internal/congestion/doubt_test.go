package congestion

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHidden: a base far above the least RTT may hold a queue of others.
func TestHidden(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		what string
		set  func(*Controller, *Sample)
		want bool
	}{
		{"it does", func(*Controller, *Sample) {}, true},
		{"the base is the least", func(_ *Controller, s *Sample) { s.Least = 23 * ms }, false},
		{"the least is unknown", func(_ *Controller, s *Sample) { s.Least = 0 }, false},
		{"jitter explains it", func(c *Controller, _ *Sample) { c.model.noise = 2 * ms }, false},
		{"low priority knows in another way", func(c *Controller, _ *Sample) { c.priority = Low }, false},
	} {
		x, s := New(), Sample{Least: 18 * ms, MSS: 1448}
		x.line, x.doubts.best, x.model.base = 3e6, 4e6, 24*ms
		c.set(x, &s)
		require.Equal(t, c.want, x.hidden(s), c.what)
	}
}

// TestUnsure: a session that cruises above the least RTT for a while sends less for a moment, a few times.
func TestUnsure(t *testing.T) {
	const ms = time.Millisecond
	c, s := New(), Sample{Least: 18 * ms, RTT: 26 * ms, MSS: 1448, Streams: 1, InFlight: 1e5, Backlog: 1e6}
	c.line, c.doubts.best, c.model.base, c.state = 4e6, 4e6, 25*ms, Cruise
	for s.At = 0; s.At < 20*time.Second; s.At += Every {
		c.last = s
		if soon := s.At-c.since <= leastRest; c.unsure(s) {
			require.False(t, soon, "at %v", s.At)
			require.Equal(t, Doubt, c.state)
			c.enter(Cruise, s.At)
		}
	}
	require.Equal(t, mostChecks, c.doubts.check.number)
}

// TestPackets: a session that others have pushed aside does not take the line for as slow as its part.
func TestPackets(t *testing.T) {
	c := New()
	c.line, c.known, c.last.At = 1e5, 1e6, time.Minute
	require.Equal(t, 20*time.Millisecond, c.packets(2, 1000))
	c.others.left = 50 * time.Second
	require.Equal(t, 2*time.Millisecond, c.packets(2, 1000))
	c.last.At += time.Hour
	require.Equal(t, 20*time.Millisecond, c.packets(2, 1000))
}

// TestLonger: a way becomes longer at once. A queue of others that grows step by step is none, even if it
// does not change while a session with a small part of the line sends less.
func TestLonger(t *testing.T) {
	const ms = time.Millisecond
	longer := doubts{jump: 24 * ms, dip: 25 * ms, top: 26 * ms, part: 8, best: 10}
	for _, c := range []struct {
		what string
		set  func(*doubts)
		want bool
	}{
		{"at once", func(*doubts) {}, true},
		{"step by step", func(d *doubts) { d.jump = 6 * ms }, false},
		{"it falls with the rate", func(d *doubts) { d.dip = 18 * ms }, false},
		{"others have taken a part", func(d *doubts) { d.part = 4 }, false},
	} {
		x := New()
		x.model.base, x.doubts = 50*ms, longer
		c.set(&x.doubts)
		require.Equal(t, c.want, x.longer(), c.what)
	}
}

// TestSlowerOnce: a queue that does not flow off, however little is sent, is that of others, also where they take
// more and more of the line. A line that has become slower is the reason once at most.
func TestSlowerOnce(t *testing.T) {
	const (
		base = 20 * time.Millisecond
		tick = 25 * time.Millisecond
	)
	x := New()
	x.model.base, x.line, x.had, x.doubts.best = base, 1e6, 1e6, 1e6
	s := Sample{At: time.Second, MSS: 1448, Streams: 4, Least: base, RTT: 2 * base, Backlog: 1 << 20, Delivered: 1 << 20}
	x.last, x.outage.heard = s, s.At
	x.enter(Doubt, s.At)
	for x.state == Doubt {
		require.Less(t, s.At, 3*time.Second)
		got := 0.7 * min(x.rate, 1e6) // bytes/s, of what was sent
		s.At += tick
		s.Delivered += int64(got * tick.Seconds())
		s.InFlight = int64(got * s.RTT.Seconds())
		x.Update(s)
	}
	require.Equal(t, Compete, x.state)
}

// TestCheckEnds: an outage ends a check. The next doubt is not that check.
func TestCheckEnds(t *testing.T) {
	const base = 20 * time.Millisecond
	x := New()
	x.model.base, x.line, x.rate = base, 1e8, 1e8
	x.doubts.check.wanted = true
	s := Sample{At: time.Second, MSS: 1448, Streams: 4, Least: base, RTT: base}
	x.last = s
	require.True(t, x.unsure(s))
	require.InDelta(t, checkShare*x.line, x.rate, 1)
	x.resume(s)
	x.enter(Doubt, s.At)
	x.doubt(s)
	require.Greater(t, x.rate, checkShare*x.line)
}
