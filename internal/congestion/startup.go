package congestion

import (
	"math"
	"time"
)

const (
	startGain   = 2.3  // of the delivered rate, at the start: a round trip later it has doubled
	doubleGain  = 2.05 // the same on far paths, of the rate that is foretold until the next decision
	lowGain     = 1.7  // the same for a session of low priority, which must not push others aside
	firstWindow = 10   // segments that a stream sends before the first acknowledgement (RFC 6928)
	stillGrows  = 1.2  // of the rate a round trip ago: below it, loss at the start ends the start
	startWindow = 2    // times what fills the path is in flight at most, once there may be a queue
	farWindow   = 1.7  // the same on far paths, where decisions come more often
	firstGain   = 1.6  // times startGain, by the first acknowledgements: streams have doubled by then
	drainGain   = 0.2  // of the delivered rate, while the queue of the start flows off
	goesOn      = 1.4  // of the delivered rate at the end of the start: it was not the end

	// mostVain is how often the start may go on without finding more.
	mostVain = 3

	// fewPackets is the least number of packets that shows a rate in the start and right after it.
	fewPackets = 4
)

// opening is what the start has seen.
type opening struct {
	first time.Duration // when something was delivered first
	fall  time.Duration // of the RTT, since it grew last
	falls time.Duration // largest of these in the start
	noise time.Duration // largest delay that stayed for a while and was no queue
	sent  int64         // what was delivered or in flight at its end, bytes
	top   time.Duration // largest queue that it made
	most  float64       // largest rate so far, without the bound of startWindow, bytes/s

	jitter  time.Duration // largest delay that ended it and was no queue
	reached float64       // line when it went on after that, and had found clearly more, bytes/s
	vain    int           // how often it went on since then

	silent bool    // for a moment, nothing was delivered while its queue flowed off
	intact Sample  // the last one before something was lost, but for the first flight
	before float64 // delivered rate then, bytes/s
}

// notFull notes the delay that stayed for a while a round trip ago if it was no queue, but jitter:
// what is delivered has grown by so much since then that the line was not full.
func (c *Controller) notFull(s Sample) {
	m := &c.model
	if earlier := m.earlier(s); earlier > 0 && m.delivered > goesOn*earlier {
		stood := m.stood(s.At-m.rateWindow(s), standingTime)
		c.opening.noise = max(c.opening.noise, min(stood, m.base/4))
	}
}

