package congestion

import "time"

const (
	// leanStep is the part of the least RTT by which the queue changes at once, leanTrips and leastLean how long
	// it takes to see what that does, and leanGrowth the least growth of the rate per round trip meanwhile.
	leanStep   = 0.1
	leanTrips  = 16
	leastLean  = time.Second
	leanGrowth = 0.05
	// leanPatience is how many times as long it may take at normal priority: with little of the line, a session makes
	// a queue slowly.
	leanPatience = 4
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
}

// tries reports whether the session makes the queue longer, to see what that brings.
func (l *lean) tries() bool { return l.before > 0 && l.step > 0 }

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
	wait := max(leanTrips*trip, leastLean)
	switch {
	case l.step == 0:
		*l = lean{step: step, until: s.At + wait}
	case s.At < c.loss.ceilUntil: // what the queue lost bounds the rate, and the longer one brings nothing yet
		l.before, l.until = 0, c.loss.ceilUntil
	case l.before > 0 && s.At-l.at < wait:
	case l.before > 0 && c.priority != High && m.usual-l.was < l.step/2 && s.At-l.at < leanPatience*wait:
	case l.before == 0 && s.At < l.until:
		if s.At-l.at > wait {
			l.held = max(l.held, m.steady)
		}
		if m.steady < takenShare*l.held && (l.queue > 0 || c.priority == High) { // others take more and more: a longer aim would hide their queue
			*l = lean{step: step, at: s.At, until: s.At + hold}
		}
	default:
		now := rateSince(m.before(s.At-2*m.steadyWindow()), s)
		if l.before > 0 {
			// With a part p of the line, a queue of a part q of the RTT brings q × (1/p - 1).
			made := max((m.usual - l.was).Abs(), l.step.Abs()/2)
			worth := (1/part - 1) * made.Seconds() / (m.base + m.usual).Seconds()
			longer, shorter := now, l.before
			if l.step < 0 {
				longer, shorter = shorter, longer
			}
			if (longer/shorter-1 > worth) != (l.step > 0) { // undone
				l.queue, l.step, l.before, l.held = max(0, l.queue-l.step), -l.step, 0, 0
				l.at, l.until = s.At, s.At+hold
				c.full = 0 // it was to be that long
				return
			}
		}
		if l.queue+l.step < 0 {
			l.step = -l.step
		}
		if l.step > 0 { // what was delivered may have been less for a moment
			now = max(now, c.line)
		}
		most := m.base
		if c.others.brim > 0 {
			most = min(most, c.others.brim/2)
		}
		l.queue, l.at, l.before, l.was = min(l.queue+l.step, most), s.At, now, m.usual
		if l.above = 0; taken {
			l.above = max(0, c.over(s, c.line)-m.usual)
		}
	}
}
