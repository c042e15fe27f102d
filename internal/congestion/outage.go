package congestion

import "time"

const (
	// leastQuiet and the time of quietPackets are the least for which nothing is acknowledged in an
	// outage.
	leastQuiet   = 300 * time.Millisecond
	quietPackets = 8
	// deafTrips and leastDeaf are how long it takes to send again what an outage lost.
	deafTrips = 10
	leastDeaf = time.Second

	// lateTick is a time between two samples that only a host without a free processor makes, unless
	// all are so late.
	lateTick = 45 * time.Millisecond
	// leastStall and the time of some packets are the least for which nothing is acknowledged when a
	// host at either end stalls. Processors and Wi-Fi cards sleep for less.
	leastStall = 40 * time.Millisecond
	// settleTrips bounds how long the smoothed RTT takes to forget a stall.
	settleTrips = 10
	leastSettle = 500 * time.Millisecond
)

// outage is what is known of times in which nothing arrives.
type outage struct {
	heard  time.Duration // when something was delivered last
	paused bool          // the receiver has taken nothing since
	deaf   time.Duration // until when loss is that of an outage

	tick    time.Duration // mean time between two samples
	burst   time.Duration // when the last silence ended
	streams int           // most of them so far
	stall   stall
}

// stall is what is known at the end of a stall: a time in which a host had no processor. What others
// do shows differently: they seldom keep all streams from hearing anything, and do so again and again.
type stall struct {
	seen  time.Duration // the last sample that spans one
	until time.Duration // the latest end of its traces; 0 is no stall
	acked int64         // delivered, once all is acknowledged that was in flight
	rtt   time.Duration // before it
}

// silent reports whether nothing was acknowledged for so long that a host must have stalled. Streams
// that send their windows in one go are silent once in each round trip, and so are all whose windows
// are less than the path takes.
func (c *Controller) silent(s Sample, silence time.Duration) bool {
	if c.state == Compete || c.bursts() { // few streams, and those that send their windows in one go, are silent for so long
		silence -= max(s.RTT, c.model.base)
	}
	flying := float64(max(s.InFlight, c.prior.InFlight))
	if flying < min(c.rate, c.line)*c.model.base.Seconds()/2 {
		return false
	}
	// A burst of others that fills the queue comes once in each of their round trips, and may be too short now and then.
	again := s.At-silence-c.outage.burst <= max(2*c.model.base, 3*s.RTT)
	return c.mute(s, silence-leastStall) && (c.outage.burst == 0 && c.starts() || !again)
}

// mute reports whether all streams should have heard something in a time.
func (c *Controller) mute(s Sample, silence time.Duration) bool {
	packets := max(quietPackets, 2*s.Streams) // a stream sends two at a time
	return silence > time.Duration(packets)*c.packet(s)
}

// bursts reports whether streams send their windows in one go, and hear of them so: in the start, but for low
// priority, which paces from the first packet on.
func (c *Controller) bursts() bool { return c.starts() && c.priority != Low }

// packet is the time from one packet to the next.
func (c *Controller) packet(s Sample) time.Duration {
	return seconds(float64(s.MSS) / max(min(c.rate, c.line), c.leastRate()))
}

