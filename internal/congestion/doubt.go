package congestion

import "time"

const (
	emptyShare = 0.93 // of what was delivered: fills no queue by itself
	takenDoubt = 0.85 // of the most that was delivered: with less, others may have taken the rest
	mostFall   = 1.5  // of the line's rate in a doubt: less may be a processor that is late

	// leastFight is how long a queue must stay, at the least, to be that of others.
	leastFight = 400 * time.Millisecond

	// falling is the least part of the speed with which a queue of our own shall fall.
	falling = 0.8

	// mostDoubts is how many doubts may follow each other within doubtTrips or doubtAgain.
	mostDoubts = 1
	doubtTrips = 30
	doubtAgain = 2 * time.Second

	// startTrips is how many round trips after the start the RTT may still grow because of that.
	startTrips = 12

	// lostShare is the part of the most that a session had, with less of which it asks for a check.
	// checkShare is the part of the line that is sent in a check. It is less than in a doubt: what others
	// have in flight bounds how much the RTT falls. checkFor is how long a check goes on once a queue of
	// our own is gone, and mostChecks how many there are.
	lostShare  = 0.5
	checkShare = 0.5
	checkFor   = 50 * time.Millisecond
	mostChecks = 3
)

// doubts is what the session saw when it doubted whose queue there is.
type doubts struct {
	row   int           // one soon after the other
	ended time.Duration // end of the last one
	dip   time.Duration // least queue in doubt
	top   time.Duration // largest queue in doubt
	jump  time.Duration // by how much the queue grew at most at once, since it is too long
	best  float64       // largest line, bytes/s
	alone float64       // the same with a short queue and little loss: nobody else was there, bytes/s
	part  float64       // what the line carried of ours when less was sent, bytes/s
	empty time.Duration // when the queue was gone in doubt; 0 is not yet

	slower bool          // the one before has shown that the line is slower than was known
	longer time.Duration // by how much the way became longer since the session began
	check  check
}

// check is a doubt about the RTT without a queue: it may hold the queue of others who were there first.
type check struct {
	wanted bool          // there is a reason for one
	number int           // how many there were
	on     bool          // the present doubt is one
	base   time.Duration // RTT without a queue, when it began
	queue  time.Duration // mean queue then
}

// doubt sends clearly less than is delivered, for a moment. A queue of our own flows off and does
// not come back at a little less than the line carries; another is that of others.
func (c *Controller) doubt(s Sample) {
	m := &c.model
	age := s.At - c.since
	lag := c.lag(s)
	if c.doubts.check.on {
		c.check(s, age, lag)
		return
	}
	if age <= lag {
		c.doubts.dip, c.doubts.top, c.doubts.part = m.queue, m.queue, c.line
	}
	if trip := max(lag, standingTime); c.queued(s) && m.windowed <= mostWindowed && age > trip && age < 2*trip { // it was sent before less was
		c.doubts.part = min(c.doubts.part, rateSince(c.from, s))
		c.line = min(c.line, max(c.doubts.part, c.had/mostFall))
	}
	c.doubts.dip, c.doubts.top = min(c.doubts.dip, m.queue), max(c.doubts.top, m.queue)
	// The RTT of a paced stream holds the time of two of its packets, which are further apart now.
	aim := c.aim(s) + scale(c.packets(2, s.MSS), 1/leastShare-1)
	switch {
	case c.doubts.empty == 0 && m.queue <= aim:
		c.doubts.empty = s.At
	case c.doubts.empty == 0 && age > max(6*lag, testFor) && c.longer():
		c.lengthen(c.doubts.dip)
		return
	case c.doubts.empty == 0 && age > max(6*lag, testFor) && m.standing > c.doubts.top-falls(age-2*lag):
		if leastShare*c.line < emptyShare*c.doubts.part || c.doubts.slower {
			c.blame(s)
			return
		}
		c.line = c.doubts.part // a queue of our own could not flow off: the line has become slower
		c.enter(Doubt, s.At)
		c.doubts.slower = true
	case c.doubts.empty > 0 && m.queue > aim && m.standing > aim/2 && s.At-c.doubts.empty > lag:
		c.blame(s)
		return
	case c.doubts.empty > 0 && c.outlasted(lag) && s.At-c.doubts.empty > max(lag, leastAlone):
		c.full, c.doubts.ended, c.others.left = 0, s.At, s.At
		m.rates = nil
		c.rate = afterDrain * c.line
		c.enter(Cruise, s.At)
		c.regain()
		return
	case c.doubts.empty > 0 && !c.outlasted(lag) && s.At-c.doubts.empty > max(4*lag, testFor/2):
		c.full, c.doubts.ended = 0, s.At
		m.rates, c.known = nil, c.line // the line carried more before this queue began
		c.rate = afterDrain * c.line
		c.enter(Cruise, s.At)
		return
	}
	c.rate = leastShare * c.line
	if c.doubts.empty > 0 {
		c.rate = emptyShare * c.line
	}
}

