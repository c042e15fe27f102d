package congestion

import (
	"math"
	"time"
)

const (
	// cubicKeeps is the part of its window that cubic keeps after a loss (RFC 9438).
	cubicKeeps = 0.7
	// quickShare is the part of the most that was delivered beside others, with less of which a free
	// stream looks for its part again.
	quickShare = 0.3
	// quickTrips and leastQuick are how long that takes at most.
	quickTrips = 40
	leastQuick = time.Second
	// foundShare is the part of what it looks for with which it is content.
	foundShare = 0.9
	// quickGain bounds what a session sends meanwhile, as a multiple of what is delivered.
	quickGain = 2
	// floodLoss is the share of loss at which it stops growing quickly, and gains the growth per round
	// trip below which it does: it wins nothing more from others.
	floodLoss = 0.01
	gains     = 1.05
	// freeStreams is how many flows of others a session counts as.
	freeStreams = 1
	// highStreams is that number for a session of high priority.
	highStreams = 8
	// mostPart is the part of the line that a session goes to beside others, and highPart that of one of
	// high priority: one other flow shall keep four and one tenth of what it has alone. Where nothing
	// shows the part, halfShare of the most that the session had is the bound.
	mostPart  = 0.35
	highPart  = 0.78
	halfShare = 0.5
	// leastStay is how long a session shares at the least.
	leastStay = 3 * time.Second
	// leastAlone is longer than BBR leaves the queue empty to see the RTT: 200 ms and a round trip.
	leastAlone = 400 * time.Millisecond
	// wakeTrips and leastWake are how long streams that were held, or have lost most of their windows,
	// are quick after that: gentle ones would need seconds.
	wakeTrips = 8
	leastWake = 300 * time.Millisecond
	// testEvery is the time from one test whether others are gone to the next. A session that looks for
	// its part waits half of it. testFor is the least time that a test takes.
	testEvery = 5 * time.Second
	testFor   = 300 * time.Millisecond

	// floorShare is the part of the line that a session takes while it yields: enough to see the
	// queue.
	floorShare = 0.01
	// yieldPause is how long the queue must be short before a session that yields takes more, and longPause the
	// same if it yields again before it had the whole line.
	yieldPause = 2 * time.Second
	longPause  = 3 * time.Second
	// filledFor is the time in which the queue must be too long in the mean to be that of others.
	filledFor = 300 * time.Millisecond
	// quarter is the part of the line from which on all streams send again, and mostOfIt the same where so many
	// would show a queue late.
	quarter  = 0.25
	mostOfIt = 0.75
	// rise is the growth per round trip of a session that takes again what the line carries.
	rise = 0.25
	// poorShare is the part of the line with less of which a session tests more often, and leastPart the least that
	// a test can show.
	poorShare = 0.25
	leastPart = 0.1
	// mostFlows bounds as how many flows a session counts whose part of the line is small. flowsMemory
	// is for how long after these others it still counts as so many.
	mostFlows   = 4
	flowsMemory = 10 * time.Second
	// leastPackets is the least part of a flow in flight. With less, timers resend what is lost.
	leastPackets = 2
	// exactPackets is the least in flight in a test that shows the session's part.
	exactPackets = 16
	// joinRise is the growth per second of what free streams may send behind a deep queue, leftRise that
	// behind a short one of others who were left something, roomRise that per round trip behind another
	// one, and highRise at high priority until they lose something. Where a test has bound them, a shallow
	// queue counts as short only while it is nearly empty.
	joinRise = 0.05
	leftRise = 0.2
	roomRise = 0.1
	highRise = 0.2
	// lowRise is that of a session of low priority, in 100 ms at the most: while it yields, and after a
	// queue. Until it has the whole line again, it takes no more than makes a queue of riseOver times the
	// usual aim before it is seen: more than the aim, or it would never show.
	lowRise  = 0.2
	riseOver = 1.75
	// brimPart is the part of a full queue, as a divisor, that a session holds at most.
	brimPart = 3
	// idleJitters is how many times model.jitter the mean queue is at most, if jitter explains it.
	idleJitters = 2
	// floorPart is the part of a full queue, as a divisor, that a session of low priority ignores while it yields, because
	// others fill all of it time and again. On a short path that is less than the noise of hosts: there it ignores
	// lowLeast, but at most floorBrim of the full queue.
	floorPart = 6
	floorBrim = 0.6
	// sameShare is by how much, as a share, two rates differ at most that are the same.
	sameShare = 0.05
	// cutMemory is for how long a session of low priority suspects others after a long queue.
	cutMemory = 3 * time.Second
)