// stalls reports whether a sample spans a stall, or still shows its traces: acknowledgements that came
// late and all at once, a smoothed RTT that contains the stall, and what timers sent again.
func (c *Controller) stalls(s Sample, dt, silence time.Duration) bool {
	stall := &c.outage.stall
	late := dt > max(lateTick, c.outage.tick*3/2, c.packet(s)) // less than a packet takes changes nothing
	more := s.Streams > c.outage.streams                       // those that begin send at once, and their RTT is a host's
	c.outage.streams = max(c.outage.streams, s.Streams)
	c.outage.tick += (dt - c.outage.tick) / 8
	silent := c.silent(s, silence)
	late = late && !c.bursts()
	if c.mute(s, silence-leastStall) {
		c.outage.burst = s.At
	}
	if silent || late || more && c.state == Cruise {
		if stall.until == 0 {
			stall.rtt = c.prior.RTT
		}
		stall.seen = s.At
		settle := max(settleTrips*c.model.base, leastSettle)
		if c.starts() { // few packets pass yet, so that smoothed RTTs forget a stall slowly
			settle = max(settle, min(c.packets(2*smoothed*s.Streams, s.MSS), mostLag))
		}
		stall.until = s.At + settle
		stall.acked = s.Delivered + s.InFlight
		if c.loss.look.cut > 0 {
			c.rate = c.loss.look.before
		}
		c.loss.look = look{}
		c.full, c.loss.fresh = 0, Sample{}          // streams may send all at once what they could not, and lose some of it
		if c.state == Cruise && c.priority != Low { // a queue that grows meanwhile would not be seen
			held := afterDrain * c.line
			// What passes and loses nothing is no more than the line carries, however often hosts stall.
			if c.model.losses == 0 {
				held = max(held, min(c.model.steady, c.line))
			}
			if c.probes(s) { // such bursts seem stalls
				held = c.line
			}
			c.rate = min(c.rate, held)
		}
		return true
	}
	if s.At >= stall.until || s.Delivered >= stall.acked && s.RTT <= stall.rtt+c.aim(s)/2 {
		stall.until = 0
	}
	return stall.until > 0
}

// quiet reports whether nothing was acknowledged for so long that it says nothing about the rate of
// the line: the receiver takes nothing, or an outage swallows all. After an outage it resumes.
func (c *Controller) quiet(s Sample, dt time.Duration) bool {
	since := s.At - c.outage.heard
	if s.Delivered == 0 || c.model.base == 0 {
		c.outage.heard = s.At
		return false
	}
	packet := c.packet(s)
	long := since > max(4*s.RTT, leastQuiet)+quietPackets*packet
	switch {
	case s.Delivered > c.prior.Delivered:
		c.outage.heard = s.At
		if long && !c.outage.paused {
			c.resume(s)
		}
		c.outage.paused = false
		return c.stalls(s, dt, since)
	case s.InFlight == 0 && s.Backlog > 0 && since > s.RTT+time.Duration(2*s.Streams)*packet:
		c.outage.paused = true
		return true
	}
	return long || c.starts() && s.At < c.outage.stall.until || s.InFlight > 0 && c.silent(s, since)
}

// resume goes on where the session was before an outage. What was in flight then is sent again now:
// that loss says nothing either.
func (c *Controller) resume(s Sample) {
	c.model.pause()
	c.loss.look = look{}
	c.full, c.others.test, c.loss.events = 0, 0, 0
	c.lean.resume(s, max(leanTrips*c.model.base, leastLean))
	c.outage.deaf = s.At + max(deafTrips*c.model.base, leastDeaf)
	switch c.state {
	case Startup:
		c.opening.first = 0
	case Yield:
		c.enter(Yield, s.At)
	default:
		if c.known == 0 { // the line as the start saw it, which sparse packets would not show
			c.known = c.doubts.best
		}
		c.rate = afterDrain * c.line
		c.enter(Cruise, s.At)
	}
}

// pass lets time pass in which nothing can be learnt: the receiver takes nothing, or nothing arrives.
func (c *Controller) pass(dt time.Duration) {
	c.model.pause()
	c.since, c.calm, c.rested, c.short = c.since+dt, c.calm+dt, c.rested+dt, c.short+dt
	c.loss.changed += dt
	if c.starts() && c.priority == Low { // what it measures begins anew
		c.from = c.last
		if c.state == Startup {
			c.opening.first = 0
		}
	}
	for _, t := range []*time.Duration{&c.full, &c.doubts.empty, &c.others.test, &c.others.tested, &c.others.busy, &c.loss.held, &c.loss.swell} {
		if *t > 0 {
			*t += dt
		}
	}
}