// start doubles the rate each round trip until a queue shows that the line is full.
func (c *Controller) start(s Sample) {
	m := &c.model
	if c.opening.first == 0 {
		c.opening.first, c.from = s.At, m.past[0]
		if s.Line > 0 && !c.refuted(s) { // streams began at that rate: there is nothing to look for, unless it was too low
			c.line, c.rate, c.guess = s.Line, s.Line, true
			c.enter(Cruise, s.At)
			return
		}
	}
	before := c.line
	if s.Delivered-c.from.Delivered >= fewPackets*int64(s.MSS) {
		c.line = max(c.line, m.delivered)
	}
	full := m.base/20 + 3*time.Millisecond + c.packets(6, s.MSS) + m.jitter()
	if m.queue < full/2 {
		// Where loss comes without a queue, so few gentle streams may fall behind at once.
		share := float64(s.Lost) / float64(s.Lost+s.Delivered)
		c.loss.hastens(s.At, s.Lost > 2*int64(s.MSS) && gentleStreams(c.line, m.base, s.MSS, share) > s.Streams)
	}
	// What the first flight lost says nothing: it left before anything was known.
	early := s.At-c.opening.first < m.rateWindow(s)+2*s.RTT
	flat := !early && m.delivered < stillGrows*m.earlier(s)
	if !flat {
		c.short = s.At
	}
	if !early {
		c.notFull(s)
	}
	full = max(full, min(c.sway(s), m.base/2), full-m.jitter()+max(c.opening.noise, c.opening.jitter)) // these may be more than jitter
	longFlat := flat && s.At-c.short > m.rateWindow(s)                                                 // jitter makes what is delivered uneven
	lossy := m.lost > 0.05
	if m.losses > mostLoss && s.At-c.short > 4*m.steadyWindow() {
		lossy = true // it is no start: a full queue may be too short to be seen, or the base is that of a full one
	}
	if c.priority == Low && c.robs(s, early) {
		c.give(s)
		return
	}
	// An acknowledgement that was late is no queue, and one of others may stay as it is.
	crowd := c.priority == Low && (min(m.queue, c.overdue(s)) > max(2*c.aim(s), c.shortQueue()) || m.standing > c.aim(s) && c.queued(s))
	if m.queue > full || crowd || flat && s.Backlog > 0 && lossy ||
		longFlat && s.Backlog > 0 && c.excess(s) > 2*full && m.queue > full/10 {
		queued := max(m.queue, m.before(s.At-s.RTT).RTT-m.base) > full/4 // a short one may be gone by now
		c.enter(Drain, s.At)
		c.opening.sent = s.Delivered + s.InFlight
		news := s.Delivered > c.prior.Delivered     // otherwise a host may have stalled
		if news && !queued && m.lost > mostRandom { // a policer: it let more through at first
			c.line, m.rates = m.delivered, nil
			c.police(s, c.line)
		}
		c.drain(s)
		return
	}
	if c.priority == Low && s.Began == 0 && math.IsInf(c.rate, 1) { // its streams must not double by themselves into a full queue
		c.rate = LowBegins(c.model.base, s.MSS)
	}
	if c.line == 0 { // few packets show no rate
		return
	}
	if math.IsInf(c.rate, 1) {
		c.rate = s.Began
	}
	gain := startGain
	if c.priority == Low {
		gain = lowGain
		if m.queue > c.aim(s)/2 && c.rate > 0 { // a queue begins: with more, it would be full before it is seen
			if longFlat { // what is delivered grows no more: the cruise takes more in smaller steps
				c.enter(Cruise, s.At)
				c.rate = min(c.rate, c.line)
			}
			return
		}
	}
	if c.rate == 0 { // what the kernel sends at once, however little it says
		c.rate = float64(s.Streams) * firstRate(c.model.base, s.MSS, gain)
	}
	line := max(c.line, m.newest(s))
	if m.earlier(s) == 0 && c.priority != Low { // otherwise the streams, which double by themselves, would wait
		gain *= firstGain
	}
	rate := gain * line
	if c.far() {
		rate = doubleGain * max(line, m.next(s, s.At-c.prior.At))
	}
	c.opening.most = max(c.opening.most, c.rate, rate)
	c.rate = c.opening.most
	window := math.Inf(1)           // in flight at most, times what fills the path
	if s.Began > 0 || c.since > 0 { // nothing but the rate bounds streams that are paced, or have large windows from before
		window = gain
	}
	if m.queue > full/4 { // the line may be full, and the streams go on doubling until that is sure
		window = startWindow
		if c.far() {
			window = farWindow
		}
	}
	room := window*line*m.base.Seconds() - float64(s.InFlight)
	c.rate = min(c.rate, max(c.line, line+room/(s.At-c.prior.At).Seconds()))
	if left := c.others.left; left > 0 && s.At-left < longHold && before < c.doubts.best { // they had the rest of what it carried
		if c.line > wholeShare*c.doubts.best {
			c.opening.sent = s.Delivered + s.InFlight
			c.enter(Cruise, s.At)
		}
		c.rate = min(c.rate, c.doubts.best)
	}
	if !early && m.lost > mostRandom && s.Lost-m.before(s.At-m.rateWindow(s)).Lost >= int64(tellingLosses*s.MSS) { // it may be more than passes
		c.rate = min(c.rate, c.line)
	}
}

// refuted reports whether the line is not as narrow as handshakes made it look, because a host was late with
// them: on such a line a full packet takes longer than a small one, which the smoothed RTT shows in part.
func (c *Controller) refuted(s Sample) bool {
	if s.Line == 0 || s.Least == 0 || c.proved || s.Delivered < int64(s.MSS) {
		return false
	}
	return s.RTT-s.Least < seconds(float64(s.MSS)/s.Line)/16 // a new RTT counts by an eighth (RFC 6298)
}

// firstRate is so many times the rate, in bytes/s, at which a stream sends its first window of segments of mss
// bytes.
func firstRate(rtt time.Duration, mss int, gain float64) float64 {
	return gain * firstWindow * float64(mss) / max(rtt, time.Millisecond).Seconds()
}

// robs reports whether a session of low priority takes the line from others: it goes on to lose something
// in the start, and nevertheless gets more and more. Alone, it gets no more from a line that is full.
func (c *Controller) robs(s Sample, early bool) bool {
	m, o := &c.model, &c.opening
	if early || s.Lost == o.intact.Lost || m.longest(s.At-2*m.rateWindow(s)) < max(c.aim(s), c.shortQueue()) { // without a queue, it is chance
		o.intact, o.before = s, m.delivered
		return false
	}
	return s.At-o.intact.At > 2*m.rateWindow(s) && s.Lost > o.intact.Lost+4*int64(s.MSS) && m.delivered > stillGrows*o.before
}

// sway is by how much the RTT has fallen at once during the start. Its queue only grows: the rest
// comes from the path.
func (c *Controller) sway(s Sample) time.Duration {
	if s.RTT < c.prior.RTT {
		c.opening.fall += c.prior.RTT - s.RTT
		c.opening.falls = max(c.opening.falls, c.opening.fall)
	} else if s.RTT > c.prior.RTT {
		c.opening.fall = 0
	}
	return c.opening.falls
}

