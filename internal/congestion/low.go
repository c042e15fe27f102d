package congestion

import (
	"slices"
	"time"
)

const (
	// lowLeast is the least queue that a session of low priority holds. It is half of that of others on the
	// shortest paths, where a quarter of what fills them is not much more.
	lowLeast = 750 * time.Microsecond
	// roomTrips is for how many round trips a session of low priority makes room for others who begin, at
	// lowShare of the line's rate.
	roomTrips = 3
	lowShare  = 0.4
	// peakShare is the part of the aim by more of which the queue must have grown then. noiseShare is the
	// same of what grew of late without others, and growthHolds for about how long that counts.
	peakShare   = 0.75
	noiseShare  = 1.5
	growthHolds = 40 * time.Second
	// lateShare is how many times as much as the RTT shows is overdue when acknowledgements are late, and
	// leastLate is the least of it.
	lateShare = 5
	leastLate = 5 * time.Millisecond

	// meanDeviations is by how many mean deviations the mean RTT exceeds the least one at most, if jitter makes it
	// longer: in the simulator by 2 to 3, and by 3 if the delay is the sum of two even ones. Beside others who
	// fill a queue it is mostly more. onceDeviations is the same for the RTT of a moment, and heldDeviations
	// what the aim of a session grows by.
	meanDeviations = 4
	onceDeviations = 6
	heldDeviations = 3
	// jitterFor is the time over which the deviation is measured. jitterMemory is the number of samples whose median
	// bounds what one of them counts. The deviations of others' bursts are not steady: now and then these leave the
	// line alone, and less than steadyShare of the mean is seen in one of twenty samples.
	jitterFor    = 2 * time.Second
	jitterMemory = 512
	steadyShare  = 0.4
	// A session that has the line holds at most mostHeld because of jitter, or nowDeviations of those that it sees then: the
	// jitter may be over. Many streams show less of it than one.
	mostHeld      = 4 * time.Millisecond
	nowDeviations = 10
	// leastJitter is the least deviation that counts, unless the path is short. The bursts of others make less.
	leastJitter = 800 * time.Microsecond
)

// LowBegins is the rate, in bytes/s, at which all streams of a session of low priority together begin, over a
// path of that round trip time with segments of mss bytes. The first windows of each, which double by themselves,
// would fill a short queue before anything is known.
func LowBegins(rtt time.Duration, mss int) float64 {
	return firstRate(rtt, mss, lowGain)
}

// room is what a session of low priority leaves to others who begin.
type room struct {
	since time.Duration // when it began to leave it; 0 is not
	peak  time.Duration // by how much the queue had grown then
	noise time.Duration // the largest of these of late after which nobody came
	late  time.Duration // when acknowledgements were late, the last time
}

// jitter is what a session knows of it. Only one of low priority uses most of that. Smoothed RTTs hide it, and few
// packets show a mean that is far above the least RTT: that looks like the queue of others. But single RTTs show that
// they are far from each other.
type jitter struct {
	seen      []time.Duration // mean deviations of single RTTs from the smoothed RTT, the last ones
	deviation time.Duration   // their mean
	least     time.Duration   // what all but a twentieth of them exceed
	now       time.Duration   // that of late, also while the session has the line
	seenFor   time.Duration   // how long it was measured, jitterFor at most
	lost      tally           // while the session yielded
}

// watch measures the jitter of the path while next to nothing is sent: then it is not the session's own doing. Pauses
// of hosts change the deviation much only now and then.
func (c *Controller) watch(s Sample, dt time.Duration) {
	j := &c.others.jitter
	if c.rate <= 2*c.floor() && s.Delivered > c.prior.Delivered {
		j.seen = append(j.seen[max(0, len(j.seen)-jitterMemory+1):], s.Deviation)
		sorted := slices.Clone(j.seen)
		slices.Sort(sorted)
		most := 2 * sorted[len(sorted)/2]
		j.least = sorted[len(sorted)/20]
		j.deviation += scale(min(s.Deviation, most)-j.deviation, min(1, dt.Seconds()/jitterFor.Seconds()))
	}
	j.now, j.seenFor = j.deviation, jitterFor
	j.lost.add(s, c.prior)
}

