package congestion

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A session that shares the line with others gives it up when its priority becomes low, and takes
// its share when it is no longer low. It does not wait for the next test whether others are gone.
func TestPriorityChangesBesideOthers(t *testing.T) {
	c := New()
	s := Sample{RTT: 20 * time.Millisecond, MSS: 1448, Streams: 4, Backlog: 1 << 20, InFlight: 200_000}
	line := int64(10e6) // bytes/s, of ours
	update := func(p Priority) Decision {
		s.At += 25 * time.Millisecond
		s.Delivered += line / 40
		c.SetPriority(p)
		return c.Update(s)
	}
	for range 20 {
		update(Normal)
	}
	s.RTT, line = 40*time.Millisecond, 5e6 // the queue of others, however little is sent
	for range 400 {
		if update(Normal).State == Compete {
			break
		}
	}
	require.Equal(t, Compete, update(Normal).State)
	c.loss.lossy = true // a session that yields uses cubic nevertheless: BBR sends single segments then
	low := update(Low)
	require.Equal(t, Gentle, low.Control)
	require.Equal(t, Yield, low.State)
	require.Less(t, low.Rate, 1e6, "bytes/s of 5 million")
	require.Equal(t, Compete, update(Normal).State)

	c, s, line = New(), Sample{RTT: 20 * time.Millisecond, MSS: 1448, Streams: 4, Backlog: 1 << 20, InFlight: 200_000}, 10e6
	for range 20 {
		update(Low)
	}
	s.RTT, line = 40*time.Millisecond, 5e6
	for range 400 {
		if update(Low).State == Yield {
			break
		}
	}
	require.Equal(t, Yield, update(Low).State)
	require.Greater(t, update(Normal).Rate, 1e6, "a session that never shared before begins with its part, too")
}

// More streams carry what few cannot, and the longer the path, the more it takes.
func TestGentleStreams(t *testing.T) {
	for _, c := range []struct {
		rate float64 // bit/s
		rtt  time.Duration
		loss float64
		want int
	}{
		{1e9, 50 * time.Millisecond, 1e-4, 53},
		{1e9, 50 * time.Millisecond, 1e-6, 2},
		{100e6, 20 * time.Millisecond, 1e-4, 3},
		{100e6, 200 * time.Millisecond, 1e-4, 9},
	} {
		require.Equal(t, c.want, gentleStreams(c.rate/8, c.rtt, 1448, c.loss))
	}
}

// The first bound is the rate at which the streams began, or what a kernel sends at once. What is
// delivered raises it, and never lowers it.
func TestBegan(t *testing.T) {
	const mss, streams, rtt = 1410, 16, 100 * time.Millisecond
	const atOnce = startGain * firstWindow * streams * mss * 10 // bytes/s
	firstRise := doubleGain * math.Exp2(0.375)                  // which is how far the middle of a decision is ahead, in round trips
	for _, c := range []struct{ began, delivered, want float64 }{
		{0, 1e6, max(atOnce, firstRise*1e6)},
		{0, 3e6, firstRise * 3e6},
		{2e6, 0.4e6, 2e6},
		{2e6, 1e6, firstRise * 1e6},
	} {
		con := New()
		s := Sample{MSS: mss, Streams: streams, RTT: rtt, Began: c.began, InFlight: 1e5, Backlog: 1e7}
		d := con.Update(s)
		require.True(t, math.IsInf(d.Rate, 1), "nothing is known")
		for range 8 { // two round trips
			s.At += 25 * time.Millisecond
			s.Delivered += int64(c.delivered / 40)
			if d = con.Update(s); !math.IsInf(d.Rate, 1) {
				s.Began = 100e6 // they began once
			}
		}
		require.Equal(t, Startup, d.State)
		require.InEpsilon(t, c.want, d.Rate, 0.01, "%+v", c)
	}
}

// TestFewPackets: on a narrow line, one or two acknowledgements show no rate, neither in the start
// nor while its queue flows off. A stream that got a far too low rate for a moment would wait for
// seconds before it may send again.
func TestFewPackets(t *testing.T) {
	const mss, rate = 1448, 64e3 / 8
	c := New()
	s := Sample{MSS: mss, Streams: 1, Delivered: 3 * mss, InFlight: 10 * mss, Backlog: 200 * mss, RTT: 200 * time.Millisecond}
	delivered, least := 0.0, math.Inf(1)
	for c.state != Cruise {
		require.Less(t, s.At, 20*time.Second)
		s.At += 25 * time.Millisecond
		if c.state == Startup { // two more packets leave for each acknowledgement
			s.InFlight = int64(10+delivered/mss) * mss
		}
		before := int64(delivered / mss)
		delivered += rate * 0.025
		if n := int64(delivered/mss) - before; n > 0 {
			s.Delivered += n * mss
			if c.state != Startup {
				s.InFlight = max(0, s.InFlight-n*mss)
			}
			s.RTT += (seconds(float64(s.InFlight)/rate) - s.RTT) / 8
		}
		d := c.Update(s)
		if delivered < fewPackets*mss {
			require.True(t, math.IsInf(d.Rate, 1), "after %.1f packets: %v", delivered/mss, d)
			continue
		}
		require.Less(t, d.Line, 2*rate)
		least = min(least, d.Rate)
	}
	require.Greater(t, least, 0.1*rate)
	require.InEpsilon(t, rate, c.line, 0.3)
}