// outlasted reports whether a queue that is gone now stayed in a doubt for longer than one of the session's own, which
// has little of the line: others made it, and have left.
func (c *Controller) outlasted(lag time.Duration) bool {
	d := &c.doubts
	return c.little() && !c.shallow() && d.empty-c.since > 3*lag+scale(d.top, 1/(falling*(1-leastShare)))
}

// blame ends a doubt in which others seem to hold the queue. Where the peer takes less than it gets, its
// host is late with acknowledgements, too: the session goes on.
func (c *Controller) blame(s Sample) {
	if c.priority == Low || c.model.windowed <= mostWindowed {
		c.share(s)
		return
	}
	c.full, c.doubts.row = 0, 0
	c.rate = afterDrain * c.line
	c.enter(Cruise, s.At)
}

// falls is by how much a queue of our own falls at the least in a time in which leastShare is sent.
func falls(in time.Duration) time.Duration {
	return time.Duration(falling * (1 - leastShare) * float64(in))
}

// longer tells, at the end of a doubt, whether the way has become longer: the RTT grew at once, and did not
// change although clearly less was sent, and the session still has most of what it ever had. Others would
// have let the queue grow step by step, or it would have become shorter. Beside a small part of the line
// that takes longer than a doubt.
func (c *Controller) longer() bool {
	m, d := &c.model, &c.doubts
	return d.jump > d.dip*3/4 && d.top-d.dip < max(leastAim, m.jitter()) && d.part > d.best/2
}

// lengthen takes a longer round trip for that of the way, and goes on as alone.
func (c *Controller) lengthen(by time.Duration) {
	c.model.base += by
	c.doubts.longer += by
	c.full = 0
	c.rate = afterDrain * c.line
	c.enter(Cruise, c.last.At)
}

// hidden reports whether the base may hold a queue of others: no smoothed RTT came near the least one that the
// kernel ever saw, by more than jitter explains. The queue of others then goes up and down above the base, and
// looks as if it was our own.
func (c *Controller) hidden(s Sample) bool {
	return c.priority != Low && c.raised(s) > c.least(s)+max(c.model.jitter(), c.deviates())
}

// raised is by how much the base exceeds the least RTT that the kernel ever saw, unless the way has become longer.
func (c *Controller) raised(s Sample) time.Duration {
	if s.Least == 0 {
		return 0
	}
	return c.model.base - c.doubts.longer - s.Least
}

// unsure reports whether it is time for a check, and begins it.
func (c *Controller) unsure(s Sample) bool {
	k := &c.doubts.check
	lost := c.line < lostShare*c.doubts.best && c.model.standing > min(leastAim, c.quietAim())
	hidden := s.At-c.since > c.rests(s) && c.hidden(s)
	if !k.wanted && !lost && !hidden || c.priority == Low || k.number >= mostChecks || c.siblings.crowd(s.At) || !c.dense(s) {
		return false
	}
	c.enter(Doubt, s.At)
	*k = check{number: k.number + 1, on: true, base: c.model.base, queue: c.model.usual}
	c.doubt(s)
	return true
}

// check sends less until a queue of our own is gone for certain. The RTT is then what it was without a
// queue. If it is longer, others hold the queue; if it is shorter, their queue was in all RTTs so far.
func (c *Controller) check(s Sample, age, lag time.Duration) {
	m, k := &c.model, &c.doubts.check
	c.rate = checkShare * c.line
	if age < 2*lag+seconds(k.queue.Seconds()/(1-checkShare))+checkFor {
		return
	}
	rtt, jitter := m.base+m.standing, max(m.jitter()/2, c.deviates())
	// What looks like jitter may be the bursts of others. With high priority, a session without anybody else would lose
	// nothing by going on as beside others.
	if c.priority == High && c.line < lostShare*c.doubts.best && c.loss.policed == 0 {
		jitter = 0
	}
	stays := k.queue > leastAim/2 && rtt > k.base+max(k.queue/2, leastAim/2, jitter)
	if stays || rtt < k.base-max(leastAim, jitter) {
		c.blame(s)
		return
	}
	c.full = 0
	if c.mayStartAgain(s) && !c.proved && !c.guess && c.opening.sent > 0 { // what ended the start was no queue, neither ours nor that of others
		c.startAgain(s, c.opening.top)
		return
	}
	c.rate = afterDrain * c.line
	c.enter(Cruise, s.At)
}
