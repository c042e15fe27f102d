package congestion

import (
	"math"
	"time"
)

const (
	slowShare  = 0.85  // of the rate: streams that deliver less are held back by loss
	slowGentle = 0.96  // the same where what is lost without a queue is too much for gentle ones
	belowLoss  = 0.99  // of what was delivered without loss, where more is lost
	someLoss   = 5e-4  // share lost with a queue, beyond what is lost without one, that needs a reason
	belowFull  = 0.985 // of what was delivered when a short queue was full
	mostLoss   = 0.01  // share lost without a queue that needs a reason
	nearLoss   = 1.1   // of a rate that made loss, or by so much below it: more is tried in the smallest steps
	heavyLoss  = 0.1   // share lost without a queue that is worth a look, whatever holds the streams back
	mostRandom = 0.2   // share lost that is no chance, whatever else is known

	// fullQueue is how much longer than usual a queue must be, as delay, to count as full.
	fullQueue = 250 * time.Microsecond

	// firstHold is the least time for which a session stays below a rate that made loss. Each time that
	// it finds loss again it stays twice as long. longHold is for how long what it once had counts.
	firstHold = 4 * time.Second
	longHold  = time.Minute
	// A policer that lets little through is left alone for holdPackets at first, because finding it again costs
	// some, but at most for slowHold, and later for up to mostHolds times as long, or longestHold: it may be gone.
	holdPackets = 100
	slowHold    = 30 * time.Second
	longestHold = 5 * time.Minute
	mostHolds   = 15

	// samePolicer is how many times the rate found before one policer may seem to let through: its bucket does so at
	// first.
	samePolicer = 2

	// slowPackets is how many pass a slow policer in firstHold at most.
	slowPackets = 2000

	// calmTrips is how many round trips streams stay quick at the least: on a far path, gentle ones would need long for
	// what a single loss takes.
	calmTrips = 200

	// enoughSwells is how many times in a row others must fill the queue until they count, and againSwells the same soon
	// after others were there. leastSwell is how many segments the session loses each time, at the least.
	enoughSwells = 3
	againSwells  = 2
	leastSwell   = 2

	// tellingLosses is how many segments must be lost without a queue to tell how likely that is.
	tellingLosses = 8
	// foundLosses is how many more than by chance tell that a policer is still there. After foundRow times, whether
	// less helps is looked at again: it may be gone.
	foundLosses = 2
	foundRow    = 3
	// mostBursts bounds the bursts that a line which pauses loses in a steadyWindow. They are burstMostly of all that is
	// lost then, at the least, because the kernel sends some of it again later. And they are burstShare of what passes
	// in a round trip.
	mostBursts  = 2
	mostPaused  = 0.015 // share lost in a tallyTime, at the most: with more of it, a look costs less
	burstMostly = 0.75
	burstShare  = 0.125
	// A loss with some queue counts if it comes by chance in less than this share of all cases. Where nothing was lost
	// without a queue yet, priorLost segments are taken as lost, so that a single one counts once the session has sent many.
	rarely    = 0.03
	priorLost = 0.1

	// spare is by how much more gentle streams there shall be than fill the line in the mean: none of
	// them sends more than twice its part of the rate, and few much more than it.
	spare = 1.5
)

// losses is what is known of loss that has another reason than a queue of our own.
type losses struct {
	lossy       bool          // random loss holds gentle streams back
	changed     time.Duration // when that was found, or found to have ended, the last time
	patience    time.Duration // how long that is believed at the least
	last        time.Duration // when something was lost, the last time; 0 is never
	cruising    tally         // what is lost while the queue is short
	mostStreams int           // that sent at a time
	behind      bool          // quick streams are slower than they may be, too
	calm        tally         // what is lost while the queue is not longer than usual
	event       time.Duration // when a longer queue lost more, the last time
	events      int           // how often it did so below the rate at which it had done so before
	swell       time.Duration // when a queue that the session had not made was full, the last time
	top         time.Duration // length of the queue then
	swells      int           // how often that was so, one soon after the other
	surge       time.Duration // when streams last sent much at once
	fresh       Sample        // what was lost before says nothing: it may be the start's doing
	look        look
	random      float64       // share that is lost at any rate
	held        time.Duration // when the session had its part of the line, or lost little, the last time
	ceil        float64       // rate beyond which loss begins, bytes/s
	ceilUntil   time.Duration // until when the session stays below it
	hold        time.Duration // how long it stayed, the last time
	policed     float64       // rate beyond which there is a policer, bytes/s; 0 is unknown
	policing    time.Duration // until when the session stays below that
	unproved    int           // how often in a row two lost packets were taken for it
	drops       drops
}