// Streams that send much at once fill a short queue, and lose some of it: that is no sign of others.
// A session of low priority yields to others who fill it.
func TestSurge(t *testing.T) {
	const mss, rtt, rate = 1448, 20 * time.Millisecond, 12.5e6
	for _, surge := range []bool{true, false} {
		c := New()
		c.SetPriority(Low)
		s := Sample{RTT: rtt, MSS: mss, Streams: 16, Backlog: 1 << 20, InFlight: rate / 50}
		step := func(queue, more time.Duration, lost int64) Decision {
			s.At += 25 * time.Millisecond
			s.RTT = rtt + queue
			s.InFlight = int64(c.rate * (s.RTT + more).Seconds())
			s.Delivered += rate/40 - lost*mss
			s.Lost += lost * mss
			return c.Update(s)
		}
		c.rate = rate
		for range 100 {
			step(0, 0, 0)
		}
		c.state, c.rate, c.line = Cruise, rate, rate
		for range 40 {
			step(200*time.Microsecond, 0, 0)
		}
		c.bound(rate, s.At+firstHold)
		more := time.Duration(0)
		if surge {
			more = 4 * time.Millisecond
		}
		step(600*time.Microsecond, more, 0)
		step(1200*time.Microsecond, 0, 10)
		state := step(1200*time.Microsecond, 0, 10).State
		require.Equal(t, surge, state == Cruise, "%v, surge %v", state, surge)
	}
}

// Streams that begin while others send disturb the RTT and what is delivered for a moment. That is
// no sign of others, but the same without new streams is.
func TestMoreStreams(t *testing.T) {
	const mss, rtt, rate = 1448, 20 * time.Millisecond, 12.5e6
	for _, more := range []int{8, 0} {
		c := New()
		c.SetPriority(Low)
		s, sent := Sample{RTT: rtt, MSS: mss, Streams: 16, Backlog: 1 << 20}, rate
		step := func(queue time.Duration, part float64) Decision {
			s.At += 25 * time.Millisecond
			s.RTT = rtt + queue
			s.InFlight = int64(min(c.rate, rate) * s.RTT.Seconds())
			s.Delivered += int64(min(part*rate, sent) / 40)
			sent = c.rate // what leaves until the next sample
			return c.Update(s)
		}
		c.rate = rate
		for range 100 {
			step(0, 1)
		}
		c.state, c.rate, c.line = Cruise, rate, rate
		for range 40 {
			step(200*time.Microsecond, 1)
		}
		s.Streams += more
		state := Cruise
		for range 22 {
			if now := step(6*time.Millisecond, 0.7).State; now != Cruise {
				state = now
			}
		}
		require.Equal(t, more > 0, state == Cruise, "%v, %d more", state, more)
	}
}

// Nothing but the rate bounds what paced streams have in flight: with too much, the rate does not
// grow in the start. Other streams double by themselves, and shall not wait.
func TestStartOfPacedStreams(t *testing.T) {
	rate := func(began float64, flying int64) float64 {
		c, d := New(), Decision{}
		for i := range int64(4) {
			d = c.Update(Sample{
				At: time.Duration(i+1) * 25 * time.Millisecond, Delivered: i * 250_000, InFlight: flying,
				Backlog: 1 << 20, RTT: 20 * time.Millisecond, MSS: 1252, Streams: 16, Began: began,
			})
		}
		return d.Rate / d.Line
	}
	require.Greater(t, rate(1e7, 200_000), 2.0)
	require.InDelta(t, 1, rate(1e7, 2_000_000), 1e-9)
	require.Greater(t, rate(0, 2_000_000), 2.0)
}

// A queue that was there before the session shows when it flows off: the RTT is below that of the
// handshakes. Only a session of low priority yields to it.
func TestOccupied(t *testing.T) {
	for p, want := range map[Priority]State{
		Low: Yield, Normal: Startup,
	} {
		c := New()
		c.SetPriority(p)
		s := Sample{MSS: 1448, Streams: 4, Backlog: 1 << 20, InFlight: 100_000, Least: 40 * time.Millisecond}
		var d Decision
		for i := range 8 {
			s.At += 25 * time.Millisecond
			s.Delivered += int64(100_000 * (i + 1))
			s.RTT = 40 * time.Millisecond
			if i > 5 {
				s.RTT = 25 * time.Millisecond
			}
			d = c.Update(s)
		}
		require.Equal(t, want, d.State, "priority %v", p)
	}
}

// TestSpreads: what loss leaves goes to other streams while nobody else is there.
func TestSpreads(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Controller)
		want   bool
	}{
		"steady":            {func(*Controller) {}, true},
		"others were there": {func(c *Controller) { c.others.left = 90 * time.Second }, false},
		"long ago":          {func(c *Controller) { c.others.left = 10 * time.Second }, true},
		"quick streams":     {func(c *Controller) { c.loss.lossy = true }, true},
		"it still starts":   {func(c *Controller) { c.state = Startup }, false},
		"another session":   {func(c *Controller) { c.siblings.Sessions, c.siblings.at = 2, c.last.At }, false},
		"it has yielded":    {func(c *Controller) { c.priority, c.others.back = Low, true }, false},
		"less in a doubt":   {func(c *Controller) { c.state = Doubt }, false},
	} {
		x := New()
		x.state, x.last = Cruise, Sample{At: 100 * time.Second, MSS: 1448, Streams: 4}
		c.change(x)
		require.Equal(t, c.want, x.decision().Spread, name)
	}
}
