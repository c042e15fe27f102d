package congestion

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPortion: how much a change of what is in flight changes the RTT shows the part of the line.
func TestPortion(t *testing.T) {
	const trip = 40 * time.Millisecond
	from := Sample{InFlight: 200_000, RTT: trip}
	for _, c := range []struct {
		what     string
		inFlight int64
		rtt      time.Duration
		want     float64
	}{
		{"all of it: the RTT falls as much", 150_000, trip * 3 / 4, 1},
		{"half", 150_000, trip * 7 / 8, 0.5},
		{"a tenth, with more in flight", 400_000, trip * 11 / 10, 0.1},
		{"nothing is known without a change", 200_000, trip, 0},
		{"others take what is left", 150_000, trip * 9 / 8, -0.5},
	} {
		require.InDelta(t, c.want, portion(from, Sample{InFlight: c.inFlight, RTT: c.rtt}), 0.01, c.what)
	}
	require.Zero(t, portion(Sample{InFlight: 1}, from))
}

// TestJoins: free streams look for no more than the session had, take more slowly behind a deep
// queue, and soon where there is room.
func TestJoins(t *testing.T) {
	const lag = 40 * time.Millisecond
	grows := func(set func(*Controller)) float64 {
		c := New()
		c.others.most, c.model.base, c.model.standing = 1, 20*time.Millisecond, 20*time.Millisecond
		set(c)
		most := 1.0
		for at := time.Duration(0); at < time.Second; at += lag {
			c.prior, c.last = c.last, Sample{At: at}
			most = c.joins(c.last, lag)
		}
		return most
	}
	require.InDelta(t, 1.05, grows(func(*Controller) {}), 0.01)
	require.InDelta(t, 1, grows(func(c *Controller) { c.others.quick = time.Minute }), 0)
	require.Greater(t, grows(func(c *Controller) { c.others.quick, c.others.poor = time.Minute, true }), 10.0)
	require.Greater(t, grows(func(c *Controller) { c.model.standing = 0 }), 5.0)
}

// TestWeigh: a session that turns out to have a small part of the line looks for more and counts as
// more flows, and one with most of it counts as one again.
func TestWeigh(t *testing.T) {
	c := New()
	c.model.base, c.model.standing, c.others.flows = 20*time.Millisecond, 20*time.Millisecond, 1
	c.from = Sample{InFlight: 200_000, RTT: 40 * time.Millisecond}
	mss := 1448
	weigh := func(at, rtt time.Duration) int { // with three quarters of that in flight
		c.model.past = nil
		for i := range 10 {
			c.model.past = append(c.model.past, Sample{
				At: at + time.Duration(i)*rtt, Delivered: int64(i) * 150_000, RTT: rtt, MSS: mss,
			})
		}
		c.weigh(c.model.past[9], 0)
		return c.others.flows
	}
	for _, flows := range []int{2, 4, 4} {
		before := c.others.quick
		require.Equal(t, flows, weigh(before+time.Second, 39500*time.Microsecond))
		require.True(t, c.others.poor)
		require.Greater(t, c.others.quick, before)
	}
	for _, flows := range []int{2, 1, 1} {
		before := c.others.quick
		require.Equal(t, flows, weigh(time.Minute, 34*time.Millisecond))
		require.Equal(t, before, c.others.quick)
	}
	mss = 20_000 // a packet for each of them, or less
	require.Equal(t, 1, weigh(2*time.Minute, 39500*time.Microsecond))
}

