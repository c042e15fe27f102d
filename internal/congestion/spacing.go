package congestion

import "time"

// spacingMemory is how long a difference between two measures of the RTT must last to count.
const spacingMemory = 500 * time.Millisecond

// spaced returns a sample whose RTT holds no time between packets. The peer acknowledges every second packet of a
// stream. Where a paced stream sends single ones, or its pairs are not those of the peer, the first of two waits for
// the second: the RTT is one or two intervals longer, and the time that packets are in flight in the mean (Little's
// law) by half of that. So twice the difference of both is a wait at the peer, and no queue. With many streams on a
// slow line, it is longer than the queue that a session aims at.
func (c *Controller) spaced(s Sample) Sample {
	m := &c.model
	if c.priority == Low || c.state != Cruise && c.state != Doubt || m.delivered <= 0 || s.RTT == 0 {
		c.spacing = 0
		return s
	}
	most := seconds(float64(2*s.Streams*s.MSS) / m.delivered)
	if most < c.usualAim() {
		c.spacing = 0
		return s
	}
	waits := time.Duration(0) // streams that send less than they may have no intervals
	if m.delivered > wholeShare*c.rate {
		waits = m.waits(s, max(s.RTT, standingTime))
	}
	c.spacing += scale(waits-c.spacing, min(1, (s.At-c.prior.At).Seconds()/spacingMemory.Seconds()))
	if c.spacing < c.usualAim()/2 { // that is the noise of both
		return s
	}
	s.waits = min(c.spacing, most, max(0, s.RTT-s.Least))
	s.RTT -= s.waits
	return s
}

// waits is twice the difference between the RTT and how long packets are in flight, in the mean of some time until a
// sample; 0 while that is unknown.
func (m *model) waits(s Sample, since time.Duration) time.Duration {
	from, flying, trips, n := s, s.InFlight, s.RTT, int64(1)
	for i := len(m.past) - 1; i >= 0 && from.At > s.At-since; i-- {
		from = m.past[i]
		flying += from.InFlight
		trips += from.RTT + from.waits
		n++
	}
	rate := rateSince(from, s)
	if rate <= 0 || s.At-from.At < since {
		return 0
	}
	return 2 * (trips/time.Duration(n) - seconds(float64(flying)/float64(n)/rate))
}
