package congestion

import (
	"math"
	"time"
)

const (
	again        = 1.5   // of the line's rate when its queue became short: what it carries is not known yet
	afterDrain   = 0.97  // of the largest delivered rate
	leastShare   = 0.75  // of the largest delivered rate of late: less only shows that others send
	takenShare   = 0.95  // of what was delivered when a queue began: with less, others take the rest
	mostWindowed = 0.05  // of the time, in which the peer's windows hold streams: it takes less than the line carries
	leastGrowth  = 0.008 // of the rate in a round trip, beyond what is known
	mostGrowth   = 0.25  // the same, once the queue has been short for long, or others have left

	// Streams send a little less than they may, by about a hundredth on short paths. That shows after paceTrips and
	// paceFor, in which a queue would have grown. Then up to mostPace times what is delivered is tried.
	paceTrips = 12
	paceFor   = time.Second
	mostPace  = 1.03

	// soonTime is how long a session of low priority waits, beyond a round trip, until it sees what less of
	// its packets has done: an acknowledgement that was late shows in the RTT for less.
	soonTime = 60 * time.Millisecond
	// wholeShare is the part of the line with more of which a queue may be the session's own.
	wholeShare = 0.9
)

// cruise holds the standing queue at its aim. With R the rate, D the delivered rate and T the time
// in which to correct the queue: R = D × (1 + (aim - queue) / T). T is twice the age of the
// feedback.
func (c *Controller) cruise(s Sample, dt time.Duration) {
	m := &c.model
	trip := max(c.lag(s), dt)
	c.leans(s, trip)
	aim := c.aim(s)
	if c.priority == Low && !c.guess { // others may take the line from it slowly
		c.others.ours = max(c.line, c.others.ours*(1-dt.Seconds()/longHold.Seconds()))
	}
	if c.others.cut > 0 && s.At-c.others.cut < max(4*trip, leastFight) && m.lost > max(mostLoss, 2*c.loss.calm.share()) {
		c.share(s) // the queue was full: alone, the session would have lost nothing
		return
	}
	if c.guess && c.priority == Low && m.standing > aim && c.queued(s) { // a queue of our own would look like that of others
		c.line = min(c.line, m.newest(s))
	}
	if c.priority == Low && c.makesRoom(s, aim, trip) {
		return
	}
	if !c.hidden(s) || c.line > takenDoubt*c.doubts.best {
		c.others.shown = s
	} else if seen := &c.others.shown; s.At-seen.At > c.rests(s) && s.Lost-seen.Lost > int64(tellingLosses*s.MSS) {
		c.share(s)
		return
	}
	if c.beaten(s, trip) {
		c.loss.random = 0 // it was not by chance
		c.share(s)
		return
	}
	if c.unsure(s) {
		return
	}
	if c.stuck(s) && m.standing <= aim && m.losses == 0 && s.Backlog > 0 {
		c.line = max(m.most(), c.line)
		c.rate = min(2*c.line, c.rate*(1+rise*min(1, dt.Seconds()/max(s.RTT, standingTime).Seconds())))
		return
	}
	if m.standing > aim {
		c.low, c.proved = 0, true
		if c.swells(s, trip) {
			c.share(s)
			return
		}
		c.brake(s, aim, trip)
		return
	}
	c.full = 0 // the queue is gone
	c.guess = c.guess && m.most() < c.line
	age := s.At - c.since
	measured := age > 3*m.steadyWindow() && m.most() > 0 // what is measured by now is no longer the start's
	if measured && (c.priority != Low || c.rate > wholeShare*c.line) {
		c.line *= 1 - dt.Seconds()/(30*trip+5*time.Second).Seconds()
	}
	c.line = max(m.most(), c.line)
	if c.slowPolicer(s) { // it let more through at first
		c.line = min(c.line, c.loss.policed)
	}
	if s.Backlog == 0 {
		c.short = s.At
		return // it does not send what it may: nothing is learnt
	}
	if s.At < c.outage.deaf {
		c.short = s.At
		return
	}
	c.quicken(s, trip)
	if c.measuresLoss(s) {
		if c.loss.fresh.At == 0 && s.Delivered >= c.opening.sent {
			c.loss.fresh = s
		}
		if c.crowded(s, trip) || c.loss.fresh.At > 0 && c.heed(s) {
			return
		}
	}
	// A session of low priority makes a queue itself, which may be short between two samples.
	if c.priority == Low && min(m.queue, c.overdue(s)) > max(aim, c.jitters(onceDeviations)) {
		c.calm, c.growth = s.At, leastGrowth
	}
	// A queue begins: the RTT will show it later. A stream may have two pairs of packets under way, and
	// the peer acknowledges each second packet of a stream.
	most := max(aim, m.usual*5/4, seconds(float64(max(4, s.Streams)*s.MSS)/c.carried()))
	if c.priority != Low {
		most = max(most, seconds(c.ahead(trip)*m.base.Seconds()))
	}
	if c.lean.tries() {
		most += c.lean.above
	}
	over := c.over(s, c.carried()) > most
	if over && !c.probes(s) {
		if m.most() > 0 && c.priority != Low { // a burst has shown more, or others take their part
			c.line = min(c.line, (1+leastGrowth)*max(m.most(), m.delivered))
		}
		c.rate = min(c.rate, c.carried())
		return
	}
	if c.low == 0 {
		c.low = c.line
	}
	if (!c.proved || c.growth >= mostGrowth) && c.line > again*c.low {
		c.enter(Startup, s.At) // it carries far more than was known: the start ended early, or others are gone
		c.low, c.proved, c.opening = 0, false, opening{first: s.At}
		c.start(s)
		return
	}
	c.grow(s, aim, trip, dt, over)
}

