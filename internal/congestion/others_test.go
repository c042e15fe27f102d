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
	require.InDelta(t, 1, grows(func(c *Controller) { c.others.quick, c.model.delivered = time.Minute, 1 }), 0)
	require.Greater(t, grows(func(c *Controller) { c.model.standing = 0 }), 5.0)
	require.InDelta(t, 1, grows(func(c *Controller) { c.others.bound = true }), 0)
	require.InDelta(t, 1.2, grows(func(c *Controller) { c.others.bound, c.model.standing = true, 0 }), 0.03)
	short := func(standing time.Duration) float64 {
		return grows(func(c *Controller) {
			c.others.bound, c.others.brim, c.model.standing = true, 8*time.Millisecond, standing
		})
	}
	require.InDelta(t, 1, short(4*time.Millisecond), 0, "all of the queue is short, and others fill it")
	require.InDelta(t, 1.2, short(0), 0.03, "they do not")
}

// TestWeigh: a session that turns out to have a small part of the line looks for more and counts as more flows,
// is quick for long where that does not help, and counts as one again with most of the line. What a test shows in
// which others have lost something does not count, once.
func TestWeigh(t *testing.T) {
	c := New()
	c.state, c.line, c.others.flows, c.others.exact = Compete, 1e6, 1, true
	c.model.base, c.model.standing = 20*time.Millisecond, 20*time.Millisecond
	c.from = Sample{InFlight: 1e6}
	weigh := func(part float64, mss int, lost int64) int {
		c.last = Sample{At: c.last.At + 5*time.Second, MSS: mss, Lost: c.from.Lost + lost}
		c.others.part = part
		c.weigh(c.last)
		return c.others.flows
	}
	for _, flows := range []int{2, 4, 4} {
		require.Equal(t, flows, weigh(0.05, 1448, 0))
		require.Greater(t, c.others.quick, c.last.At)
	}
	for _, flows := range []int{2, 1, 1} {
		require.Equal(t, flows, weigh(0.6, 1448, 0))
		require.Less(t, c.others.quick, c.last.At)
	}
	require.Equal(t, 1, weigh(0.05, 300_000, 0)) // few packets for each of them
	require.Equal(t, 1, weigh(0.05, 1448, 1e6))
	require.Equal(t, 2, weigh(0.05, 1448, 1e6))
}

// TestClaim: what is more than the session's part goes back to others at once, and one that has less looks for the
// rest. A queue that is gone shows only that the part is not less.
func TestClaim(t *testing.T) {
	for _, c := range []struct {
		what     string
		priority Priority
		part     float64
		gone     bool
		want     float64 // bound, where the session has 100 of the line
		quick    bool
	}{
		{"most of the line", Normal, 0.7, false, 50, false},
		{"about its part", Normal, 0.32, false, 100 * mostPart / 0.32, false},
		{"less", Normal, 0.2, false, 100 * mostPart / 0.2, true},
		{"next to nothing", Normal, -1, false, 100 * mostPart / leastPart, true},
		{"all of it: nobody else is there", Normal, 1, false, 200, false},
		{"at least most of it", Normal, 0.7, true, 50, false},
		{"at least a fifth", Normal, 0.2, true, 200, false},
		{"high, with nearly all", High, 0.88, false, 100 * highPart / 0.88, false},
		{"high, with half", High, 0.5, false, 100 * highPart / 0.5, true},
		{"high, with its part", High, 0.75, false, 100 * highPart / 0.75, false},
	} {
		x := New()
		x.state, x.priority, x.line, x.others.most, x.others.exact = Compete, c.priority, 100, 200, !c.gone
		x.claim(c.part)
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
			c.state, c.rate, c.line, c.model.base, c.lean = Cruise, 4e6, 4e6, 100*time.Millisecond, lean{}
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
