package congestion

import (
	"fmt"
	"math"
	"time"
)

// Controller decides for one session, at the end that sends. One goroutine uses it.
type Controller struct {
	priority Priority
	model    model

	state  State
	since  time.Duration // start of the state
	from   Sample        // at the start of the state, or of a queue that is too long
	began  time.Duration // RTT without a queue, then
	last   Sample        // the present one
	prior  Sample        // the one before it
	rate   float64       // bytes/s; +Inf until something was delivered
	line   float64       // what the line carries of ours, bytes/s
	had    float64       // line, when the queue became too long or the start ended, bytes/s
	known  float64       // largest line of late with a short queue: what the line carries, bytes/s
	full   time.Duration // since when the queue has been too long; 0 if it is not
	whole  time.Duration // when the session had the whole line since then, the last time
	calm   time.Duration // since when the queue has been nearly empty
	rested time.Duration // when it was so last, without an allowance for jitter
	growth float64       // of the rate, per round trip
	low    float64       // line, when the queue became short, bytes/s
	proved bool          // a queue or loss has shown the line's rate since the start
	guess  bool          // line is what handshakes or a start made of it, and was not measured yet
	short  time.Duration // since when loss makes streams slow; at the start, since when nothing grows

	opening  opening
	outage   outage
	loss     losses
	doubts   doubts
	others   others
	siblings siblings
	room     room
	lean     lean
	spacing  time.Duration // of the RTT, what packets wait at the peer for the next of their stream
	mild     bool          // streams are gentle
	holding  time.Duration // when quick streams had their part in flight, the last time
}

// New returns a Controller that is about to start.
func New() *Controller { return &Controller{rate: math.Inf(1)} }

const (
	// Every is the time between two decisions, mostly.
	Every = 25 * time.Millisecond
	// LeastEvery is the least such time. It holds at low priority on short paths. In the start, the time is
	// part of a round trip, because each round trip doubles the rate.
	LeastEvery = 10 * time.Millisecond

	// leastAim and mostAim bound the usual aim. shortAim is the least aim on a path whose RTT is short.
	leastAim = 2500 * time.Microsecond
	mostAim  = 4 * time.Millisecond
	shortAim = 1500 * time.Microsecond

	// heldShare is the part of the line for streams that are not free, to finish what they have.
	heldShare = 0.03
	// leastHeld is the least for them, bytes/s.
	leastHeld = 32 << 10
	// smoothed is how many packets of a stream it takes until its RTT is mostly new. mostLag bounds
	// that time where streams are many and packets few.
	smoothed = 12
	mostLag  = 8 * time.Second

	// restTrips and leastRest are how long the queue may stay without ever being short, until its
	// changes count as those of others' queue instead of jitter.
	restTrips = 16
	leastRest = 2 * time.Second

	// delayedAck is the least for which Linux delays an acknowledgement.
	delayedAck = 40 * time.Millisecond

	// Streams with less than emptyPart of rate × RTT in flight count as empty. BBR is so for bbrProbe at the least when it
	// looks for the RTT (net/ipv4/tcp_bbr.c), and for a round trip before and after.
	emptyPart = 0.25
	bbrProbe  = 200 * time.Millisecond

	// nearPath is the RTT below which a path stays within a building. Queues there are as short as
	// the noise of hosts, and lines are fast: pacing would only cost work.
	nearPath = time.Millisecond
)

// SetPriority changes how the session shares the line with others from now on.
func (c *Controller) SetPriority(p Priority) { c.priority = p }

// String shows what the controller believes, for a trace. Rates are in Mbit/s.
func (c *Controller) String() string {
	m, mbit := &c.model, func(rate float64) float64 { return rate * 8 / 1e6 }
	return fmt.Sprintf("line %.3f base %v standing %v lost %.3f random %.3f ceiling %.3f growth %.3f",
		mbit(c.line), m.base.Round(100*time.Microsecond), m.standing.Round(100*time.Microsecond), m.losses,
		c.loss.random, mbit(c.loss.ceil), c.growth)
}

// Update takes a sample and decides.
func (c *Controller) Update(s Sample) Decision {
	dt := s.At - c.last.At
	c.prior, c.last = c.last, s
	if s.Lost > c.prior.Lost {
		c.loss.last = s.At
	}
	if c.state == Cruise && c.refuted(s) {
		c.guess = false
		c.enter(Startup, s.At)
	}
	c.starve(s)
	if c.quiet(s, dt) {
		c.pass(dt)
		return c.decision()
	}
	if c.state != Compete && !c.bursts() && s.Delivered == c.prior.Delivered && c.mute(s, dt) {
		return c.decision() // less is no sign of others until the rest of it comes
	}
	s = c.spaced(s)
	c.last = s
	c.model.update(s)
	c.doubts.longer = max(0, min(c.doubts.longer, c.model.base-s.Least)) // the way may be short again
	if c.state == Startup || c.state == Drain || c.model.queue <= c.least(s)*3/2 {
		c.rested = s.At
	}
	if !c.guess {
		c.doubts.best = max(c.doubts.best, c.line)
	}
	c.remember(s, dt)
	if c.settled(s) {
		c.others.jitter.measure(s, dt)
	}
	if c.model.base == 0 || s.Delivered == 0 {
		c.calm = s.At
		return c.decision()
	}
	if c.near() {
		d := c.decision()
		d.Rate, d.Free = math.Inf(1), 0
		return d
	}
	if c.occupied(s) {
		if c.priority == Low {
			c.doubts.alone = 0 // others had the rest of the line
			c.share(s)
			return c.decision()
		}
		c.doubts.check.wanted = true // others may have gone since
	}
	switch c.state {
	case Startup:
		c.start(s)
	case Drain:
		c.drain(s)
	case Cruise:
		c.cruise(s, dt)
	case Doubt:
		c.doubt(s)
	case Compete:
		c.compete(s)
	case Yield:
		c.yield(s, dt)
	}
	return c.decision()
}

