package congestion

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestByChance: what free streams lose shows whether loss comes by chance, once they have sent enough.
func TestByChance(t *testing.T) {
	const mss = 1448
	for _, c := range []struct {
		what           string
		random, losses float64
		packets        float64 // in a second
		want           bool
	}{
		{"as much as ever", 0.01, 0.012, 10_000, true},
		{"more, as streams fill a queue", 0.01, 0.04, 10_000, false},
		{"next to nothing of many", 0.05, 0.004, 10_000, false},
		{"nothing of few", 0.01, 0, 100, true},
	} {
		x := New()
		x.model.base, x.model.mss = 20*time.Millisecond, mss
		x.model.steady, x.model.losses, x.loss.random = c.packets*mss, c.losses, c.random
		require.Equal(t, c.want, x.byChance(Sample{MSS: mss}), c.what)
	}
}

// TestLikely: a loss with some queue is no sign of others as long as what is lost without one explains it.
func TestLikely(t *testing.T) {
	const mss = 1448
	for _, c := range []struct {
		what         string
		lost, passed int64   // packets, in the last round trip
		calm, sent   float64 // packets lost and sent without a queue
		want         bool
	}{
		{"one packet, as many as ever", 1, 100, 10, 10_000, true},
		{"two packets, more than ever", 2, 100, 10, 10_000, false},
		{"two of more packets", 2, 1000, 10, 10_000, true},
		{"many of more packets", 9, 1000, 10, 10_000, false},
		{"one packet where none was lost", 1, 100, 0, 10_000, false},
		{"one packet where nearly nothing was sent", 1, 100, 0, 10, true},
		{"many packets where nothing was sent", 9, 100, 0, 0, false},
		{"many packets of very many", 3000, 400_000, 1000, 400_000, false},
	} {
		x := New()
		x.loss.calm = tally{c.calm * mss, c.sent * mss}
		x.model.base = 100 * time.Millisecond
		x.model.past = []Sample{{At: time.Second, MSS: mss}}
		s := Sample{
			At: 1100 * time.Millisecond, RTT: 100 * time.Millisecond, MSS: mss,
			Delivered: c.passed * mss, Lost: c.lost * mss,
		}
		require.Equal(t, c.want, x.likely(s), c.what)
	}
}

// TestHeeds: a session that loses something without a queue sends less for a moment. Where that ends the loss,
// it stays just below the rate that passed, without what a policer lets through at first; where it does not, it
// goes on as before.
func TestHeeds(t *testing.T) {
	const (
		mss  = 1448
		rate = 2e6 // bytes/s, sent before
		base = 20 * time.Millisecond
		tick = 25 * time.Millisecond
	)
	for _, c := range []struct {
		what   string
		police float64 // bytes/s
		chance float64 // share that is lost at any rate
		passes float64 // bytes/s, when the loss has ended
	}{
		{"a policer", 1.6e6, 0, 1.6e6},
		{"a policer far below", 0.5e6, 0, 0.5e6},
		{"loss by chance", math.Inf(1), 0.02, 0},
	} {
		x := New()
		x.model.base, x.line, x.rate = base, rate, rate
		x.enter(Cruise, 0)
		s := Sample{MSS: mss, Streams: 4, Least: base, RTT: base, Backlog: 1 << 20, Delivered: 1 << 20}
		tokens, sent := 0.1*c.police, []float64{rate, rate} // bytes that the policer lets through at once
		for s.At < 3*time.Second && x.loss.ceil == 0 && x.loss.random == 0 {
			s.At += tick
			sends := sent[len(sent)-2] * tick.Seconds() // a round trip before
			passed := min(sends*(1-c.chance), tokens+c.police*tick.Seconds())
			tokens = min(0.1*c.police, tokens+c.police*tick.Seconds()-passed)
			s.Delivered, s.Lost = s.Delivered+int64(passed), s.Lost+int64(sends-passed)
			s.InFlight = int64(x.rate * base.Seconds())
			x.Update(s)
			sent = append(sent, x.rate)
		}
		if c.passes > 0 {
			require.InEpsilon(t, belowLoss*c.passes, x.loss.ceil, 0.02, c.what)
			require.Zero(t, x.loss.random, c.what)
			require.LessOrEqual(t, x.rate, x.loss.ceil, c.what)
			continue
		}
		require.Zero(t, x.loss.ceil, c.what)
		require.InEpsilon(t, c.chance, x.loss.random, 0.3, c.what)
		require.GreaterOrEqual(t, x.rate, 0.99*rate, c.what)
	}
}