// drops counts the round trips of late in which something arrived, and something was lost.
type drops struct {
	from Sample // before the first of them
	last Sample // in the latest
	n    int    // how many
}

// look is a time in which less is sent, to see whether less is lost then.
type look struct {
	start  Sample        // when it began; At 0 is none
	seen   float64       // share lost before less was sent
	passed float64       // rate delivered then, bytes/s
	cut    time.Duration // since when less is sent; 0 is not yet
	before float64       // rate before that, bytes/s
	from   Sample        // what is lost from here on shows what less does
}

// quicken gives up gentle streams where random loss makes them slower than they may be, until so little is lost that
// they would carry the rate.
func (c *Controller) quicken(s Sample, trip time.Duration) {
	m, l := &c.model, &c.loss
	l.cruising.add(s, c.prior)
	l.mostStreams = max(l.mostStreams, s.Streams)
	slow, lost := slowShare, m.losses > 0
	if c.tooGentle(s) {
		slow, lost = slowGentle, true
	}
	held := s.Began == 0 && m.windowed <= mostWindowed && m.steady < lostShare*c.rate
	if held && c.far() && l.last > 0 && s.At-l.last < longHold { // what was lost earlier still holds them back
		lost = true
	}
	if !lost || m.steady > slow*c.rate {
		c.short, l.behind = s.At, false
		calm := s.At - l.changed
		switch {
		case !l.lossy && calm > longestHold:
			l.patience = 0
		case l.lossy && calm > max(l.patience, tallyTime, calmTrips*m.base) &&
			gentleStreams(c.rate, m.base, s.MSS, max(l.cruising.share(), l.calm.share())) <= l.mostStreams:
			l.hastens(s.At, false) // it was the start's doing, or has ended
		}
		return
	}
	if s.At-c.short > max(6*trip, leastFight) {
		l.behind = l.lossy // more streams may help where quick ones do not
		if !l.lossy {
			l.hastens(s.At, true)
			l.patience = max(min(2*l.patience, longestHold), tallyTime)
			c.short = s.At
		}
	}
}

// tooGentle reports whether gentle streams are too few for what is lost without a queue, and with nobody else there.
func (c *Controller) tooGentle(s Sample) bool {
	l := &c.loss
	telling := l.calm.lost >= float64(tellingLosses*s.MSS) && c.spreads()
	policer := s.At < l.ceilUntil || l.look.start.At > 0 || c.policerNear(s)
	return telling && !policer && !l.lossy && gentleStreams(c.rate, c.model.base, s.MSS, l.calm.share()) > l.mostStreams
}

// hastens notes whether random loss holds gentle streams back.
func (l *losses) hastens(now time.Duration, on bool) {
	if on != l.lossy {
		l.changed = now
	}
	l.lossy = on
}

// gentleStreams is how many gentle streams carry a rate in bytes/s in spite of random loss. Their
// mean windows are those of RFC 9438, section 5.4, and of the part of it that does as reno does.
func gentleStreams(rate float64, rtt time.Duration, mss int, loss float64) int {
	cubic := 1.054 * math.Pow(rtt.Seconds()/loss, 0.75)
	reno := math.Sqrt(1.5 / loss)
	return int(math.Ceil(spare * rate * rtt.Seconds() / float64(mss) / max(cubic, reno)))
}

