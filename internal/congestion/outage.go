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
)

// outage is what is known of times in which nothing arrives.
type outage struct {
	heard  time.Duration // when something was delivered last
	paused bool          // the receiver has taken nothing since
	deaf   time.Duration // until when loss is that of an outage
}

// quiet tells whether nothing was acknowledged for so long that it says nothing about the rate of
// the line: the receiver takes nothing, or an outage swallows all. After an outage it resumes.
func (c *Controller) quiet(s Sample) bool {
	since := s.At - c.outage.heard
	if s.Delivered == 0 || c.model.base == 0 {
		c.outage.heard = s.At
		return false
	}
	packet := seconds(float64(s.MSS) / max(min(c.rate, c.line), c.leastRate()))
	long := since > max(4*s.RTT, leastQuiet)+quietPackets*packet
	switch {
	case s.Delivered > c.prior.Delivered:
		c.outage.heard = s.At
		if long && !c.outage.paused {
			c.resume(s)
		}
		c.outage.paused = false
		return false
	case s.InFlight == 0 && s.Backlog > 0 && since > s.RTT+time.Duration(2*s.Streams)*packet:
		c.outage.paused = true
		return true
	}
	return long
}

// resume goes on where the session was before an outage. What was in flight then is sent again now:
// that loss says nothing either.
func (c *Controller) resume(s Sample) {
	c.model.pause()
	c.loss.looks, c.full, c.others.test, c.loss.events = 0, 0, 0, 0
	c.outage.deaf = s.At + max(deafTrips*c.model.base, leastDeaf)
	switch c.state {
	case Startup:
		c.opening.first = 0
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
	for _, t := range []*time.Duration{&c.full, &c.doubts.empty, &c.others.test} {
		if *t > 0 {
			*t += dt
		}
	}
}