// TestLeave: what is more than a fair part goes back to others at once, and a session of high priority that
// has less than it may looks for the rest.
func TestLeave(t *testing.T) {
	for _, c := range []struct {
		what     string
		priority Priority
		part     float64
		want     float64 // bound, where the session has 100 of the line
		quick    bool
	}{
		{"most of the line", Normal, 0.7, 50, false},
		{"a fair part", Normal, 0.3, 200, false},
		{"all of it: nobody else is there", Normal, 1, 200, false},
		{"a negative part shows nothing", Normal, -1, 200, false},
		{"high, with nearly all", High, 0.88, 100 * highPart / 0.88, false},
		{"high, with half", High, 0.5, 160, true},
		{"high, with next to nothing", High, 0.01, 320, true},
		{"high, with its part", High, 0.75, 200, false},
	} {
		x := New()
		x.state, x.priority, x.line, x.others.most = Compete, c.priority, 100, 200
		x.leave(c.part)
		require.InDelta(t, c.want, x.others.most, 0.01, c.what)
		require.Equal(t, c.quick, x.others.quick > 0, c.what)
	}
}

// TestBurstsAreNoStalls: a silence that comes back in each round trip comes from the bursts of others,
// and a single one from a host.
func TestBurstsAreNoStalls(t *testing.T) {
	stalls := func(every time.Duration) (n int) {
		c := New()
		c.enter(Cruise, 0)
		c.model.base, c.rate, c.line = 100*time.Millisecond, 4e6, 4e6
		c.outage.streams, c.outage.tick = 1, 25*time.Millisecond
		for at := every; at < 10*time.Second; at += every {
			s := Sample{At: at, RTT: c.model.base, InFlight: 400_000, MSS: 1448, Streams: 1}
			c.prior, c.last, c.outage.stall = s, s, stall{}
			if c.stalls(s, 25*time.Millisecond, 60*time.Millisecond) {
				n++
			}
		}
		return n
	}
	require.LessOrEqual(t, stalls(100*time.Millisecond), 1)
	require.Equal(t, 9, stalls(time.Second))
}

// TestRested: the RTT swings by as much in both cases. Jitter lets it fall to its base now and then;
// where it never does, others fill the queue, and the aim makes no allowance for their bursts.
func TestRested(t *testing.T) {
	aim := func(least time.Duration) time.Duration {
		c := New()
		c.enter(Cruise, 0)
		c.model.base, c.rate, c.line = 100*time.Millisecond, 4e6, 4e6
		s := Sample{MSS: 1448, Streams: 4, InFlight: 400_000, Backlog: 1 << 20}
		for at := 25 * time.Millisecond; at < 5*time.Second; at += 25 * time.Millisecond {
			s.At, s.Delivered, s.RTT = at, int64(4e6*at.Seconds()), 100*time.Millisecond+least
			if at/(25*time.Millisecond)%2 == 0 {
				s.RTT += 4 * time.Millisecond
			}
			c.Update(s)
			c.state, c.rate, c.line, c.model.base = Cruise, 4e6, 4e6, 100*time.Millisecond
		}
		return c.aim(s)
	}
	require.Greater(t, aim(time.Millisecond), 12*time.Millisecond)
	require.Less(t, aim(10*time.Millisecond), 9*time.Millisecond)
}

// TestLowBesideBursts: packets meet a queue of others, whatever the session sends. A short one is that
// of bursts on a line with room; a longer one fills the line, and a session of low priority yields.
func TestLowBesideBursts(t *testing.T) {
	const tick, free = 25 * time.Millisecond, 60e6
	rate := func(queue time.Duration) float64 {
		c := New()
		c.SetPriority(Low)
		s := Sample{MSS: 1448, Streams: 4, Least: 50 * time.Millisecond, Backlog: 1 << 20, RTT: 50 * time.Millisecond}
		d := c.Update(s)
		for s.At < 20*time.Second {
			s.At += tick
			sent := min(d.Rate, free)
			s.Delivered += int64(sent * tick.Seconds())
			if s.At > 4*tick {
				s.RTT = 50*time.Millisecond + queue
			}
			if s.At/tick%2 == 0 {
				s.RTT += time.Millisecond
			}
			s.InFlight = int64(sent * s.RTT.Seconds())
			d = c.Update(s)
		}
		return d.Rate
	}
	require.Greater(t, rate(2500*time.Microsecond), free/2)
	require.Less(t, rate(8*time.Millisecond), free/20)
}