// jitters is by how much the RTT may exceed the base because of jitter: so many times the deviation, above the least
// RTT. It is 0 where the bursts of others may have made the deviation: it is small or not steady, or packets were lost.
// Peers that wait with acknowledgements make it large, too: what is longer than the base is a queue in any case.
func (c *Controller) jitters(deviations float64) time.Duration {
	j := &c.others.jitter
	steady := j.least >= scale(j.deviation, steadyShare)
	if !steady || j.deviation < min(c.shortQueue()/2, leastJitter) || j.lost.share() > mostLoss+2*c.loss.random {
		return 0
	}
	most := scale(j.deviation, deviations) - max(0, c.raised(c.last))
	return max(0, min(most, c.model.base))
}

// measure takes the deviation of late, at first the mean of all.
func (j *jitter) measure(s Sample, dt time.Duration) {
	j.seenFor = min(j.seenFor+max(dt, 1), jitterFor)
	j.now += scale(s.Deviation-j.now, min(1, dt.Seconds()/j.seenFor.Seconds()))
}

// settled reports whether deviations are those of the path. The kernel's first one is half of the RTT (RFC 6298), and
// streams that compete make larger ones.
func (c *Controller) settled(s Sample) bool {
	first := c.opening.first
	known := first > 0 && s.At-first > max(2*s.RTT, c.lag(s))
	return known && s.Delivered > c.prior.Delivered && c.state != Compete && c.state != Yield
}

// deviates is by how much jitter lets the mean RTT exceed the least one, at most a quarter of that.
func (c *Controller) deviates() time.Duration {
	return min(scale(c.others.jitter.now, heldDeviations), c.model.base/4)
}

// heldJitter is what the aim grows by because of jitter.
func (c *Controller) heldJitter() time.Duration {
	held := c.jitters(heldDeviations)
	if c.state == Cruise {
		held = min(held, max(mostHeld, scale(c.others.jitter.now, nowDeviations)))
	}
	return held
}

// makesRoom makes room for others who begin. Their packets come in trains that double in each round trip,
// and the queue is short between them: its peaks show them before it stands. If it still grows when less is
// sent, they are there. It reports whether it decides on the rate.
func (c *Controller) makesRoom(s Sample, aim, trip time.Duration) bool {
	r := &c.room
	r.noise -= fades(r.noise, s.At-c.prior.At, growthHolds)
	grown := c.grown(s, trip)
	bar := max(scale(aim, peakShare), c.jitters(meanDeviations), min(scale(r.noise, noiseShare), max(2*aim, c.usualAim())))
	peak := grown > bar && s.At-c.since > 2*trip+soonTime // the queue of the start is gone
	switch {
	case peak && r.since == 0:
		r.since, r.peak, c.others.cut = s.At, grown, s.At
	case peak && s.At-r.since > trip+soonTime:
		c.share(s)
		return true
	case r.since == 0:
		return false
	case s.At-r.since > roomTrips*trip+standingTime:
		r.since, r.noise = 0, max(r.noise, r.peak)
		if most := c.model.most(); c.others.back && most > 0 { // nobody came: more than this made a queue
			c.line = min(c.line, max(most, c.line/2))
		}
		return false
	}
	c.rate = min(c.rate, lowShare*c.line)
	return true
}

// grown is by how much others have made the queue longer, at the least, within about a round trip. What the
// session has sent beyond the rate of the line is its own doing, and so is what streams send all at once,
// as after acknowledgements that were late.
func (c *Controller) grown(s Sample, trip time.Duration) time.Duration {
	m, span := &c.model, trip+standingTime
	overdue := c.overdue(s)
	if overdue > max(lateShare*m.queue, leastLate) {
		c.room.late = s.At
	}
	if last := max(c.room.late, c.loss.surge); last > 0 && s.At-last < 2*trip {
		return 0
	}
	return min(m.queue, overdue) - m.stood(s.At, span) - m.made(s.At-m.base, span+trip, c.line)
}

// overdue is for how long what should be acknowledged by now takes on the line.
func (c *Controller) overdue(s Sample) time.Duration {
	return seconds(c.model.overdue(s) / max(min(c.rate, c.line), c.model.delivered))
}

// fades is the part of a delay that is forgotten in a time, if all of it is within another one.
func fades(of, in, all time.Duration) time.Duration {
	return scale(of, min(1, in.Seconds()/all.Seconds()))
}

func scale(d time.Duration, by float64) time.Duration { return time.Duration(float64(d) * by) }