// others is how the session shares the line with others, or yields to them.
type others struct {
	ours   float64       // largest line since a session of low priority yielded
	got    float64       // what the line carried of ours when a session of low priority yielded, bytes/s
	cut    time.Duration // when a session of low priority saw a long queue; 0 is not
	shown  Sample        // the last one with no queue of theirs in the base
	first  time.Duration // least RTT that the handshakes and the first packets saw
	bursts time.Duration // mean queue that a session of low priority takes for the bursts of others
	brim   time.Duration // length of the queue when it was full; 0 is unknown
	pause  time.Duration // how long the queue must be short until a session that yields takes more
	back   bool          // a session of low priority has not had the whole line since it yielded
	anew   bool          // it has never seen the line with a short queue: what that carries is not known
	jitter jitter
	most   float64       // bound of free streams, bytes/s
	peak   float64       // most that was delivered of late beside others, bytes/s
	quick  time.Duration // until when free streams look for their part of the line quickly
	poor   bool          // the last test has shown a small part
	sought time.Duration // when they began to look for it
	flows  int           // streams that are free
	bound  bool          // a test has shown their part of the line, and most is by that
	test   time.Duration // start of the present test whether others are gone; 0 is none
	deep   time.Duration // queue at that moment
	dip    time.Duration // least queue since then
	top    time.Duration // largest one
	part   float64       // of the line that the session has, by the test
	exact  bool          // it is not more
	rivals rivals
	busy   time.Duration // when the line did not seem to have room, the last time
	vain   bool          // the last test has shown nothing
	tested time.Duration // end of the last test
	left   time.Duration // when the others were gone, the last time; 0 is never
}

// share begins to share the line with others.
func (c *Controller) share(s Sample) {
	c.loss.hastens(s.At, c.loss.random > 0) // the others' queue may have been what lost something at the start
	c.loss.ceilUntil, c.loss.policed, c.loss.policing = 0, 0, 0
	if c.priority == Low {
		c.give(s)
		return
	}
	if from := c.model.past[0]; lossSince(from, s) > 4*c.loss.calm.share()+someLoss && s.At >= c.outage.deaf {
		if full := c.model.longest(from.At); full > c.aim(s) {
			c.others.brim = max(c.others.brim, full)
		}
	}
	if c.others.flows == 0 || s.At-c.others.left > flowsMemory {
		c.others.flows = freeStreams
	}
	c.known = max(c.known, c.line)
	c.others.peak, c.others.quick = math.Inf(1), 0
	c.others.most = max(c.line, mostPart*c.doubts.best)
	c.others.poor, c.others.bound, c.lean = false, false, lean{}
	c.others.rivals = rivals{}
	if c.state == Doubt {
		part := portion(c.from, s)
		c.others.poor, c.others.exact = part < poorShare, false
		c.claim(part)
	}
	c.enter(Compete, s.At)
	c.compete(s)
}

// portion is the session's part of what is in flight on the line, by what a change of its own does to
// the RTT: others keep what they have in flight (Little's law).
func portion(from, to Sample) float64 {
	changed := 1 - float64(to.InFlight)/float64(max(from.InFlight, 1))
	if changed == 0 || from.RTT == 0 {
		return 0
	}
	return (1 - to.RTT.Seconds()/from.RTT.Seconds()) / changed
}

// seek lets free streams find their part of the line quickly: gentle ones would take minutes on a
// long path. It does so where the queue is deep, since quick streams push others out of a short one,
// and again where gentle streams have lost what was found.
func (c *Controller) seek(s Sample) {
	m, o := &c.model, &c.others
	if s.At < o.quick {
		// A quick stream that looks for the RTT has next to nothing in flight, and would keep that window.
		flies := float64(s.InFlight) > foundShare*m.delivered*m.base.Seconds()
		age, lag := s.At-o.sought, c.lag(s)
		// Once the queue is full, more would only make everybody lose more.
		flood := m.lost > floodLoss || age > 4*lag && m.delivered < gains*m.earlier(s)
		switch {
		case !flies:
			o.quick = max(o.quick, s.At+s.RTT)
		case flood, m.delivered > foundShare*o.most && age > 2*lag:
			o.quick = s.At
		}
		return
	}
	// At first, the one stream that goes on has only its own window of all that the session had. Where nothing was lost
	// yet, no queue is full, and the base holds some of it.
	first, queue := math.IsInf(o.peak, 1), m.standing
	if first && s.Lost == 0 {
		queue += max(0, c.raised(s))
	}
	if queue < m.base/4 && (c.priority != High || c.shallow()) {
		return
	}
	lost := m.steady < quickShare*o.peak
	if lost && s.At-o.quick > leastQuick {
		if first {
			o.peak = c.line
		}
		if c.priority != High && !o.bound {
			o.most = max(m.steady, o.peak/2, c.line, mostPart*c.doubts.best)
		}
		c.hurry(s)
	}
	o.peak = max(m.steady, o.peak*(1-(s.At-c.prior.At).Seconds()/longHold.Seconds()))
}