// measuresLoss reports whether what is lost of late is of this state, and of no pause.
func (c *Controller) measuresLoss(s Sample) bool {
	return s.At-max(c.since, c.outage.stall.seen) > 2*c.model.rateWindow(s)
}

// grow takes more of a line whose queue is short: soon what is known, and what is beyond in steps that
// become larger where no queue follows. They stay small where what is in flight is over what the line holds.
func (c *Controller) grow(s Sample, aim, trip, dt time.Duration, over bool) {
	m := &c.model
	slow := max(trip, standingTime)
	soon := 3 * trip
	if !c.proved { // jitter may have ended the start early
		soon = 3 * slow
	}
	// No more is tried than makes a queue of twice the aim before it is seen, unless there was none for long.
	safe := 2 * aim.Seconds() / (trip + standingTime).Seconds()
	if !c.proved && c.priority != Low { // the start may have ended early, and its queue is no jitter
		safe = c.least(s).Seconds() / (trip + standingTime).Seconds()
		c.growth = max(c.growth, min(safe, mostGrowth))
	}
	known := afterDrain * c.line
	// Sparse packets make what is delivered uneven: the most of it, which is the line, is more than the rate. Where that is
	// little of what the session once had, nearly as much has tried the line, too.
	tried := c.rate > c.line || c.priority != Low && !c.dense(s) && c.line < poorShare*c.doubts.best && c.rate > known
	near := c.nearPolicer(c.rate)
	// A stream sends two packets at a time, and the second one waits for the first.
	if !near && !over && m.standing < (aim+c.packets(2, s.MSS)+m.jitter())/2 && tried && s.At-c.calm > soon {
		c.growth = min(mostGrowth, c.growth*math.Pow(1.5, dt.Seconds()/trip.Seconds()))
	}
	if c.lean.tries() && !over {
		c.growth = max(c.growth, leanGrowth)
	}
	part := min(1, dt.Seconds()/slow.Seconds())
	// More by this makes a queue of one packet until it is seen.
	packet := c.packets(1, s.MSS).Seconds() / slow.Seconds()
	if near { // a policer would drop it
		packet = 0
	}
	carried := c.carried()
	calm := s.At-c.calm > max(paceTrips*trip, paceFor) && m.losses <= 2*c.loss.random+someLoss
	if calm && c.priority != Low { // what is sent and not delivered makes no queue
		carried = min(max(carried, c.rate), mostPace*carried)
	}
	if c.rate < known {
		c.rate = min(known, c.rate*c.rises(dt))
	} else {
		c.others.back = false
		growth := max(c.growth, packet)
		if over {
			growth = min(growth, probeGrowth)
		}
		c.rate *= 1 + growth*part
	}
	c.rate = min(c.rate, carried*(1+max(safe, c.ahead(trip))))
	if s.At < c.loss.ceilUntil && c.rate >= c.loss.ceil { // more was not tried
		c.rate, c.calm, c.growth = c.loss.ceil, s.At, leastGrowth
	}
}

// regain takes a line in the largest steps after others have left it, if they left the session little. If a queue
// shows that they have not, the steps are small again.
func (c *Controller) regain() {
	if c.little() {
		c.growth, c.low = mostGrowth, 0
	}
}

// little reports whether a session above low priority has less than poorShare of what the line carried of late. That is
// forgotten within some minutes.
func (c *Controller) little() bool {
	return c.priority != Low && c.line < poorShare*c.known && !c.siblings.crowd(c.last.At)
}