// crowded acts on loss with some queue: the queue is short, and full at times. Loss stops below what
// was delivered then, if nobody else is there. It reports whether others are, or may be: one of low priority makes
// room for them first.
func (c *Controller) crowded(s Sample, trip time.Duration) bool {
	m := &c.model
	// A loss shows a round trip later, when the queue may be short again.
	if max(m.queue, m.before(s.At-trip).RTT-m.base) < m.usual+fullQueue {
		c.loss.calm.add(s, c.prior)
		return false
	}
	if c.surges(s) {
		c.loss.surge = s.At
	}
	if m.lost < 4*c.loss.calm.share()+someLoss || c.likely(s) || s.At-c.loss.event < max(4*trip, leastFight) {
		return false
	}
	held := s.At < c.loss.ceilUntil && c.rate <= c.loss.ceil
	c.loss.event = s.At
	// With its usual aim, it would fill a queue as short as that.
	c.brims(s, trip)
	if c.priority == Low {
		if m.delivered < takenShare*c.known {
			c.share(s)
			return true
		}
	}
	passed := max(m.steady, m.delivered)
	if c.atOnce(s) { // the line paused, and carries what it did before
		passed = max(passed, m.most())
	}
	c.bound(belowFull*min(passed, c.rate), s.At+firstHold)
	if !held || c.loss.surge > 0 && s.At-c.loss.surge < 3*trip { // what the queue lost is our own doing
		c.loss.events = 0
		return false
	}
	if c.loss.events++; c.loss.events < 2 { // a host may have paused, and sent what it had all at once
		if c.priority == Low {
			c.room.since, c.room.peak, c.loss.look = s.At, 0, look{}
			c.rate = min(c.rate, lowShare*c.line)
		}
		return c.priority == Low
	}
	c.loss.events = 0
	c.share(s)
	return true
}

// swells reports whether others fill a short queue time and again, although the session sends no more than the line carries
// for it. They lose something then, and leave the queue empty for a while. A queue that stays does not count, nor does
// one that a pause of the line has made.
func (c *Controller) swells(s Sample, trip time.Duration) bool {
	m, l := &c.model, &c.loss
	since := s.At - m.past[0].At
	known := c.measuresLoss(s) && s.At >= c.outage.deaf && s.Backlog > 0 && !c.guess && since > m.steadyWindow()
	if c.priority != Normal || !known || c.siblings.crowd(s.At) {
		return false
	}
	soon := s.At-max(l.event, l.swell) < max(4*trip, leastFight)
	if c.full == 0 || l.swell > c.full || soon || m.delivered < takenShare*c.had {
		return false
	}
	few := s.Lost-c.from.Lost < int64(leastSwell*s.MSS) || lossSince(c.from, s) < 4*l.calm.share()+someLoss
	if few || c.atOnce(s) {
		return false
	}
	top, low := m.longest(s.At-2*trip), m.stood(s.At, since)
	noise, own := 2*max(m.jitter(), c.deviates()), m.made(s.At, since, max(c.had, m.most()))
	if low > top/2 || top < noise || own > (top-low)/2 || !c.empties(top) { // it was there, may be noise, is our own, or is deep
		return false
	}
	if alike := max(top, l.top) < min(top, l.top)*5/4; !alike || s.At-l.swell > firstHold { // a full queue is as long as before
		l.swells = 0
	}
	l.swell, l.top, l.event = s.At, top, s.At
	l.swells++
	enough := enoughSwells
	if c.others.left > 0 && s.At-c.others.left < longHold {
		enough = againSwells
	}
	return l.swells >= enough
}

// likely reports whether what was lost in the last rateWindow may have been lost by chance, as much as while the queue is
// short. It compares with Chernoff's bound for rare events of which a mean number is expected (Poisson).
func (c *Controller) likely(s Sample) bool {
	calm, from := &c.loss.calm, c.model.before(s.At-c.model.rateWindow(s))
	lost, passed := float64(s.Lost-from.Lost), float64(s.Delivered-from.Delivered)
	mean := (calm.lost + priorLost*float64(s.MSS)) * min(1, (lost+passed)/calm.sent)
	excess := lost - mean - lost*math.Log(lost/mean) // ln of the bound, in bytes
	return lost <= mean || excess > math.Log(rarely)*float64(s.MSS)
}

// surges reports whether more is in flight than the rate and the RTT explain: streams have sent what
// they had all at once. Beside others, what is in flight follows the RTT.
func (c *Controller) surges(s Sample) bool {
	flying := seconds(float64(s.InFlight) / c.rate)
	return flying > s.RTT+max(leastAim, c.model.base/20)
}

// bound keeps the rate below one until then. A pause of the streams is no reason for a low one.
func (c *Controller) bound(rate float64, until time.Duration) {
	c.proved = true
	c.loss.ceil, c.loss.ceilUntil = max(rate, leastShare*c.line), until
	c.rate = min(c.rate, c.loss.ceil)
}