// TestBurstAfterStall: after a stall, streams send at once what they could not, and lose some of it. No more is sent
// than passed, or less if something was lost, while nothing can be learnt, and that loss proves no policer.
func TestBurstAfterStall(t *testing.T) {
	const (
		mss  = 1448
		rate = 125e6 // bytes/s
		base = 5 * time.Millisecond
		tick = 25 * time.Millisecond
	)
	for _, c := range []struct {
		stall bool
		lost  int64   // segments, just before it
		sends float64 // in the stall, as a part of the line
	}{
		{true, 0, 1},
		{true, 1, afterDrain},
		{stall: false},
	} {
		x := New()
		x.model.base, x.line, x.rate = base, rate, 1.05*rate
		x.enter(Cruise, 0)
		s := Sample{MSS: mss, Streams: 16, Least: base, RTT: base, Backlog: 1 << 20, Delivered: 1 << 20}
		step := func(dt time.Duration, lost int64) Decision {
			s.At += dt
			s.Delivered += int64(rate*dt.Seconds()) - lost*mss
			s.Lost += lost * mss
			s.InFlight = int64(rate * base.Seconds())
			return x.Update(s)
		}
		for range 40 {
			step(tick, 0)
		}
		step(tick, c.lost)
		x.rate = 1.05 * rate
		long := tick
		if c.stall {
			long = 80 * time.Millisecond
		}
		sends := step(long, 0).Rate
		for range 3 {
			step(tick, 300)
		}
		if c.stall {
			require.InEpsilon(t, c.sends*rate, sends, 0.005, c)
		} else {
			require.Greater(t, sends, rate, c)
		}
		require.Equal(t, c.stall, x.loss.look.start.At == 0, "no look")
	}
}

// TestGentleAgain: what the start loses makes streams quick. They are gentle again once so little is lost for ten
// seconds that they carry the rate, and later if it was believed before in vain.
func TestGentleAgain(t *testing.T) {
	const (
		mss  = 1448
		rate = 125e6 // bytes/s
		base = 5 * time.Millisecond
	)
	for _, c := range []struct {
		what     string
		lost     float64 // share
		patience time.Duration
		within   time.Duration
		want     bool
	}{
		{"nothing", 0, 0, 11 * time.Second, true},
		{"not yet", 0, 0, 9 * time.Second, false},
		{"a little", 2e-5, 0, 11 * time.Second, true},
		{"more than gentle streams stand", 3e-3, 0, 30 * time.Second, false},
		{"it was in vain before", 0, 20 * time.Second, 19 * time.Second, false},
		{"and again", 0, 20 * time.Second, 22 * time.Second, true},
	} {
		x := New()
		x.model.base, x.line, x.rate = base, rate, rate
		x.loss.lossy, x.loss.patience = true, c.patience
		x.enter(Cruise, 0)
		s := Sample{MSS: mss, Streams: 8, Least: base, RTT: base, Backlog: 1 << 20, Delivered: 1 << 20}
		lost, d := 0.0, Decision{}
		for s.At < c.within {
			s.At += Every
			lost += c.lost * rate * Every.Seconds()
			s.Delivered, s.Lost = s.Delivered+int64(rate*Every.Seconds()), int64(lost)
			s.InFlight = int64(rate * base.Seconds())
			d = x.Update(s)
			x.rate = rate // it is what arrives
		}
		require.Equal(t, c.want, d.Control == Gentle, c.what)
	}
}

// TestTooGentle: a little loss without a queue is too much for few gentle streams, if nobody else and no policer is there.
func TestTooGentle(t *testing.T) {
	const mss = 1448
	for _, c := range []struct {
		what   string
		change func(*Controller)
		want   bool
	}{
		{"too few", func(*Controller) {}, true},
		{"too little is known", func(c *Controller) { c.loss.calm = tally{lost: 7 * mss, sent: 70e3 * mss} }, false},
		{"hardly anything is lost", func(c *Controller) { c.loss.calm.sent *= 100 }, false},
		{"there are enough", func(c *Controller) { c.loss.mostStreams = 64 }, false},
		{"others were there", func(c *Controller) { c.others.left = 90 * time.Second }, false},
		{"a policer was found", func(c *Controller) { c.loss.policed, c.loss.policing = 1e9, 98*time.Second }, false},
		{"it stays below loss", func(c *Controller) { c.loss.ceilUntil = 101 * time.Second }, false},
		{"it looks for one", func(c *Controller) { c.loss.look.start.At = time.Second }, false},
	} {
		x := New()
		x.state, x.rate, x.model.base = Cruise, 1e9/8, 50*time.Millisecond
		x.last = Sample{At: 100 * time.Second, RTT: x.model.base, MSS: mss, Streams: 16}
		x.loss.calm, x.loss.mostStreams = tally{lost: 80 * mss, sent: 800e3 * mss}, 16
		c.change(x)
		require.Equal(t, c.want, x.tooGentle(x.last), c.what)
	}
}

