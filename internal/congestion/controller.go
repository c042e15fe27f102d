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
	last   Sample        // the present one
	prior  Sample        // the one before it
	rate   float64       // bytes/s; +Inf until something was delivered
	line   float64       // what the line carries of ours, bytes/s
	had    float64       // line, when the queue became too long or the start ended, bytes/s
	ours   float64       // largest line since a session of low priority yielded
	full   time.Duration // since when the queue has been too long; 0 if it is not
	calm   time.Duration // since when the queue has been nearly empty
	growth float64       // of the rate, per round trip
	low    float64       // line, when the queue became short, bytes/s
	proved bool          // a queue or loss has shown the line's rate since the start
	lossy  bool          // random loss holds gentle streams back
	behind bool          // quick streams are slower than they may be, too
	need   int           // gentle streams that carry the rate in spite of random loss; 0 is unknown
	over   float64       // what they may send, as a multiple of the rate: some are held back by loss
	fall   time.Duration // of the RTT, since it grew last
	falls  time.Duration // largest of these in the start
	first  time.Duration // when something was delivered first
	heard  time.Duration // when something was delivered last
	paused bool          // the receiver has taken nothing since
	deaf   time.Duration // until when loss is that of an outage
	short  time.Duration // since when streams are slower than they may be, with loss; at the start, since when nothing grows

	// Of loss with a queue.
	calmLost tally         // what is lost while the queue is not longer than usual
	event    time.Duration // when a longer queue lost more, the last time
	events   int           // how often it did so below the rate at which it had done so before

	// Of loss without a queue.
	looks     time.Duration // since when less is sent to see what it does; 0 is not
	before    float64       // rate before that, bytes/s
	seen      float64       // share lost before that
	random    float64       // share that is lost at any rate
	ceil      float64       // rate beyond which loss begins, bytes/s
	ceilUntil time.Duration // until when the session stays below it
	hold      time.Duration // how long it stayed, the last time

	pause   time.Duration // how long the queue must be short before a session that yields takes more
	yields  time.Duration // when it yielded last
	stay    time.Duration // how long it shares at the least
	most    float64       // bound of free streams, bytes/s
	peak    float64       // most that was delivered of late beside others, bytes/s
	quick   time.Duration // until when free streams look for their part of the line quickly
	doubts  int           // one soon after the other
	doubted time.Duration // end of the last one
	dip     time.Duration // least queue in doubt
	top     time.Duration // largest queue in doubt
	best    float64       // largest line, bytes/s
	empty   time.Duration // when the queue was gone in doubt; 0 is not yet
	test    time.Duration // start of the present test whether others are gone; 0 is none
}

// New returns a Controller that is about to start.
func New() *Controller { return &Controller{rate: math.Inf(1), over: 1} }

// SetPriority changes how the session shares the line with others from now on.
func (c *Controller) SetPriority(p Priority) { c.priority = p }

// String shows what the controller believes, for a trace. Rates are in Mbit/s.
func (c *Controller) String() string {
	m, mbit := &c.model, func(rate float64) float64 { return rate * 8 / 1e6 }
	return fmt.Sprintf("line %.3f base %v standing %v lost %.3f random %.3f ceiling %.3f growth %.3f",
		mbit(c.line), m.base.Round(100*time.Microsecond), m.standing.Round(100*time.Microsecond), m.losses,
		c.random, mbit(c.ceil), c.growth)
}