// hurry lets free streams be quick from now on.
func (c *Controller) hurry(s Sample) {
	c.others.sought, c.others.quick, c.others.peak = s.At, s.At+max(quickTrips*s.RTT, leastQuick), c.model.steady
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
	if !c.idles(s) {
		c.others.busy = s.At
	}
	if m.lost > 0 {
		c.brims(s, lag)
	}
	if c.loss.random > 0 && !c.byChance(s) {
		c.loss.random = 0
		c.loss.hastens(s.At, false)
	}
	if !c.resists(s) {
		c.seek(s)
	}
	o := &c.others
	o.dip, o.top = min(o.dip, m.queue), max(o.top, m.queue)
	switch {
	case c.alone(s, lag):
		c.rate = afterDrain * max(m.steady, (m.steady+c.line)/2)
		if b := &c.siblings; b.crowd(s.At) {
			c.line, m.rates = b.part(c.priority, max(m.steady, c.line)), nil
			c.rate = afterDrain * c.line
		}
		c.others.test, c.full, c.others.left = 0, 0, s.At
		c.enter(Cruise, s.At)
		c.regain()
	case c.others.test > 0 && c.holds(s, lag) && c.still(s):
		c.lengthen(m.standing)
		o.test, o.brim, o.left = 0, 0, s.At
	case c.others.test > 0 && c.holds(s, lag):
		c.glance(s, lag)
		c.others.test, c.others.tested = 0, s.At-1
		c.weigh(s)
		c.rate = c.joins(s, lag)
	case c.others.test > 0:
		c.glance(s, lag)
	case c.tests(s):
		c.others.exact = false
		c.others.quick = min(c.others.quick, s.At) // BBR starts anew after it
		o.test, o.deep, o.dip, o.top = s.At, m.queue, m.queue, m.queue
		c.began, c.from = m.base, m.mean(s.At, max(lag, standingTime))
		c.line = float64(c.from.InFlight) / max(c.from.RTT, time.Microsecond).Seconds()
		c.rate = leastShare * c.line
	default:
		c.rate = c.joins(s, lag)
	}
}

// pauses is the time between two tests. A session that has not its part looks more often.
func (c *Controller) pauses() time.Duration {
	o := &c.others
	if c.priority == High && c.model.steady < foundShare*o.most || o.poor && o.flows < mostFlows {
		return testEvery / 2
	}
	return testEvery
}

// alone reports whether the others are gone: the queue is short, and not because of a test, or a test has shown that
// all of it was the session's own. A session with a small part of the line tests so often that it would never
// know: its long queue must be gone for longer, and so must a shallow one, which others leave empty at times.
// Siblings make room in a test together, where a queue of others would stay.
func (c *Controller) alone(s Sample, lag time.Duration) bool {
	calm := s.At - c.calm
	crowd := c.siblings.crowd(s.At)
	switch {
	case c.priority == Normal && !crowd && c.model.losses > mostLoss+2*c.loss.random && calm < 3*leastStay:
		return false // alone, it would lose nothing, unless the path does
	case s.At-max(c.others.busy, c.since) > leastStay:
		return true
	case c.others.test > 0 && crowd:
		return calm > max(4*lag, leastAlone)
	case c.others.test > 0 && c.others.exact && c.others.part > wholeShare:
		return calm > lag
	case c.others.bound && c.model.steady < wholeShare*c.line: // others need time for what they were left
		return calm > 3*leastStay
	case c.shallow():
		return calm > leastStay
	}
	return calm > max(4*lag, leastAlone) && c.stayed(s) > leastStay || calm > max(8*lag, leastStay/2) && c.others.poor
}