func (c *Controller) decision() Decision {
	c.rate = max(c.rate, c.leastRate())
	d := Decision{Rate: c.rate, Line: c.line, State: c.state, Every: c.every()}
	held := min(leastHeld, c.line/8)
	d.Held = max(heldShare*c.line, held)
	d.Behind = c.loss.behind
	switch {
	case c.state == Compete && c.priority == High:
		d.Free = min(highStreams, max(freeStreams, c.last.Streams))
	case c.state == Compete:
		d.Free = c.others.flows
	case c.state == Yield:
		d.Free, d.Held = 1, max(floorShare*c.line, held)
	}
	empty := c.emptied()
	if c.mild = c.gentle() && (c.mild || !empty); c.mild {
		d.Control = Gentle
	}
	d.Spread = c.spreads()
	return d
}

// spreads reports whether streams send what others leave of the rate. Beside other sessions and programs, a loss shall
// make this one slower.
func (c *Controller) spreads() bool {
	others := c.others.left > 0 && c.last.At-c.others.left < longHold || c.priority == Low && c.others.back
	return c.state == Cruise && !others && !c.siblings.crowd(c.last.At)
}

// every is the time until the next decision.
func (c *Controller) every() time.Duration {
	if (c.state == Startup || c.state == Drain) && c.far() {
		return min(max(c.model.base/8, LeastEvery), Every)
	}
	if c.priority == Low && c.model.base < 2*Every { // others who begin fill a short queue in few round trips
		return LeastEvery
	}
	return Every
}

// starts reports whether the session still looks for the rate of the line.
func (c *Controller) starts() bool { return c.state == Startup || c.state == Drain }

// gentle reports whether streams shall share the line as most traffic does. Beside others, a short
// queue makes loss, too: only what is lost at any rate is a reason to be quick.
func (c *Controller) gentle() bool {
	if c.state == Compete {
		return c.last.At >= c.others.quick
	}
	if c.state == Yield { // BBR would send single segments, and the peer wait with their acknowledgement
		return true
	}
	if wakes := max(wakeTrips*c.model.base, leastWake); c.others.left > 0 && c.last.At-c.others.left < wakes {
		return false
	}
	if c.state == Startup && c.priority == Low && c.outage.stall.seen > 0 { // BBR has taken the pause for its limit
		return true
	}
	// Gentle streams would take what the start still loses for their limit.
	return c.state != Startup && !c.loss.lossy && c.last.Delivered >= c.opening.sent
}

// emptied reports whether streams have next to nothing in flight for a moment: BBR makes its window as small as four packets
// to see the RTT. A stream that becomes gentle just then would go on from there, with a slow start. emptied is called for
// each sample, because it notes when they last had more.
func (c *Controller) emptied() bool {
	s := &c.last
	if s.Backlog == 0 || math.IsInf(c.rate, 1) || float64(s.InFlight) > emptyPart*c.rate*c.model.base.Seconds() {
		c.holding = s.At
	}
	return s.At > c.holding && s.At-c.holding < max(bbrProbe, c.model.base)+2*c.model.base+leastWindow
}

// far reports whether a round trip takes longer than the time between two decisions. Then the start has to
// foretell by how much the rate has grown since what it sees was sent.
func (c *Controller) far() bool { return c.model.base > Every && c.priority != Low }

// near reports whether the path stays within a building.
func (c *Controller) near() bool { return c.model.base > 0 && c.model.base < nearPath }

func (c *Controller) enter(state State, now time.Duration) {
	c.state, c.since, c.calm, c.growth = state, now, now, leastGrowth
	c.doubts.empty, c.doubts.slower, c.doubts.check.on = 0, false, false
	c.loss.look, c.loss.fresh = look{}, Sample{}
	c.from, c.began = c.last, c.model.base
}

// aim is the queueing delay to hold. It is below the 5 ms at which CoDel begins to drop (RFC 8289).
// A session of low priority holds less, so that those who fill the queue push it aside.
func (c *Controller) aim(s Sample) time.Duration {
	jitter := c.model.jitter()
	// What others do looks like jitter, too, but jitter lets the queue be short now and then.
	restless := c.dense(s) && s.At-c.rested > c.rests(s)
	if c.priority == Low && c.state != Cruise || c.state == Compete || restless {
		jitter /= 3
	}
	if c.stuck(s) {
		jitter += delayedAck
	}
	if c.state == Cruise {
		jitter += c.lean.queue
	}
	if c.priority == Low { // it would yield for good where smoothed RTTs hide jitter
		jitter = max(jitter, min(c.opening.noise, c.shortQueue()), c.heldJitter())
	}
	return c.least(s) + jitter
}