// TestFound: two packets more than by chance, lost where a session tries more beside a policer that it knows, tell that
// the policer is still there.
func TestFound(t *testing.T) {
	const mss, policed = 1448, 50e3
	for _, c := range []struct {
		what   string
		lost   int64 // packets, of about 30
		random float64
		change func(*Controller)
		want   bool
	}{
		{"two", 2, 0, nil, true},
		{"one", 1, 0, nil, false},
		{"by chance", 2, 0.02, nil, false},
		{"more than by chance", 4, 0.02, nil, true},
		{"while it stays below", 2, 0, func(c *Controller) { c.loss.ceilUntil = time.Minute }, false},
		{"it tries no more", 2, 0, func(c *Controller) { c.rate = 0.9 * policed }, false},
		{"far less arrives", 2, 0, func(c *Controller) { c.model.delivered = 0.7 * policed }, false},
		{"no policer is known", 2, 0, func(c *Controller) { c.loss.policed = 0 }, false},
	} {
		con, s := New(), Sample{At: 2 * time.Second, Delivered: 30 * mss, Lost: c.lost * mss, MSS: mss}
		con.rate, con.last, con.loss.policed, con.loss.random = 1.05*policed, s, policed, c.random
		con.model.base, con.model.mss, con.model.steady, con.model.delivered = 50*time.Millisecond, mss, policed, policed
		con.model.past = []Sample{{At: time.Second}, s}
		if c.change != nil {
			c.change(con)
		}
		require.Equal(t, c.want, con.found(s), c.what)
	}
}

// TestSlowPolicer: a policer bounds the line while the session stays below it, and not when it later stays below
// something else.
func TestSlowPolicer(t *testing.T) {
	c := New()
	at := func(now time.Duration) Sample { return Sample{At: now, MSS: 1448} }
	c.last, c.line = at(10*time.Second), 1e6
	require.False(t, c.slowPolicer(c.last))
	c.police(c.last, 50e3)
	require.True(t, c.slowPolicer(at(11*time.Second)))
	c.bound(1e6, time.Minute)
	require.False(t, c.slowPolicer(at(30*time.Second)))
	c.police(at(30*time.Second), 50e6)
	require.False(t, c.slowPolicer(at(31*time.Second)), "it lets much through")
}

// TestSwells: others who fill a short queue, lose something and leave it empty, time and again, are found although
// the session gets all that it sends. A queue of its own, one that loses nothing, or a burst at once, shows nobody.
func TestSwells(t *testing.T) {
	const (
		base  = 20 * time.Millisecond
		cycle = time.Second
		tick  = Every
		line  = 8e6
	)
	for _, c := range []struct {
		what string
		lost int  // segments, in each cycle
		more bool // the session sends more than it gets
		want State
	}{
		{"others", 3, false, Compete},
		{"its own", 3, true, Cruise},
		{"nothing is lost", 0, false, Cruise},
		{"the line pauses", 80, false, Cruise},
	} {
		x := New()
		x.model.base, x.line, x.rate, x.known, x.doubts.best, x.proved = base, line, line, line, line, true
		s := Sample{At: time.Second, MSS: 1448, Streams: 4, Least: base, RTT: base, Backlog: 1 << 30, Delivered: 1 << 20}
		x.last, x.outage.heard, x.opening.sent = s, s.At, 1
		x.enter(Cruise, s.At)
		for s.At < 8*time.Second && x.state == Cruise {
			s.At += tick
			fills, full := s.At%cycle, cycle*17/20
			if s.RTT = base; fills < full {
				s.RTT += time.Duration(float64(fills) / float64(full) * float64(base/5))
			}
			if fills >= full-tick && fills < full {
				s.Lost += int64(c.lost * s.MSS)
			}
			s.InFlight = int64(line * s.RTT.Seconds())
			if s.Delivered = int64(line * s.At.Seconds()); !c.more {
				s.Delivered -= s.InFlight // it sends at a constant rate
			}
			x.Update(s)
		}
		require.Equal(t, c.want, x.state, "%s, at %v", c.what, s.At)
	}
}