// drain lets the queue flow off. If what is delivered goes on growing, there was none, but noise.
func (c *Controller) drain(s Sample) {
	age := s.At - c.since
	if age == 0 {
		c.had, c.opening.top = c.model.delivered, 0
	}
	c.opening.top = max(c.opening.top, c.model.queue)
	excess := c.excess(s)
	many := s.Delivered-c.from.Delivered >= fewPackets*int64(s.MSS)
	c.opening.silent = age > 0 && (c.opening.silent || s.Delivered == c.prior.Delivered)
	late := c.far() && c.opening.silent // less of what the peer got is known
	// A smoothed RTT shows a queue for longer than it is there. If less was in flight than fills the path, the
	// rate is what was sent. On a far path a window may be less than that.
	filled := c.far() || float64(c.prior.InFlight) >= c.line*c.model.base.Seconds()
	news := s.Delivered > c.prior.Delivered                                  // otherwise a host may have stalled
	if age >= leastWindow && many && news && excess > 0 && filled && !late { // while there is a queue, this is what the line carries
		c.line = rateSince(c.from, s)
	}
	if c.far() && c.packets(windowPackets, s.MSS) < c.model.base { // the start may have seen gaps between flights
		c.line = max(c.line, c.model.surely(s))
		excess = c.excess(s)
	}
	c.rate = afterDrain * c.line
	if excess > 0 {
		// The last of the queue flows off slowly: the line must not stand idle until the next decision.
		soon := min(s.At-c.prior.At, c.model.base/4)
		slow := c.line * (1 - excess.Seconds()/soon.Seconds())
		// A stream sends two packets, and then waits for as long as they take at its rate.
		c.rate = min(c.rate, max(drainGain*c.line, slow, float64(2*s.MSS)/excess.Seconds()))
	}
	switch {
	case age < max(c.from.RTT, leastWindow):
	case rateSince(c.from, s) > goesOn*c.had:
		c.startAgain(s, 0)
	case excess <= 0 && c.stays(s) && age < 2*(c.model.base+c.opening.top)+c.lag(s): // the RTT may follow yet
	case excess <= 0 && c.stays(s):
		c.full, c.had, c.doubts.jump = s.At, c.line, 0
		c.enter(Doubt, s.At)
		c.doubts.slower = true // what the line carries was measured just now
		c.doubt(s)
	case excess <= 0 && c.notOurs(s):
		c.startAgain(s, 2*(c.from.RTT-c.began))
	case excess <= 0 || age > 4*s.RTT+leastWindow:
		if c.priority != Low && c.opening.top > c.model.base/2+mostAim { // jitter is not as large, and pauses of a host hardly are
			c.proved = true
		}
		c.rate = afterDrain * c.line
		c.guess = c.guess || c.priority == Low // what was delivered for so short a time may have come in bursts
		c.enter(Cruise, s.At)
	}
}

// startAgain goes on with the start, which was ended by a delay that was no queue.
func (c *Controller) startAgain(s Sample, delay time.Duration) {
	c.opening.jitter = max(c.opening.jitter, min(delay, c.model.base/4))
	if c.line > stillGrows*c.opening.reached {
		c.opening.reached, c.opening.vain = c.line, 0
	}
	c.opening.vain++
	c.opening.most = 0
	c.low, c.short = 0, s.At
	c.enter(Startup, s.At)
	c.start(s)
}

// mayStartAgain reports whether the start may go on on a far path: it lost nothing, and did not go on in vain before.
func (c *Controller) mayStartAgain(s Sample) bool {
	vain := c.opening.vain >= mostVain && c.line < stillGrows*c.opening.reached
	return c.far() && s.Lost == 0 && !vain && !c.siblings.crowd(s.At)
}

// notOurs reports whether the queue that ended the start was jitter: on a line that carries what was delivered since, what
// was sent a round trip before makes no such queue (the thought is that of conservative slow start, RFC 9406).
func (c *Controller) notOurs(s Sample) bool {
	m := &c.model
	queue := c.from.RTT - c.began
	if !c.mayStartAgain(s) || queue < m.base/20 || c.line < stillGrows*c.had {
		return false
	}
	return m.made(c.since-m.base, 4*m.base, c.line) < queue/3
}

// stays reports whether most of the queue is still there once the excess of the start has arrived. Then
// others may have filled it before. With less of it, jitter would look so, too.
func (c *Controller) stays(s Sample) bool {
	m := &c.model
	return c.dense(s) && c.priority != Low && m.queue > max(2*c.least(s), c.opening.top/2)
}
