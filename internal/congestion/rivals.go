package congestion

import "time"

const (
	// rivalStreams is how many streams are quick beside others who do not yield to loss.
	rivalStreams = 2
	// rivalLoss is the share that gentle streams lose beside these, at the least, where the session has little of
	// the line. With less than calmLoss, gentle streams go on, if they are as fast.
	rivalLoss = 0.035
	calmLoss  = 0.01
	// worseLoss is by how much more is lost than at the least, beyond calmLoss, where quick streams are too much.
	worseLoss = 1.5
	// rivalTrips and leastRival are the time over which that is measured. mostRival is the same while too little
	// is lost to tell, and the time after which gentle streams are tried again: the others may be sessions that
	// do the same.
	rivalTrips = 8
	leastRival = time.Second
	mostRival  = 15 * time.Second
	// rivalStep is by how much the bound of quick streams changes then.
	rivalStep = 1.25
	// calmLooks is how often little must be lost one after the other: BBR pauses for a moment every 10 s.
	calmLooks = 2
)

// rivals is what is known of others who do not yield to loss, as BBR does not. They push gentle streams out of a
// queue that is not deep. Quick streams hold their part there. They have a bound, because without one they would
// do the same to others.
type rivals struct {
	here  bool          // quick streams resist them
	till  time.Duration // when gentle ones are tried again
	most  float64       // bound that a test before has shown, or of the last quick streams, bytes/s; 0 is unknown
	from  Sample        // what is lost since then counts
	least float64       // least share that was lost beside them
	calm  int           // how often little was lost, one after the other
}

// beaten reports whether a session that thinks it is alone has lost most of the line, and loses much for long. A
// line that has become slower, or a policer, would lose no more than before once less is sent.
func (c *Controller) beaten(s Sample, trip time.Duration) bool {
	l := &c.loss
	policed := l.policed > 0 && c.line > l.policed/nearLoss
	little := c.line < mostPart*c.doubts.best && c.model.losses > rivalLoss
	if !little || policed || !c.mayResist(s) || s.At < c.outage.deaf {
		l.held = s.At
	}
	return s.At-max(l.held, c.since) > max(rivalTrips*trip, leastRest)
}

// resists lets quick streams hold the session's part of the line as long as others do not yield to loss. It
// reports whether they do so.
func (c *Controller) resists(s Sample) bool {
	o, r := &c.others, &c.others.rivals
	if r.from.At == 0 || !r.here && s.At-c.since < leastRival {
		r.from = s
	}
	loss, part := lossSince(r.from, s), mostPart*c.doubts.best
	switch age := s.At - r.from.At; {
	case r.here && (s.At > r.till || !c.mayResist(s)):
		c.relent(s)
	case age < max(rivalTrips*s.RTT, leastRival):
	case r.here:
		c.adjust(s, loss, part)
	case s.Lost-r.from.Lost >= int64(tellingLosses*s.MSS) && c.pushed(s, loss):
		began := max(part, min(r.most, quickGain*c.model.steady))
		*r = rivals{here: true, from: s, least: 1, till: s.At + mostRival}
		if o.bound {
			r.most = o.most
		}
		o.flows, o.most = rivalStreams, began
	case age > mostRival:
		r.from = s
	}
	if r.here {
		o.quick = s.At + leastQuick
	}
	return r.here
}

// adjust changes the bound of the quick streams by the share that was lost, or ends their time.
func (c *Controller) adjust(s Sample, loss, part float64) {
	o, r := &c.others, &c.others.rivals
	got := rateSince(r.from, s)
	r.from, r.least = s, min(r.least, loss)
	if loss > worseLoss*r.least+calmLoss {
		o.most /= rivalStep
	} else if unknown := c.doubts.alone < wholeShare*c.doubts.best; unknown && c.model.steady > o.most*slowShare {
		// The line may carry more than the session ever saw.
		o.most = min(o.most*rivalStep, max(r.most, halfShare*c.doubts.best))
	} else if loss > rivalLoss && got > wholeShare*c.doubts.best { // whoever has the whole line resists nobody
		o.most = min(o.most, got)
	}
	o.most = max(o.most, part)
	if r.calm++; loss > calmLoss || c.gentles(s, loss) > mostFlows {
		r.calm = 0
	}
	if r.calm == calmLooks {
		c.relent(s)
	}
}

// relent lets gentle streams go on.
func (c *Controller) relent(s Sample) {
	c.others.rivals, c.others.quick = rivals{most: c.others.most}, s.At
}

// mayResist reports whether quick streams may hold the session's part. Where the host has none, they cannot, and
// siblings would each hold the part of all.
func (c *Controller) mayResist(s Sample) bool {
	return c.priority == Normal && !s.Gentle && s.Began == 0 && !c.siblings.crowd(s.At)
}

// pushed reports whether streams that lose such a share, but not by chance, have little of the line, and gentle ones
// would not get the session's part.
func (c *Controller) pushed(s Sample, loss float64) bool {
	if !c.mayResist(s) || c.model.steady > mostPart*c.doubts.best || loss < 2*c.loss.random {
		return false
	}
	return loss > rivalLoss || loss > calmLoss && c.gentles(s, loss) > 2*mostFlows
}

// gentles is how many gentle streams hold the session's part of the line, where they lose such a share.
func (c *Controller) gentles(s Sample, loss float64) int {
	return gentleStreams(mostPart*c.doubts.best, s.RTT, s.MSS, max(loss, 1e-9))
}