// bold reports whether the line must carry far more: the queue has been short for long, although more and more was
// sent, or others have left.
func (c *Controller) bold() bool { return c.growth >= mostGrowth && c.priority != Low }

// ahead is by how much, as a share, what is sent exceeds what is delivered while the line has room: it grows
// until it is seen.
func (c *Controller) ahead(trip time.Duration) float64 {
	return c.growth * min(1, (trip+leastWindow).Seconds()/standingTime.Seconds())
}

// carried is what the line carries of ours. What was delivered in the last round trip shows it sooner than
// c.line, but less exactly.
func (c *Controller) carried() float64 {
	if c.bold() {
		return max(c.line, c.model.delivered)
	}
	return c.line
}

// brake sends less than the line carries until the queue is back at its aim. While there is a queue,
// what is delivered is what the line carries, or our part of it.
func (c *Controller) brake(s Sample, aim, trip time.Duration) {
	m := &c.model
	if c.full == 0 {
		c.full, c.from, c.had = s.At, s, max(c.line, c.others.ours)
		if c.guess { // nobody has taken what was only foretold
			c.had = min(c.had, m.steady)
		}
	}
	correct := 2 * (trip + standingTime)
	patience := 3 * correct
	if c.priority == High { // it loses most while it waits
		patience = correct
	}
	age := s.At - c.full
	if age == 0 {
		c.doubts.jump = 0
		if last := &c.outage.stall; last.seen > 0 && s.At-last.seen < 2*trip+max(settleTrips*m.base, leastSettle) {
			c.doubts.jump = s.RTT - last.rtt // a longer way begins with a silence
		}
	}
	if s.At-c.since > startTrips*trip { // soon after the start, that was what let the RTT grow at once
		c.doubts.jump = max(c.doubts.jump, s.RTT-m.before(s.At-2*trip).RTT)
	}
	switch {
	case !c.queued(s), m.windowed > mostWindowed: // the windows of streams hold it, or the peer, not the line
	case age > m.steadyWindow():
		c.line, c.guess = m.steady, false
	case age > max(trip, standingTime):
		c.line = min(c.line, rateSince(c.from, s))
	}
	if age < 2*m.steadyWindow() { // less may be a pause of a host, not of the line
		c.line = max(c.line, leastShare*c.had)
	}
	soon := correct
	if c.others.cut > 0 && c.full > c.others.cut && s.At-c.others.cut < cutMemory {
		soon = correct / 2 // a queue came back
	}
	kept := c.line
	if c.priority == Low { // what a pause takes comes soon after it
		kept = max(kept, m.steady, rateSince(c.from, s))
	}
	exact := float64(s.MSS) / m.steadyWindow().Seconds() // a rate is exact to one packet
	if age == 0 || kept+exact >= takenShare*c.had || c.siblings.whole(s.At) {
		c.whole = s.At
	}
	c.calm, c.growth = s.At, leastGrowth
	switch {
	case age > 4*correct && s.At-c.whole > m.steadyWindow()/2,
		c.priority == Low && age > soon && s.At-c.whole > m.steadyWindow()/2:
		// A queue of our own would be gone: others take what we leave, unless it is that of bursts.
		if c.priority != Low || !c.bursty(s) {
			c.share(s)
		}
	case m.standing > 3*aim && age > max(8*trip, leastFight), m.standing > aim*3/2 && age > patience,
		m.losses > mostLoss && kept < leastShare*c.had && s.At-c.whole > 2*m.steadyWindow()+trip:
		if s.At-c.doubts.ended > max(doubtTrips*trip, doubtAgain) {
			c.doubts.row = 0
		}
		if c.doubts.row++; c.doubts.row > mostDoubts {
			c.doubts.row = 0
			c.share(s) // alone, a session does not fill the queue again so soon
			return
		}
		c.enter(Doubt, s.At)
		c.doubt(s)
	default:
		if c.priority == Low { // at once
			got := c.line
			if c.others.back { // c.line is what it had before others came, which is more than it gets
				got = min(got, max(m.delivered, m.steady, c.rate))
			}
			excess := max(0, min(m.standing, c.over(s, got))-aim)
			c.rate = min(c.rate, got*(1-min(excess.Seconds()/trip.Seconds(), 1-lowShare)))
			return
		}
		excess := max(0, min(m.standing, c.excess(s))-aim)
		c.rate = c.line * (1 - min(excess.Seconds()/correct.Seconds(), 1-leastShare))
	}
}
