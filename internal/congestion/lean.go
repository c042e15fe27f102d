package congestion

import "time"

const (
	// leanPart is the part of the line with more of which a session of high priority makes no queue to get more.
	leanPart = 0.75
	// leanStep is the part of the least RTT by which that queue changes at once, leanTrips and leastLean how
	// long it takes to see what that does, and leanHold how long the session is content with what it found.
	leanStep  = 0.2
	leanTrips = 16
	leastLean = time.Second
	leanHold  = 10 * time.Second
)

// lean is the queue by which a session of high priority pushes others aside who are there and fill none: their
// windows bound them, so that a longer RTT leaves them less. Alone, a longer queue brings nothing.
type lean struct {
	queue  time.Duration // beyond the usual aim
	step   time.Duration // the last change of it, or the next one
	at     time.Duration // of the last change
	until  time.Duration // the next change comes after that
	before float64       // delivered rate before it, bytes/s
	held   float64       // largest rate since, where there is none yet
}

// leans makes the queue longer as long as that brings as much more as beside others who have a quarter of
// the line, and shorter as long as it costs less.
func (c *Controller) leans(s Sample, trip time.Duration) {
	l, m := &c.lean, &c.model
	if c.priority != High || c.siblings.crowd(s.At) || s.Backlog == 0 {
		*l = lean{}
		return
	}
	wait := max(leanTrips*trip, leastLean)
	switch {
	case l.step == 0:
		*l = lean{step: scale(m.base, leanStep), until: s.At + wait}
	case s.At < c.loss.ceilUntil: // what the queue lost bounds the rate, and the longer one brings nothing yet
		l.before, l.until = 0, c.loss.ceilUntil
	case l.before > 0 && s.At-l.at < wait:
	case l.before == 0 && s.At < l.until:
		if s.At-l.at > wait {
			l.held = max(l.held, m.steady)
		}
		if m.steady < takenShare*l.held { // others take more and more: a longer aim would hide their queue
			*l = lean{step: scale(m.base, leanStep), at: s.At, until: s.At + leanHold}
		}
	default:
		now := rateSince(m.before(s.At-m.steadyWindow()), s)
		if l.before > 0 {
			// With a part p of the line, a queue of a part q of the RTT brings q × (1/p - 1).
			worth := (1/leanPart - 1) * l.step.Abs().Seconds() / (m.base + l.queue).Seconds()
			longer, shorter := now, l.before
			if l.step < 0 {
				longer, shorter = shorter, longer
			}
			if (longer/shorter-1 > worth) != (l.step > 0) { // undone
				l.queue, l.step, l.before, l.held = max(0, l.queue-l.step), -l.step, 0, 0
				l.at, l.until = s.At, s.At+leanHold
				return
			}
		}
		if l.queue+l.step < 0 {
			l.step = -l.step
		}
		most := m.base
		if c.others.brim > 0 {
			most = min(most, c.others.brim/2)
		}
		l.queue, l.at, l.before = min(l.queue+l.step, most), s.At, now
	}
}