// heed acts on loss without a queue. A policer, or a queue that is too short to be seen, drops what
// exceeds a rate: with less, nothing is lost. Random loss stays the same. So heed sends less for a
// moment, and looks. It reports whether it does so now.
func (c *Controller) heed(s Sample) bool {
	m, l := &c.model, &c.loss
	k := &l.look
	if k.cut == 0 && l.unproved < foundRow && c.found(s) {
		row := l.unproved + 1
		c.police(s, l.policed)
		l.unproved = row
		return false
	}
	switch {
	case k.start.At == 0:
		share := c.lately(s)
		if share <= l.random*1.5+mostLoss || !c.policerNear(s) && l.calm.share() <= mostPaused && c.atOnce(s) {
			return false
		}
		if m.steady < leastShare*(1-share)*c.rate { // the rate does not bound streams that loss holds back
			// The policer still let more through when it was found. The burst after quick streams have looked for
			// the RTT is none.
			if l.policed > 0 && s.At < l.ceilUntil+max(2*firstHold, 20*s.RTT) && s.At-l.fresh.At > m.steadyWindow() && !c.atOnce(s) {
				c.line, m.rates = m.steady, nil
				c.police(s, m.steady)
				return false
			}
			if share < heavyLoss {
				return false
			}
		}
		*k = look{start: s, seen: share}
	case k.cut == 0 && !k.tells(m, k.start, s): // a policer lets more through at first
	case k.cut == 0 && lossSince(k.start, s) < k.seen/2: // it has ended by itself
		*k = look{}
	case k.cut == 0:
		k.cut, k.before = s.At, c.rate
		k.passed, k.seen = rateSince(k.start, s), lossSince(k.start, s)
		if k.seen > mostRandom { // no path loses so much by chance
			c.line, m.rates = k.passed, nil
			c.police(s, k.passed)
			return false
		}
		c.rate = min(c.rate, belowFull*k.passed)
	case k.from.At == 0 && s.At-k.cut >= s.RTT*3/2:
		k.from = s
	case k.from.At == 0, !k.tells(m, k.from, s):
	case lossSince(k.from, s) < k.seen/2: // it was the rate
		c.line = max(k.passed, c.line/2)
		if k.passed < leastShare*(1-k.seen)*k.before { // the rate was far above it
			c.line, m.rates = k.passed, nil
		}
		c.known = min(c.known, k.passed) // it let more through at first
		c.police(s, k.passed)
	case c.others.brim > 0 && m.usual > c.aim(s): // others lose as much: a queue of our own would be gone
		*k = look{}
		c.share(s)
		return true
	default:
		l.random, c.rate = (k.seen+lossSince(k.from, s))/2, k.before
		*k = look{}
	}
	return k.start.At > 0
}

// starve acts on loss that goes on and on and is too much for chance, while far less is delivered than the
// session believes. That is a policer, which holds streams back so much that they look as if a host paused:
// what arrives then is all that passes. In an outage nothing arrives between two losses, and a queue of others
// delays.
func (c *Controller) starve(s Sample) {
	d := &c.loss.drops
	trip := max(s.RTT, leastWindow)
	outage := s.At < c.outage.deaf || c.state != Cruise || s.Delivered == 0
	if outage || c.others.brim > 0 || s.RTT-c.model.base > c.aim(s) || s.At-d.last.At > max(8*trip, mostSteady) {
		*d = drops{last: s}
	}
	if s.Lost == c.prior.Lost || s.At-d.last.At < trip || s.Delivered == d.last.Delivered {
		return
	}
	if d.n == 0 {
		d.from = c.prior
	}
	d.last = s
	if d.n++; d.n < tellingLosses || s.Delivered-d.from.Delivered < tellingLosses*int64(s.MSS) {
		return
	}
	passed := rateSince(d.from, s)
	sparse := passed*delayedAck.Seconds() < float64(2*s.Streams*s.MSS)
	if sparse && lossSince(d.from, s) > mostRandom && passed < leastShare*c.rate {
		c.line, c.model.rates = passed, nil
		c.known, c.doubts.best = min(c.known, passed), min(c.doubts.best, passed) // it let more through at first
		c.police(s, passed)
	}
	*d = drops{}
}

// tells reports whether what was sent between two samples is enough to know how much of it is lost.
func (k *look) tells(m *model, from, to Sample) bool {
	age, sent := to.At-from.At, float64(to.Delivered-from.Delivered)
	expected := k.seen * sent
	if k.cut == 0 && age >= 2*m.rateWindow(to) { // as much was lost already, however little was seen before
		expected = max(expected, float64(to.Lost-from.Lost))
	}
	return age >= m.rateWindow(to) && (expected >= float64(tellingLosses*to.MSS) || age >= mostSteady)
}