// idles reports whether the line seems to have room, although the session has less than half of the most that it had.
// There is more jitter than the aim allows for, so the queue never seems to be gone, and jitter explains the mean queue.
// What the path loses may be what holds free streams back then.
func (c *Controller) idles(s Sample) bool {
	m, jitter := &c.model, c.model.jitter()
	rough := jitter > c.usualAim() && m.usual < min(idleJitters*jitter, m.base/4)
	return rough && m.steady < halfShare*c.doubts.best && !c.siblings.crowd(s.At)
}

// shallow reports whether even a full queue is so short that others leave it empty for seconds.
func (c *Controller) shallow() bool { return c.others.brim > 0 && c.empties(c.others.brim) }

// empties reports whether a flow that gives up three tenths of its window, as cubic does after a loss, empties a queue.
func (c *Controller) empties(queue time.Duration) bool {
	return queue.Seconds() < (1/cubicKeeps-1)*c.model.base.Seconds()
}

// brims notes how long the queue was that has lost something.
func (c *Controller) brims(s Sample, trip time.Duration) {
	c.others.brim = max(c.others.brim, c.model.longest(s.At-2*trip))
}

// stayed is how long the session has shared the line since the last test.
func (c *Controller) stayed(s Sample) time.Duration { return s.At - max(c.since, c.others.tested) }

// holds tells, in a test, whether others hold the queue: it does not fall nearly as fast as one of our
// own.
func (c *Controller) holds(s Sample, lag time.Duration) bool {
	age := s.At - c.others.test
	low := c.others.deep - falls(age-lag)
	if two := seconds(float64(2*s.MSS) / max(c.line, c.known)); two > delayedAck { // less than two packets are no queue
		low = max(low, two)
	}
	if c.siblings.crowd(s.At) { // they test, too: once the queue is gone, it must stay so
		low = max(low, c.aim(s))
	}
	return age > max(2*lag+scale(c.others.deep, 1/(1-leastShare)), testFor) && c.model.standing > low
}

// still reports whether, in a test, a queue has hardly changed although the session has half of the line or more, and
// sends a quarter less: it is no queue, but a longer way. With a part p of the line, the RTT would become shorter by p/4.
func (c *Controller) still(s Sample) bool {
	o := &c.others
	half := c.doubts.alone > 0 && c.line > halfShare*c.doubts.alone
	paused := c.outage.stall.seen > o.test
	few := min(o.deep/8, scale(c.from.RTT, (1-leastShare)*halfShare/2))
	return half && !paused && s.Lost == c.from.Lost && o.top-o.dip < few
}

// tests reports whether it is time to test whether others are gone. Siblings do so at the same time: each
// of them alone would find the queue of the others.
func (c *Controller) tests(s Sample) bool {
	b := &c.siblings
	if !b.crowd(s.At) {
		o := &c.others
		return s.At > o.quick+min(max(4*c.lag(s), standingTime), testEvery) && (o.quick > o.tested || c.stayed(s) > c.pauses())
	}
	turn := b.turn != b.Turn
	b.turn = b.Turn
	return turn
}

// weigh takes what a test has shown: the session goes to its part of the line. With a small one it counts as
// more flows, since the others are quick or many.
func (c *Controller) weigh(s Sample) {
	m, o := &c.model, &c.others
	if o.vain = !o.vain && s.Lost-c.from.Lost >= int64(tellingLosses*s.MSS); o.vain {
		o.quick = s.At // others have lost something, too, and send less: soon again
		return
	}
	c.claim(o.part)
	if c.priority != High && c.shallow() && c.gone(s) { // the most that it had stands for the line
		o.bound, o.most = true, min(o.most, halfShare*c.doubts.best)
	}
	if c.priority == High || m.standing < m.base/4 {
		return
	}
	o.poor = o.part < poorShare
	switch {
	case o.part < foundShare*mostPart: // its window may hold the stream back for long
		if more := min(2*o.flows, mostFlows); c.from.InFlight >= int64(more*leastPackets*s.MSS) {
			o.flows = more
		}
	case o.part > mostPart:
		o.flows = max(o.flows/2, freeStreams)
	}
}

// glance takes the session's part of the line while the queue falls in a test: before it is gone, and before
// others have taken what they were left, within few of their round trips.
func (c *Controller) glance(s Sample, lag time.Duration) {
	m, o := &c.model, &c.others
	if age := s.At - o.test; o.exact && (m.queue < o.deep/2 || age > max(4*lag, testFor/3)) || age < 2*lag {
		return
	}
	o.exact = m.queue >= o.deep/2
	o.part = portion(c.from, m.mean(s.At, max(lag, leastWindow)))
}