const (
	leastAim = 2500 * time.Microsecond
	mostAim  = 4 * time.Millisecond

	startGain   = 2.3   // of the delivered rate, at the start: a round trip later it has doubled
	lowGain     = 1.7   // the same for a session of low priority, which must not push others aside
	firstWindow = 10    // segments that a stream sends before the first acknowledgement (RFC 6928)
	stillGrows  = 1.2   // of the rate a round trip ago: below it, loss at the start ends the start
	drainGain   = 0.2   // of the delivered rate, while the queue of the start flows off
	again       = 1.5   // of the line's rate when its queue became short: what it carries is not known yet
	goesOn      = 1.4   // of the delivered rate at the end of the start: it was not the end
	afterDrain  = 0.97  // of the largest delivered rate
	leastShare  = 0.75  // of the largest delivered rate of late: less only shows that others send
	slowGentle  = 0.96  // the same where none can be quick: only their number helps
	slowShare   = 0.85  // of the rate: streams that deliver less are held back by loss
	belowLoss   = 0.99  // of what was delivered without loss, where more is lost
	clean       = 3e-4  // share lost at the start, without a queue, up to which a path has no random loss
	someLoss    = 5e-4  // share lost with a queue, beyond what is lost without one, that needs a reason
	belowFull   = 0.985 // of what was delivered when a short queue was full
	mostLoss    = 0.01  // share lost without a queue that needs a reason
	emptyShare  = 0.93  // of what was delivered: fills no queue by itself
	takenShare  = 0.95  // of what was delivered when a queue began: with less, others take the rest
	leastGrowth = 0.008 // of the rate in a round trip, beyond what is known
	mostGrowth  = 0.25  // the same, once the queue has been short for long

	// fewPackets is the least number of packets that shows a rate in the start and right after it.
	fewPackets = 4

	// longCalm is after how many round trips with a short queue more is tried. Where no queue has shown
	// the line's rate since the start, jitter may have ended it early: doubtfulCalm is enough.
	longCalm     = 12
	doubtfulCalm = 8

	// fullQueue is how much longer than usual a queue must be, as delay, to count as full.
	fullQueue = 250 * time.Microsecond

	// firstHold is how long a session stays below a rate that made loss; each time that it finds
	// loss again it stays twice as long, up to longHold.
	firstHold = 4 * time.Second
	longHold  = time.Minute

	// quickShare is the part of the most that was delivered beside others, with less of which a free
	// stream looks for its part again.
	quickShare = 0.3
	// quickTrips and leastQuick are how long that takes.
	quickTrips = 40
	leastQuick = time.Second
	// quickGain bounds what is sent meanwhile, as a multiple of what is delivered.
	quickGain = 1.5
	// freeStreams is how many flows of others a session counts as.
	freeStreams = 1
	// highStreams is that number for a session of high priority: four fifths beside one flow.
	highStreams = 4
	// leastFight is how long a queue must stay, at the least, to be that of others.
	leastFight = 400 * time.Millisecond
	// leastStay is how long a session shares at the least.
	leastStay = 3 * time.Second
	// testEvery is the time from one test whether others are gone to the next; testFor is the least
	// time that a test takes.
	testEvery = 5 * time.Second
	testFor   = 300 * time.Millisecond

	// mostDoubts is how many doubts may follow each other within doubtTrips or doubtAgain.
	mostDoubts = 1
	doubtTrips = 30
	doubtAgain = 2 * time.Second

	// tellingLosses is how many segments must be lost without a queue to tell how likely that is.
	tellingLosses = 8
	// mostOver bounds what streams may send together, as a multiple of the rate, while random loss holds
	// some of them back: the largest window of reno is 4/3 of its mean.
	mostOver = 4.0 / 3
	// spare is by how much more gentle streams there shall be than fill the line in the mean: none of
	// them may send more than its part of the rate.
	spare = 1.5

	// heldShare is the part of the line for streams that are not free, to finish what they have.
	heldShare = 0.03
	// leastHeld is the least for them, bytes/s.
	leastHeld = 32 << 10
	// smoothed is how many packets of a stream it takes until its RTT is mostly new. mostLag bounds
	// that time where streams are many and packets few.
	smoothed = 12
	mostLag  = 8 * time.Second

	// leastQuiet and the time of quietPackets are the least for which nothing is acknowledged in an
	// outage.
	leastQuiet   = 300 * time.Millisecond
	quietPackets = 8
	// deafTrips and leastDeaf are how long it takes to send again what an outage lost.
	deafTrips = 10
	leastDeaf = time.Second

	// nearPath is the RTT below which a path stays within a building. Queues there are as short as
	// the noise of hosts, and lines are fast: pacing would only cost work.
	nearPath = time.Millisecond

	// floorShare is the part of the line that a session takes while it yields: enough to see the
	// queue.
	floorShare = 0.01
	// A session that yields takes more once the queue has been short for firstPause, and doubles
	// the pause up to longPause if it then grows again.
	firstPause = 2 * time.Second
	longPause  = 3 * time.Second
	// rise is the growth per round trip of a session that takes again what the line carries.
	rise = 0.25
	// joinRise is the growth per round trip of what free streams may send until they lose something.
	joinRise = 0.1
	lowRise  = 0.12 // of one of low priority, in 100 ms at the most
)