// rests is how long a queue may stay that is never short, or never gone, until it counts as that of others.
func (c *Controller) rests(s Sample) time.Duration { return max(restTrips*c.lag(s), leastRest) }

// stuck reports whether a session, say after hosts that had no time for it, sends so little of what the
// line carried of late that its RTT holds the delay with which the peer acknowledges. That looks like a
// queue for which less should be sent, and would do so the more, the less is sent. Where others are, or much is
// lost, there is a queue.
func (c *Controller) stuck(s Sample) bool {
	little := !c.dense(s) && c.line < poorShare*c.known
	lossy := c.model.losses > mostLoss+1.5*c.loss.random && s.At-c.model.steadyWindow() >= c.outage.deaf
	return little && c.state != Compete && !lossy
}

// least is the aim on a path without jitter.
func (c *Controller) least(s Sample) time.Duration {
	aim := c.quietAim()
	if c.priority == Low { // with bursts, too, it is less than that of sessions that go first
		aim = min(max(c.model.base/40, lowLeast), mostAim/2) + min(c.others.bursts, aim*2/5)
	}
	if c.others.brim > 0 {
		aim = min(aim, max(c.others.brim/brimPart, fullQueue))
	}
	return aim + c.packets(2, s.MSS)
}

// quietAim is the queue that a session above low priority holds beside nobody, where packets take no time. On a path of less
// than 25 ms it is less than the usual one: others would feel that, and less fills the line, too.
func (c *Controller) quietAim() time.Duration {
	return min(c.usualAim(), max(c.model.base/10, shortAim))
}

// usualAim is the same on a path that is not short, and the measure of what others do to the queue.
func (c *Controller) usualAim() time.Duration { return min(max(c.model.base/20, leastAim), mostAim) }

// dense reports whether a stream sends its next packet before the peer's kernel acknowledges one alone.
// Otherwise the RTT holds that delay, and shows no queue. What the line carries for others does not matter.
func (c *Controller) dense(s Sample) bool {
	return float64(2*s.Streams*s.MSS) < max(c.line, c.model.delivered)*delayedAck.Seconds()
}

// remember keeps the largest rate of late with a short queue. With that of now, a session that
// has lost most of the line to others would take their queue for its own packets.
func (c *Controller) remember(s Sample, dt time.Duration) {
	c.known *= 1 - min(1, dt.Seconds()/longHold.Seconds())
	if c.state == Cruise && !c.guess && c.model.standing <= c.aim(s) {
		c.known = max(c.known, c.line)
		if c.model.losses <= mostLoss+2*c.loss.random {
			c.doubts.alone = max(c.doubts.alone, c.line)
		}
	}
}

// packets is the time that n packets take on the line.
func (c *Controller) packets(n, mss int) time.Duration {
	rate := max(c.line, c.model.delivered)
	if recent := c.others.left > 0 && c.last.At-c.others.left < longHold; recent || c.model.losses > mostLoss { // our part of the line may have become small
		rate = max(rate, c.known)
	}
	if rate <= 0 {
		return 0
	}
	return seconds(float64(n*mss) / rate)
}

// lag is how long it takes to see what a change does: a round trip, and on a narrow line the time
// in which the kernel's smoothed RTT follows (RFC 6298: an eighth with each acknowledgement).
func (c *Controller) lag(s Sample) time.Duration {
	streams := s.Streams
	if c.state == Compete { // the others only finish what they have
		streams = min(streams, c.others.flows)
	}
	if c.state == Yield {
		streams = 1
	}
	return max(s.RTT, min(c.packets(smoothed*streams, s.MSS), mostLag))
}

// excess is what is in flight beyond what the line holds, as delay. It shows a queue a round trip
// before the RTT does.
func (c *Controller) excess(s Sample) time.Duration { return c.over(s, c.line) }

// over is the excess on a line of a rate, bytes/s.
func (c *Controller) over(s Sample, line float64) time.Duration {
	if s.InFlight == 0 {
		return -c.model.base
	}
	return seconds(float64(s.InFlight)/line) - c.model.base
}

// queued reports whether what is in flight waits in a queue, by what is delivered (Little's law). The
// smoothed RTT says so too long where little is acknowledged.
func (c *Controller) queued(s Sample) bool {
	m := &c.model
	return m.delivered > 0 && float64(s.InFlight) > m.delivered*(m.base+c.aim(s)/2).Seconds()
}

// leastRate is the rate with which the RTT can be seen, bytes/s: a few segments in each, but much
// less than a narrow line carries.
func (c *Controller) leastRate() float64 {
	mss := float64(c.last.MSS)
	return max(mss/2, min(4*mss/max(c.model.base, standingTime).Seconds(), c.line/4))
}
