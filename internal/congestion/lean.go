package congestion

import "time"

const (
	// leanStep is the part of the least RTT by which the queue changes at once, leanTrips and leastLean how long
	// it takes to see what that does, and leanGrowth the least growth of the rate per round trip meanwhile. probeGrowth
	// is the most of it where what is in flight says that there is a queue, and the RTT does not.
	leanStep    = 0.1
	leanTrips   = 16
	leastLean   = time.Second
	leanGrowth  = 0.05
	probeGrowth = 0.02
	// leanPatience is how many times as long it may take at normal priority: with little of the line, a session makes
	// a queue slowly.
	leanPatience = 4
	// leanBrim is the part of a full queue that it takes at most.
	leanBrim = 2.0 / 3
	// leanHold is how long a session is content with what it found, and leanSoon the same where others may be.
	leanHold = 20 * time.Second
	leanSoon = 10 * time.Second
)

// lean is the queue by which a session takes its part of a line where others are and fill no queue: their windows
// bound them, so that a longer RTT leaves them less. Their packets may be in all RTTs, and jitter may hide what the
// session adds, so that nothing else shows them. Alone, a longer queue brings nothing.
type lean struct {
	queue  time.Duration // beyond the usual aim
	step   time.Duration // the last change of it, or the next one
	at     time.Duration // of the last change
	until  time.Duration // the next change comes after that
	before float64       // delivered rate before it, bytes/s
	was    time.Duration // mean queue then
	above  time.Duration // what seemed to be in flight beyond the queue then
	held   float64       // largest rate since, where there is none yet
	from   Sample        // the delivered rate since then counts; a pause does not end that
	next   Sample        // from, half a wait later
}

// tries reports whether the session makes the queue longer, to see what that brings.
func (l *lean) tries() bool { return l.before > 0 && l.step > 0 }

// probes reports whether it does so where the base holds jitter or the queue of others, and the RTT has not become longer
// by that yet. What is in flight comes and goes with their bursts, and is no bound then.
func (c *Controller) probes(s Sample) bool {
	l, m := &c.lean, &c.model
	known := len(m.past) > 0 // no pause has just ended
	return l.tries() && known && c.raised(s) > c.least(s) && m.mean(s.At, 2*max(s.RTT, standingTime)).RTT < m.base+l.was+l.step
}

// resume lets the session find out anew, after an outage, what a longer queue brings.
func (l *lean) resume(s Sample, wait time.Duration) {
	l.undo()
	l.until, l.from, l.next = s.At+wait, s, s
}

// undo ends a try that is not finished, and takes back the longer queue. It reports whether there was one.
func (l *lean) undo() bool {
	longer := l.tries()
	if longer {
		l.queue = max(0, l.queue-l.step)
	}
	l.before = 0
	return longer
}

// turn holds a queue for a while. The next step goes the other way.
func (l *lean) turn(s Sample, queue, hold time.Duration) {
	l.queue, l.step, l.before, l.held = queue, -l.step, 0, 0
	l.at, l.until, l.from, l.next = s.At, s.At+hold, s, s
}

// leans makes the queue longer as long as that brings as much more as to a session with less than its part of the
// line, and shorter as long as it costs less.
func (c *Controller) leans(s Sample, trip time.Duration) {
	l, m := &c.lean, &c.model
	// Below 25 ms, the usual aim is as long already.
	needless := c.priority == Low || c.priority == Normal && c.usualAim() > scale(m.base, leanStep)
	if needless || c.siblings.crowd(s.At) || s.Backlog == 0 {
		*l = lean{}
		return
	}
	part, step, hold := mostPart, scale(m.base, leanStep), leanHold
	if c.priority == High {
		part = highPart
	}
	taken := c.line < takenDoubt*c.doubts.best // others may have the rest: a larger step tells more
	if c.priority == High || taken {
		step, hold = 2*step, leanSoon
	}
	// With a part p of the line, a queue of a part q of the RTT brings q × (1/p - 1).
	worth := func(queue time.Duration) float64 {
		return (1/part - 1) * queue.Seconds() / (m.base + m.usual).Seconds()
	}
	wait := max(leanTrips*trip, leastLean)
	if s.At-l.next.At >= wait/2 {
		l.from, l.next = l.next, s
	}
	switch {
	case l.step == 0:
		*l = lean{step: step, until: s.At + wait, from: s, next: s}
	case s.At < c.loss.ceilUntil: // what the queue lost bounds the rate, and the longer one brings nothing yet
		if l.undo() {
			l.until = s.At + hold
		}
		l.until = max(l.until, c.loss.ceilUntil)
	case l.before > 0 && s.At-l.at < wait:
	case l.tries() && c.priority != High && m.usual-l.was < l.step/2 && s.At-l.at < leanPatience*wait &&
		rateSince(l.from, s) < l.before*(1+worth(l.step)):
	case l.before == 0 && s.At < l.until:
		if s.At-l.at > wait {
			l.held = max(l.held, m.steady)
		}
		if m.steady < takenShare*l.held && (l.queue > 0 || c.priority == High) { // others take more and more: a longer aim would hide their queue
			*l = lean{step: step, at: s.At, until: s.At + hold, from: s, next: s}
		}
	default:
		now := rateSince(l.from, s)
		if l.before > 0 {
			made := max((m.usual - l.was).Abs(), l.step.Abs()/2)
			longer, shorter := now, l.before
			if l.step < 0 {
				longer, shorter = shorter, longer
			}
			if (longer/shorter-1 > worth(made)) != (l.step > 0) { // undone
				l.turn(s, max(0, l.queue-l.step), hold)
				c.full = 0 // it was to be that long
				return
			}
		}
		most := m.base
		if c.others.brim > 0 {
			most = min(most, scale(c.others.brim, leanBrim))
		}
		if l.step > 0 && l.queue > 0 && l.queue+l.step/2 > most { // it is as long as it may be
			l.turn(s, min(l.queue, most), hold)
			return
		}
		if l.queue+l.step < 0 {
			l.step = -l.step
		}
		if l.step > 0 { // what was delivered may have been less for a moment
			now = max(now, c.line)
		}
		l.queue, l.at, l.before, l.was = min(l.queue+l.step, most), s.At, now, m.usual
		l.from, l.next = s, s
		if l.above = 0; taken {
			l.above = max(0, c.over(s, c.line)-m.usual)
		}
	}
}