// claim bounds the free streams to the part of the line that the session may have, by the one that it has. By
// itself, whoever has too little would need minutes on a long path: others get the rest at once, and the session
// is quick until it has its part.
func (c *Controller) claim(part float64) {
	o, goal := &c.others, mostPart
	if c.priority == High {
		goal = highPart
	}
	// A queue that is gone shows only that the part is not less, and few packets show nothing.
	enough := c.from.InFlight >= int64(exactPackets*c.last.MSS)
	exact := o.exact || !c.gone(c.last)
	if o.bound = part < wholeShare && enough && (exact || part > goal); !o.bound {
		return
	}
	most := c.line * goal / max(part, leastPart)
	if !exact {
		most = min(most, o.most)
	}
	// Quick streams push others out of a short queue.
	if o.most = most; part < foundShare*goal && (c.priority == High || c.model.standing >= c.model.base/4) {
		c.hurry(c.last)
	}
}

// gone reports whether the queue is gone since less is sent.
func (c *Controller) gone(s Sample) bool {
	short := c.least(s) / 2
	return c.model.standing <= short && c.model.base > c.began-short
}

// joins is the bound of free streams. Their slow start, or the window that a quick stream leaves, would
// push others aside: they begin with what the session had, and take more step by step.
func (c *Controller) joins(s Sample, lag time.Duration) float64 {
	m, o, dt := &c.model, &c.others, (s.At - c.prior.At).Seconds()
	trips := min(1, dt/lag.Seconds())
	switch {
	case c.priority == High:
		return c.takes(s, lag)
	case s.At < o.quick:
		return min(o.most, quickGain*max(m.steady, m.delivered))
	case o.bound && m.standing > c.aim(s) && (m.standing >= m.base/4 || c.shallow()): // others take the rest
	case !o.bound && (m.standing >= m.base/4 || c.shallow()):
		o.most *= 1 + joinRise*dt
	case o.bound: // others need time for the room that there is
		o.most *= 1 + leftRise*dt
	default: // gentle streams take it slowly
		o.most *= 1 + roomRise*trips
	}
	return o.most
}

// takes is the bound of the free streams of a session of high priority: they go on until a loss or a
// test shows them their part.
func (c *Controller) takes(s Sample, lag time.Duration) float64 {
	m, o := &c.model, &c.others
	switch dt := (s.At - c.prior.At).Seconds(); {
	case o.bound:
	case s.At-c.since > 2*lag && m.lost > 0:
		o.most = math.Inf(1)
	default:
		o.most *= 1 + highRise*min(1, dt/lag.Seconds())
	}
	if s.At < o.quick {
		return min(o.most, quickGain*max(m.steady, m.delivered))
	}
	return o.most
}

// occupied reports whether others had a queue before the session began: the RTT is shorter now than the
// handshakes and the first packets saw it.
func (c *Controller) occupied(s Sample) bool {
	if c.others.first == 0 {
		c.others.first = s.Least
	}
	fall := max(c.aim(s), c.model.base/20)
	if c.priority != Low { // a check costs it something
		fall = max(fall, c.model.base/8, c.model.jitter(), c.deviates())
	}
	if c.state == Startup && s.Lost > 0 { // the queue was full, and others have lost something, too
		fall /= 3
	}
	if s.RTT == 0 || c.prior.RTT == 0 || c.others.first-s.RTT < fall {
		return false
	}
	c.others.first = s.RTT
	return c.state != Yield
}

// give leaves the line to others, unless it carries as much of ours as when they were left it the last
// time: others would take more or less by now, but a line that has become slower does not change.
func (c *Controller) give(s Sample) {
	m, got := &c.model, c.model.delivered
	same := math.Abs(got-c.others.got) < sameShare*got
	c.others.got = got
	c.room = room{} // what seemed noise may have been they
	if same && c.state == Cruise {
		c.line, c.had, c.others.ours, c.others.back, m.rates = got, got, got, false, nil
		c.full = 0
		c.enter(Cruise, s.At)
		c.rate = lowShare * c.line
		return
	}
	c.others.pause = yieldPause
	if c.others.back {
		c.others.pause = longPause
	}
	c.others.ours, c.others.cut, c.others.back, c.others.anew = 0, 0, true, c.doubts.alone == 0
	c.line = max(c.line, c.had, c.known) // others have the rest of it
	c.enter(Yield, s.At)
	c.rate = c.floor()
}