// found reports whether a session that tries more again loses something where it found a slow policer before. That
// takes a few packets: to measure the share that is lost, and that less of it helps, would cost many. A fast policer
// is measured again, because its rate may have been taken for less than it is.
func (c *Controller) found(s Sample) bool {
	l, from := &c.loss, c.recently()
	lost := float64(s.Lost - from.Lost)
	chance := l.random * (lost + float64(s.Delivered-from.Delivered))
	tries := l.slow(s.MSS) && s.At >= l.ceilUntil && c.rate > belowLoss*l.policed && c.nearPolicer(c.model.delivered)
	return tries && lost >= float64(foundLosses*s.MSS)+2*chance && c.lately(s) > 1.5*l.random+mostLoss
}

// nearPolicer reports whether a rate is about that beyond which there is a policer.
func (c *Controller) nearPolicer(rate float64) bool {
	return rate < nearLoss*c.loss.policed && rate > c.loss.policed/nearLoss
}

// slowPolicer reports whether a session stays below a slow policer: to go beyond its rate at once costs more than it
// may bring. What siblings leave may be more.
func (c *Controller) slowPolicer(s Sample) bool {
	l := &c.loss
	return c.priority != Low && s.At < l.policing && !c.siblings.crowd(s.At) && l.slow(s.MSS)
}

// slow reports whether the policer that is known lets so little through that a few lost packets are much of it.
func (l *losses) slow(mss int) bool {
	return l.policed > 0 && l.policed*firstHold.Seconds() < float64(slowPackets*mss)
}

// recently is the sample from which on losses tell something now.
func (c *Controller) recently() Sample {
	from := c.model.before(c.last.At - c.model.steadyWindow())
	if from.At < c.loss.fresh.At {
		return c.loss.fresh
	}
	return from
}

// atOnce reports whether most of what was lost of late was lost in few round trips, and was much of what passes in
// one. A line that pauses for longer than its queue has room for loses so much at any rate. A policer drops in each
// round trip, and others fill a queue in small steps.
func (c *Controller) atOnce(s Sample) bool {
	m, from := &c.model, c.recently()
	trip := min(max(s.RTT, Every*9/10), m.steadyWindow()/steadyTrips) // a longer one would hold too much of the window
	lost := s.Lost - from.Lost
	if lost < int64(tellingLosses*s.MSS) {
		return false
	}
	most := int64(0)
	for i, n := range m.bursts(from.At, trip) {
		if i < mostBursts {
			most += n
		}
	}
	return float64(most) >= max(burstMostly*float64(lost), burstShare*m.steady*s.RTT.Seconds())
}

// policerNear reports whether a policer was found of late: then what is lost in one burst may be its doing, too.
func (c *Controller) policerNear(s Sample) bool {
	l := &c.loss
	return l.policed > 0 && s.At < l.policing+max(2*firstHold, 20*s.RTT)
}

// lately is the share lost of late, 0 to 1.
func (c *Controller) lately(s Sample) float64 { return lossSince(c.recently(), s) }

// police stays below the rate that passed while a policer dropped the rest, and the longer, the more often it
// was so.
func (c *Controller) police(s Sample, passed float64) {
	l := &c.loss
	least := max(firstHold, min(seconds(float64(holdPackets*c.last.MSS)/passed), slowHold))
	switch more, again := passed/l.policed, s.At >= l.policing; {
	case l.policed == 0, more > samePolicer, more < 1/nearLoss && again:
		l.hold = least
	case more > 1/nearLoss && more < nearLoss, again:
		l.hold = min(2*l.hold, mostHolds*least, longestHold)
	default: // it was found just now, and let more through at first
		l.hold = max(l.hold, least)
	}
	c.bound(belowLoss*passed, s.At+l.hold)
	l.look, l.fresh, l.policed, l.policing, l.unproved = look{}, Sample{}, passed, s.At+l.hold, 0
}

// byChance reports whether free streams lose about what is lost at any rate. More follows what they send,
// and with far less it was something else.
func (c *Controller) byChance(s Sample) bool {
	m := &c.model
	chance := c.loss.random * m.steady * m.steadyWindow().Seconds() // lost by then, bytes
	return m.losses <= 2*c.loss.random+someLoss && (m.losses >= c.loss.random/2 || chance < float64(tellingLosses*s.MSS))
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