// aim is the queueing delay to hold. It is below the 5 ms at which CoDel begins to drop (RFC 8289).
// A session of low priority holds less, so that those who fill the queue push it aside.
func (c *Controller) aim(s Sample) time.Duration {
	aim := min(max(c.model.base/20, leastAim), mostAim)
	if c.priority == Low {
		aim /= 2
	}
	return aim + c.packets(2, s.MSS) + c.model.jitter()
}

// Update takes a sample and decides.
func (c *Controller) Update(s Sample) Decision {
	dt := s.At - c.last.At
	c.prior, c.last = c.last, s
	if c.quiet(s) {
		c.pass(dt)
		return c.decision()
	}
	c.model.update(s)
	c.best = max(c.best, c.line)
	if c.model.base == 0 || s.Delivered == 0 {
		c.calm = s.At
		return c.decision()
	}
	if c.near() {
		d := c.decision()
		d.Rate, d.Free = math.Inf(1), 0
		return d
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

// near tells whether the path stays within a building.
func (c *Controller) near() bool { return c.model.base > 0 && c.model.base < nearPath }

// quiet tells whether nothing was acknowledged for so long that it says nothing about the rate of
// the line: the receiver takes nothing, or an outage swallows all. After an outage it resumes.
func (c *Controller) quiet(s Sample) bool {
	since := s.At - c.heard
	if s.Delivered == 0 || c.model.base == 0 {
		c.heard = s.At
		return false
	}
	packet := seconds(float64(s.MSS) / max(min(c.rate, c.line), c.leastRate()))
	long := since > max(4*s.RTT, leastQuiet)+quietPackets*packet
	switch {
	case s.Delivered > c.prior.Delivered:
		c.heard = s.At
		if long && !c.paused {
			c.resume(s)
		}
		c.paused = false
		return false
	case s.InFlight == 0 && s.Backlog > 0 && since > s.RTT+time.Duration(2*s.Streams)*packet:
		c.paused = true
		return true
	}
	return long
}

// resume goes on where the session was before an outage. What was in flight then is sent again now:
// that loss says nothing either.
func (c *Controller) resume(s Sample) {
	c.model.pause()
	c.looks, c.full, c.test, c.events = 0, 0, 0, 0
	c.deaf = s.At + max(deafTrips*c.model.base, leastDeaf)
	switch c.state {
	case Startup:
		c.first = 0
	case Yield:
		c.enter(Yield, s.At)
	default:
		c.rate = afterDrain * c.line
		c.enter(Cruise, s.At)
	}
}

// pass lets time pass in which nothing can be learnt: the receiver takes nothing, or nothing arrives.
func (c *Controller) pass(dt time.Duration) {
	c.model.pause()
	c.since, c.calm, c.short = c.since+dt, c.calm+dt, c.short+dt
	for _, t := range []*time.Duration{&c.full, &c.empty, &c.test} {
		if *t > 0 {
			*t += dt
		}
	}
}

func (c *Controller) decision() Decision {
	c.rate = max(c.rate, c.leastRate())
	d := Decision{Rate: c.rate, Line: c.line, State: c.state}
	held := min(leastHeld, c.line/8)
	d.Held = max(heldShare*c.line, held)
	d.Behind = c.behind
	if c.state == Cruise {
		d.Rate, d.Need = c.over*c.rate, c.need
	}
	switch {
	case c.state == Compete && c.priority == High:
		d.Free = highStreams
	case c.state == Compete:
		d.Free = freeStreams
	case c.state == Yield:
		d.Free, d.Held = 1, max(floorShare*c.line, held)
	}
	if c.gentle() {
		d.Control = Gentle
	}
	return d
}

// gentle tells whether streams shall share the line as most traffic does. Beside others, a short
// queue makes loss, too: only what is lost at any rate is a reason to be quick.
func (c *Controller) gentle() bool {
	if c.state == Compete {
		return c.random == 0 && c.last.At >= c.quick
	}
	// At a very low rate BBR sends single segments, and the peer waits with their acknowledgement.
	return c.state != Startup && (!c.lossy || c.state == Yield)
}

func (c *Controller) enter(state State, now time.Duration) {
	c.state, c.since, c.calm, c.growth = state, now, now, leastGrowth
	c.empty = 0
	c.from = c.last
}

// start doubles the rate each round trip until a queue shows that the line is full.
func (c *Controller) start(s Sample) {
	m := &c.model
	if c.first == 0 {
		c.first, c.from = s.At, m.past[0]
	}
	if s.Delivered-c.from.Delivered >= fewPackets*int64(s.MSS) {
		c.line = max(c.line, m.delivered)
	}
	full := m.base/20 + 3*time.Millisecond + c.packets(6, s.MSS) + m.jitter()
	if m.queue < full/2 {
		// Gentle streams would fall behind at once where loss comes without a queue.
		c.lossy = s.Lost > 4*int64(s.MSS) && float64(s.Lost) > clean*float64(s.Delivered)
	}
	// What the first flight lost says nothing: it left before anything was known.
	early := s.At-c.first < m.rateWindow(s)+2*s.RTT
	flat := !early && m.delivered < stillGrows*m.earlier(s)
	if !flat {
		c.short = s.At
	}
	full = max(full, min(c.sway(s), m.base/2))
	longFlat := flat && s.At-c.short > s.RTT // jitter makes what is delivered uneven
	if m.queue > full || flat && s.Backlog > 0 && m.lost > 0.05 ||
		longFlat && s.Backlog > 0 && c.excess(s) > 2*full && m.queue > full/10 {
		c.enter(Drain, s.At)
		c.drain(s)
		return
	}
	if c.line == 0 {
		return // few packets show no rate
	}
	if math.IsInf(c.rate, 1) {
		c.rate = s.Began
	}
	if c.rate == 0 { // what the kernel sends at once, however little it says
		c.rate = startGain * firstWindow * float64(s.Streams*s.MSS) / max(m.base, time.Millisecond).Seconds()
	}
	gain := startGain
	if c.priority == Low {
		gain = lowGain
	}
	c.rate = max(c.rate, gain*c.line)
}

// sway is by how much the RTT has fallen at once during the start. Its queue only grows: the rest
// comes from the path.
func (c *Controller) sway(s Sample) time.Duration {
	if s.RTT < c.prior.RTT {
		c.fall += c.prior.RTT - s.RTT
		c.falls = max(c.falls, c.fall)
	} else if s.RTT > c.prior.RTT {
		c.fall = 0
	}
	return c.falls
}

// drain lets the queue flow off. If what is delivered goes on growing, there was none, but noise.
func (c *Controller) drain(s Sample) {
	age := s.At - c.since
	if age == 0 {
		c.had = c.model.delivered
	}
	excess := c.excess(s)
	many := s.Delivered-c.from.Delivered >= fewPackets*int64(s.MSS)
	if age >= leastWindow && many && excess > 0 { // while there is a queue, this is what the line carries
		c.line = rateSince(c.from, s)
	}
	c.rate = afterDrain * c.line
	if excess > 0 { // a stream sends two packets, and then waits for as long as they take at its rate
		c.rate = min(c.rate, max(drainGain*c.line, float64(2*s.MSS)/excess.Seconds()))
	}
	switch {
	case age < max(c.from.RTT, leastWindow):
	case rateSince(c.from, s) > goesOn*c.had:
		c.enter(Startup, s.At)
		c.start(s)
	case excess <= 0 || age > 4*s.RTT+leastWindow:
		c.rate = afterDrain * c.line
		c.enter(Cruise, s.At)
	}
}

// packets is the time that n packets take on the line.
func (c *Controller) packets(n, mss int) time.Duration {
	rate := max(c.line, c.model.delivered)
	if rate <= 0 {
		return 0
	}
	return seconds(float64(n*mss) / rate)
}

// lag is how long it takes to see what a change does: a round trip, and on a narrow line the time
// in which the kernel's smoothed RTT follows (RFC 6298: an eighth with each acknowledgement).
func (c *Controller) lag(s Sample) time.Duration {
	return max(s.RTT, min(c.packets(smoothed*s.Streams, s.MSS), mostLag))
}

// excess is what is in flight beyond what the line holds, as delay. It shows a queue a round trip
// before the RTT does.
func (c *Controller) excess(s Sample) time.Duration {
	if s.InFlight == 0 {
		return -c.model.base
	}
	return seconds(float64(s.InFlight)/c.line) - c.model.base
}

// queued tells whether what is in flight waits in a queue, by what is delivered (Little's law). The
// smoothed RTT says so too long where little is acknowledged.
func (c *Controller) queued(s Sample) bool {
	m := &c.model
	return m.delivered > 0 && float64(s.InFlight) > m.delivered*(m.base+c.aim(s)/2).Seconds()
}

// cruise holds the standing queue at its aim. With R the rate, D the delivered rate and T the time
// in which to correct the queue: R = D × (1 + (aim - queue) / T). T is twice the age of the
// feedback.
func (c *Controller) cruise(s Sample, dt time.Duration) {
	m := &c.model
	c.over = 1
	aim := c.aim(s)
	trip := max(c.lag(s), dt)
	if c.priority == Low { // others may take the line from it slowly
		c.ours = max(c.line, c.ours*(1-dt.Seconds()/longHold.Seconds()))
	}
	if m.standing > aim {
		c.low, c.proved = 0, true
		c.brake(s, aim, trip)
		return
	}
	if c.full > 0 { // the queue is gone
		c.full = 0
		if c.priority != Low {
			c.rate = max(c.rate, afterDrain*c.line)
		}
	}
	age := s.At - c.since
	if age > 3*m.steadyWindow() { // what is measured by now is no longer the start's
		c.line *= 1 - dt.Seconds()/(30*trip+5*time.Second).Seconds()
	}
	c.line = max(m.most(), c.line)
	if s.Backlog == 0 {
		c.short = s.At
		return // it does not send what it may: nothing is learnt
	}
	if s.At < c.deaf {
		c.short = s.At
		c.rate = max(c.rate, afterDrain*c.line)
		return
	}
	c.quicken(s, trip)
	if age > 2*m.rateWindow(s) && c.crowded(s, trip) || age > 2*m.steadyWindow() && c.heed(s) {
		return
	}
	// A queue begins: the RTT will show it later. A stream may have two pairs of packets under way.
	if c.excess(s) > max(aim, m.usual*5/4, c.packets(4, s.MSS)) {
		c.rate, c.over = min(c.rate, c.line), 1
		return
	}
	if c.low == 0 || c.low > c.line {
		c.low = c.line
	}
	if !c.proved && c.line > again*c.low && c.priority != Low && m.losses < c.random*1.5+mostLoss {
		c.enter(Startup, s.At) // it carries far more than was known
		c.low, c.first, c.proved, c.falls = 0, s.At, false, 0
		c.start(s)
		return
	}
	slow := max(trip, standingTime)
	calm, long := s.At-c.calm, longCalm*slow
	if !c.proved {
		long = doubtfulCalm * slow
	}
	// A stream sends two packets at a time, and the second one waits for the first.
	if m.standing < (aim+c.packets(2, s.MSS)+m.jitter())/2 && (c.rate > c.line && calm > 3*trip || calm > long) {
		c.growth = min(mostGrowth, c.growth*math.Pow(1.5, dt.Seconds()/trip.Seconds()))
	}
	part := min(1, dt.Seconds()/slow.Seconds())
	packet := c.packets(1, s.MSS).Seconds() / slow.Seconds() // more by this makes a queue of one until it is seen
	if known := afterDrain * c.line; c.rate < known {
		c.rate = min(known, c.rate*c.rises(dt))
	} else {
		c.rate *= 1 + max(c.growth, packet)*part
	}
	// No more is tried than makes a queue of twice the aim before it is seen, unless there was none for long.
	most := max(2*aim.Seconds()/(trip+standingTime).Seconds(), c.growth)
	c.rate = min(c.rate, c.line*(1+most))
	if s.At < c.ceilUntil {
		c.rate = min(c.rate, c.ceil)
	}
}

// quicken gives up gentle streams where random loss makes them slower than they may be.
func (c *Controller) quicken(s Sample, trip time.Duration) {
	m := &c.model
	slow := slowShare
	if s.Gentle && s.At >= c.ceilUntil {
		slow = slowGentle
		if m.losses > 0 && m.steady > 0 {
			c.over = min(max(1, c.rate/m.steady), mostOver)
		}
	}
	if m.losses == 0 || m.steady > slow*c.rate {
		c.short, c.behind, c.need = s.At, false, 0
		return
	}
	if s.At-c.short > max(6*trip, leastFight) {
		c.behind = c.lossy // more streams may help where quick ones do not
		if !c.lossy {
			c.lossy, c.short = true, s.At
		}
		if s.Gentle && c.calmLost.lost >= float64(tellingLosses*s.MSS) {
			c.need = gentleStreams(c.rate, m.base, s.MSS, c.calmLost.share())
		}
	}
}

// gentleStreams is how many gentle streams carry a rate in bytes/s in spite of random loss. Their mean
// windows are those of RFC 9438, section 5.4, and of the part of it that does as reno does.
func gentleStreams(rate float64, rtt time.Duration, mss int, loss float64) int {
	cubic := 1.054 * math.Pow(rtt.Seconds()/loss, 0.75)
	reno := math.Sqrt(1.5 / loss)
	return int(math.Ceil(spare * rate * rtt.Seconds() / float64(mss) / max(cubic, reno)))
}

// crowded acts on loss with some queue: the queue is short, and full at times. Loss stops below what
// was delivered then, if nobody else is there. It tells whether others are.
func (c *Controller) crowded(s Sample, trip time.Duration) bool {
	m := &c.model
	if queued := m.queue > m.usual+fullQueue; !queued {
		c.calmLost.add(s, c.prior)
		return false
	}
	if m.lost < 4*c.calmLost.share()+someLoss || s.At-c.event < max(4*trip, leastFight) {
		return false
	}
	held := s.At < c.ceilUntil && c.rate <= c.ceil
	c.event = s.At
	c.bound(belowFull*min(max(m.steady, m.delivered), c.rate), s.At+firstHold)
	if !held {
		c.events = 0
		return false
	}
	if c.events++; c.events < 2 && c.priority != Low {
		return false
	}
	c.events = 0
	c.share(s)
	c.stay = 2 * leastStay // a short queue does not tell when others are gone
	return true
}

// bound keeps the rate below one until then. A pause of the streams is no reason for a low one.
func (c *Controller) bound(rate float64, until time.Duration) {
	c.proved = true
	c.ceil, c.ceilUntil = max(rate, leastShare*c.line), until
	c.rate = min(c.rate, c.ceil)
}

// heed acts on loss without a queue. A policer, or a queue that is too short to be seen, drops what
// exceeds a rate: with less, nothing is lost. Random loss stays the same. So heed sends less for a
// moment, and looks. It tells whether it does so now.
func (c *Controller) heed(s Sample) bool {
	m := &c.model
	look := 2*m.steadyWindow() + s.RTT
	switch {
	case c.looks == 0 && m.losses > c.random*1.5+mostLoss:
		c.looks, c.before, c.seen = s.At, c.rate, m.losses
		c.rate = min(c.rate, belowFull*m.steady)
	case c.looks == 0 || s.At-c.looks < look:
	case m.losses < c.seen/2: // it was the rate
		c.looks = 0
		c.hold = min(max(2*c.hold, firstHold), longHold)
		c.line = max(m.steady, c.line/2)
		c.bound(belowLoss*m.steady, s.At+c.hold)
	default:
		c.looks = 0
		c.random, c.rate = m.losses, c.before
	}
	return c.looks > 0
}

// brake sends less than the line carries until the queue is back at its aim. While there is a queue,
// what is delivered is what the line carries, or our part of it.
func (c *Controller) brake(s Sample, aim, trip time.Duration) {
	m := &c.model
	if c.full == 0 {
		c.full, c.from, c.had = s.At, s, max(c.line, c.ours)
	}
	correct := 2 * (trip + standingTime)
	age := s.At - c.full
	switch {
	case !c.queued(s): // the windows of streams hold it, not the line
	case age > m.steadyWindow():
		c.line = m.steady
	case age > max(trip, standingTime):
		c.line = min(c.line, rateSince(c.from, s))
	}
	if age < 2*m.steadyWindow() { // less may be a pause of a host, not of the line
		c.line = max(c.line, leastShare*c.had)
	}
	c.calm, c.growth = s.At, leastGrowth
	switch {
	case (age > 4*correct || c.priority == Low && age > correct) && c.line < takenShare*c.had:
		// A queue of our own would be gone: others take what we leave.
		c.share(s)
	case m.standing > 3*aim && age > max(8*trip, leastFight), m.standing > aim*3/2 && age > 3*correct:
		if s.At-c.doubted > max(doubtTrips*trip, doubtAgain) {
			c.doubts = 0
		}
		if c.doubts++; c.doubts > mostDoubts {
			c.doubts = 0
			c.share(s) // alone, a session does not fill the queue again so soon
			return
		}
		c.enter(Doubt, s.At)
		c.doubt(s)
	default:
		excess := max(0, min(m.standing, c.excess(s))-aim).Seconds() / correct.Seconds()
		rate := c.line * (1 - min(excess, 1-leastShare))
		if c.priority == Low {
			rate = min(rate, c.rate) // the rest may be that of others
		}
		c.rate = rate
	}
}

// share begins to share the line with others.
func (c *Controller) share(s Sample) {
	c.lossy = c.random > 0 // the others' queue may have been what lost something at the start
	if c.priority == Low {
		c.give(s)
		return
	}
	c.enter(Compete, s.At)
	c.peak, c.quick, c.stay = math.Inf(1), 0, leastStay
	c.most = c.line
	c.compete(s)
}

// seek lets free streams find their part of the line quickly: gentle ones would take minutes on a
// long path. It does so where the queue is deep, since quick streams push others out of a short one,
// and again where gentle streams have lost what was found.
func (c *Controller) seek(s Sample) {
	m := &c.model
	if s.At < c.quick || m.standing < m.base/4 {
		return
	}
	lost := m.steady < quickShare*c.peak
	c.peak = max(m.steady, c.peak*(1-(s.At-c.prior.At).Seconds()/longHold.Seconds()))
	if lost && s.At-c.quick > leastQuick {
		c.peak, c.quick = m.steady, s.At+max(quickTrips*s.RTT, leastQuick)
	}
}

// doubt sends clearly less than is delivered, for a moment. A queue of our own flows off and does
// not come back at a little less than the line carries; another is that of others.
func (c *Controller) doubt(s Sample) {
	m := &c.model
	age := s.At - c.since
	lag := c.lag(s)
	if trip := max(lag, standingTime); c.queued(s) && age > trip && age < 2*trip {
		c.line = min(c.line, max(rateSince(c.from, s), c.had/4)) // it was sent before less was
	}
	if age <= lag {
		c.dip, c.top = m.queue, m.queue
	}
	c.dip, c.top = min(c.dip, m.queue), max(c.top, m.queue)
	switch {
	case c.empty == 0 && m.queue <= c.aim(s):
		c.empty = s.At
	case c.empty == 0 && age > max(6*lag, testFor) && c.longer():
		m.base += c.dip
		c.full = 0
		c.rate = afterDrain * c.line
		c.enter(Cruise, s.At)
		return
	case c.empty == 0 && age > max(6*lag, testFor):
		c.share(s)
		return
	case c.empty > 0 && m.queue > c.aim(s) && m.standing > c.aim(s)/2 && s.At-c.empty > lag:
		c.share(s)
		return
	case c.empty > 0 && s.At-c.empty > max(4*lag, testFor/2):
		c.full, c.doubted = 0, s.At
		c.rate = afterDrain * c.line
		c.enter(Cruise, s.At)
		return
	}
	c.rate = leastShare * c.line
	if c.empty > 0 {
		c.rate = emptyShare * c.line
	}
}

// longer tells, at the end of a doubt, whether the way has become longer: the RTT did not change
// although clearly less was sent, and the session still has most of what it ever had. Others would
// have let the queue grow, or it would have become shorter.
func (c *Controller) longer() bool {
	m := &c.model
	return c.top-c.dip < max(leastAim, m.jitter()) && c.line > c.best/2 && m.lost < mostLoss
}

// compete lets few streams share the line with others, as their congestion control does. From time
// to time it sends less for a moment: if the queue then flows off, the others are gone.
func (c *Controller) compete(s Sample) {
	if c.priority == Low { // it has changed
		c.give(s)
		return
	}
	m, lag := &c.model, c.lag(s)
	if m.standing > c.aim(s) {
		c.calm = s.At
	}
	c.seek(s)
	switch {
	case s.At-c.calm > max(4*lag, 2*standingTime) && s.At-c.since > c.stay:
		c.rate = afterDrain * max(m.steady, (m.steady+c.line)/2)
		c.test, c.full = 0, 0
		c.enter(Cruise, s.At)
	case c.test > 0 && s.At-c.test > max(6*lag, testFor):
		c.test, c.since = 0, s.At
		c.rate = c.joins(s, lag)
	case c.test > 0:
	case s.At-c.since > testEvery:
		c.test = s.At
		c.line = m.steady
		c.rate = leastShare * c.line
	default:
		c.rate = c.joins(s, lag)
	}
}

// joins is the bound of free streams. Their slow start would push others aside: they begin with what
// the session had, and take more step by step, until a loss shows them their part.
func (c *Controller) joins(s Sample, lag time.Duration) float64 {
	if s.At-c.since > 2*lag && c.model.lost > 0 {
		c.most = math.Inf(1)
	}
	c.most *= 1 + joinRise*min(1, (s.At-c.prior.At).Seconds()/lag.Seconds())
	if s.At < c.quick {
		return min(c.most, quickGain*max(c.model.steady, c.model.delivered))
	}
	return c.most
}

// give leaves the line to others.
func (c *Controller) give(s Sample) {
	c.pause = min(max(2*c.pause, firstPause), longPause)
	if s.At-c.yields > 4*longPause {
		c.pause = firstPause
	}
	c.yields, c.ours = s.At, 0
	c.line = max(c.line, c.had) // others have the rest of it
	c.enter(Yield, s.At)
	c.rate = c.floor()
}

// floor is the rate of a session that yields.
func (c *Controller) floor() float64 { return max(floorShare*c.line, c.leastRate()) }

// leastRate is the rate with which the RTT can be seen, bytes/s: a few segments in each, but much
// less than a narrow line carries.
func (c *Controller) leastRate() float64 {
	mss := float64(c.last.MSS)
	return max(mss/2, min(4*mss/max(c.model.base, standingTime).Seconds(), c.line/4))
}

// yield takes next to nothing while there is a queue, and more, step by step, when there was none
// for a while.
func (c *Controller) yield(s Sample, dt time.Duration) {
	m := &c.model
	switch {
	case c.priority != Low:
		c.enter(Compete, s.At)
		c.compete(s)
	case m.standing > c.aim(s):
		if c.rate > 2*c.floor() {
			c.pause = min(2*c.pause, longPause)
		}
		c.calm, c.yields = s.At, s.At
		c.rate = c.floor()
	case s.At-c.calm < max(c.pause, 4*s.RTT):
	case c.rate > c.line/4:
		c.full = 0
		c.enter(Cruise, s.At)
	default:
		c.rate *= c.rises(dt)
	}
}

// rises is by how much a session takes more of a line that it knows. One of low priority does so
// slowly, to see in time that others are there.
func (c *Controller) rises(dt time.Duration) float64 {
	step, per := rise, c.last.RTT
	if c.priority == Low {
		if c.model.queue > c.aim(c.last) {
			return 1
		}
		step, per = lowRise, max(per, standingTime)
	}
	return 1 + step*min(1, dt.Seconds()/per.Seconds())
}

// tally is the loss of the last tallyTime, with older loss counting less and less.
type tally struct{ lost, sent float64 }

const tallyTime = 10 * time.Second

// add counts what happened between two samples.
func (t *tally) add(s, before Sample) {
	keep := math.Exp(-(s.At - before.At).Seconds() / tallyTime.Seconds())
	lost := float64(s.Lost - before.Lost)
	t.lost = keep*t.lost + lost
	t.sent = keep*t.sent + lost + float64(s.Delivered-before.Delivered)
}

// share is the part of what was sent that was lost, 0 to 1.
func (t *tally) share() float64 {
	if t.sent == 0 {
		return 0
	}
	return t.lost / t.sent
}