// floor is the rate of a session that yields.
func (c *Controller) floor() float64 { return max(floorShare*c.line, c.leastRate()) }

// yield takes next to nothing while there is a queue, and more, step by step, when there was none
// for a while.
func (c *Controller) yield(s Sample, dt time.Duration) {
	c.watch(s, dt)
	switch {
	case c.priority != Low:
		c.share(s)
	case c.filled(s):
		c.calm = s.At
		c.rate = c.floor()
	case s.At-c.calm < max(c.others.pause, 4*s.RTT):
	case c.rate <= c.mostYielding(s):
		c.rate *= c.rises(dt)
	case c.others.anew:
		c.enter(Startup, s.At)
		c.low, c.proved, c.opening = 0, false, opening{first: s.At}
		c.start(s)
	default:
		c.full = 0
		c.bursty(s) // with less of an aim, the session would yield again
		c.enter(Cruise, s.At)
	}
}

// mostYielding is the rate up to which one stream sends for a session that yields. On a narrow line, the smoothed RTTs
// of many would show a queue so late that the session could take more only slowly.
func (c *Controller) mostYielding(s Sample) float64 {
	if !c.others.anew && c.packets(smoothed*s.Streams, s.MSS) > 2*s.RTT {
		return mostOfIt * c.line
	}
	return quarter * c.line
}

// filled reports whether others fill the queue. Few packets show the noise of hosts, too: the mean tells. Where
// jitter may explain it, even that goes up and down, so a longer mean must show it, too.
func (c *Controller) filled(s Sample) bool {
	m, aim := &c.model, c.floorAim(s)
	if most := max(aim, c.jitters(onceDeviations)); c.rate > 2*c.floor() && (m.standing > most || c.grown(s, c.lag(s)) > most) {
		return true
	}
	queue := m.mean(s.At, max(s.RTT, filledFor)).RTT - m.base
	if c.jitters(meanDeviations) >= aim {
		queue = min(queue, m.usual)
	}
	return queue > aim
}

// floorAim is the queue that a session of low priority ignores while it yields. Its few packets meet
// the bursts of others, and the peer delays their acknowledgements: in the lab, by 2 to 3 ms of 50
// beside a flow with a window of 4 MB. Jitter does the same.
func (c *Controller) floorAim(s Sample) time.Duration {
	aim := max(c.aim(s), c.jitters(meanDeviations))
	bursts := max(c.shortQueue(), lowLeast)
	if brim := c.others.brim; brim > 0 { // all of the queue may be shorter than these
		bursts = min(bursts, max(brim/floorPart, min(lowLeast, scale(brim, floorBrim))))
	}
	return max(aim, bursts)
}

// bursty adds a queue that is short and not the session's own to the aim. It returns false if that
// makes the aim no longer, or if the queue is long.
func (c *Controller) bursty(s Sample) bool {
	if c.model.usual <= c.others.bursts || c.model.usual > c.shortQueue() {
		return false
	}
	before := c.least(s)
	c.others.bursts = c.model.usual
	return c.least(s) > before
}

// shortQueue is the mean queue that bursts of others make at most on a line that is not full.
func (c *Controller) shortQueue() time.Duration { return min(c.model.base/12, 2*mostAim) }

// rises is by how much a session takes more of a line that it knows. One of low priority does so slowly:
// others may have come since, and lose something if it fills their queue.
func (c *Controller) rises(dt time.Duration) float64 {
	if c.priority != Low {
		return 1 + rise*min(1, dt.Seconds()/c.last.RTT.Seconds())
	}
	aim := c.floorAim(c.last)
	if c.state == Cruise {
		aim = c.aim(c.last)
	}
	if c.model.queue > aim {
		return 1
	}
	step := lowRise * min(1, dt.Seconds()/max(c.last.RTT, standingTime).Seconds())
	// Those for whom it made room may need less than it left.
	suspects := c.others.cut > 0 && c.last.At-c.others.cut < cutMemory && c.rate > leastShare*c.line
	unknown := c.state == Yield && c.others.anew // the line is no measure
	if !c.others.back && !suspects || unknown {
		return 1 + step
	}
	seen := (c.lag(c.last) + standingTime).Seconds()
	most := riseOver * c.usualAim().Seconds() / seen * c.line / c.rate // in that time
	return 1 + min(step, most*dt.Seconds()/seen)
}
