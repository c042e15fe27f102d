package congestion

import "time"

// Siblings is what the server says to a session of all that send from one host to another. They share
// the line by the weight of their priority, which no session can find out alone: each sees one queue,
// whoever fills it.
type Siblings struct {
	Sessions int     // weights together of those that have more to send than the line takes, this one too
	Own      float64 // what was delivered of late by this session, divided by its weight, bytes/s
	All      float64 // what was delivered of late by all of them, bytes/s
	Turn     int     // changes when those that share the line with others shall test at the same time
}

// Member is a session as its server sees it, among those that send from one host to another in the
// same direction. Those of low priority are among themselves: they yield to all others. The zero
// Member is a new one.
type Member struct {
	Rate     float64 // delivered of late, bytes/s
	Waits    bool    // data wait at the sender to be sent
	Priority Priority

	behind time.Duration // since when it has not taken what it may have
	rate   float64       // then, bytes/s
	apart  time.Duration // until when it counts as one that something else limits
	pause  time.Duration // length of the last such time
	told   bool          // that it has siblings
}

const (
	// SiblingsEvery is the time between two messages of a server about siblings.
	SiblingsEvery = 500 * time.Millisecond
	// siblingsFor is how long such a message holds.
	siblingsFor = 3 * time.Second
	// turnEvery is the time between two tests that siblings make at the same time. It is longer than
	// a test, and than what others need to fill a queue again.
	turnEvery = 4 * time.Second
	// siblingPart is the part of the way to its part of the line that a session goes at once.
	siblingPart = 0.5
	// A session keeps what it has beyond its part if that is less than nearPart of its part, and than nearPart of
	// the parts of all others together.
	nearPart = 0.1
	// mostRaise bounds what a message makes of a session's rate: the server may be wrong.
	mostRaise = 2

	// highWeight is for how many sessions of normal priority one of high priority counts: it takes about
	// four fifths of the line beside one of them, as beside one flow of others.
	highWeight = 4

	// A session that has less than behindPart of its part, and does not get risen more in behindFor, is
	// limited by something else than its siblings: it keeps what it has, for apartFor at first. It may need
	// two tests to leave Compete.
	behindPart = 0.8
	risen      = 1.1
	behindFor  = 10 * time.Second
	apartFor   = 15 * time.Second
	mostApart  = 2 * time.Minute
)

// Tell decides what the server says to the members of a family now: to those that share the line,
// and once to each that no longer does. Zero Sessions are nothing to say.
func Tell(now time.Duration, members []*Member) []Siblings {
	sharing := Siblings{Turn: int(now / turnEvery)}
	count := 0
	for _, m := range members {
		if m.shares(now) {
			count++
			sharing.Sessions += m.Priority.weight()
			sharing.All += m.Rate
		}
	}
	say := make([]Siblings, len(members))
	for i, m := range members {
		weight := float64(m.Priority.weight())
		switch {
		case count > 1 && m.shares(now):
			say[i] = sharing
			say[i].Own, m.told = m.Rate/weight, true
			m.follow(now, weight*sharing.All/float64(sharing.Sessions))
		case m.told:
			say[i] = Siblings{Sessions: 1, Own: m.Rate / weight, All: m.Rate, Turn: sharing.Turn}
			m.told, m.behind = false, 0
		}
	}
	return say
}

// SetPriority says which priority the session has now. It is a new one for its siblings then.
func (m *Member) SetPriority(p Priority) {
	if p != m.Priority {
		m.Priority, m.behind, m.apart, m.pause = p, 0, 0, 0
	}
}

// weight is for how many sessions of normal priority a session counts among its siblings.
func (p Priority) weight() int {
	if p == High {
		return highWeight
	}
	return 1
}

// shares reports whether the session would take more of the line.
func (m *Member) shares(now time.Duration) bool { return m.Waits && m.Rate > 0 && now >= m.apart }

// follow notes whether the session takes what it may have.
func (m *Member) follow(now time.Duration, part float64) {
	switch {
	case m.Rate >= behindPart*part:
		m.behind, m.pause = 0, 0
	case m.behind == 0 || m.Rate > risen*m.rate:
		m.behind, m.rate = now, m.Rate
	case now-m.behind >= behindFor:
		m.pause = min(max(apartFor, 2*m.pause), mostApart)
		m.behind, m.apart = 0, now+m.pause
	}
}

// siblings is what the session was told, and when.
type siblings struct {
	Siblings
	at   time.Duration
	best float64 // largest All of late, bytes/s
	turn int     // the last test that the session took part in
}

// SetSiblings says what sessions between the same two hosts do. The peer may say what it wants: a
// session never takes more than the queue allows, and gives nothing away on a line that is not full.
func (c *Controller) SetSiblings(to Siblings) {
	b := &c.siblings
	since := c.last.At - b.at
	b.Siblings, b.at = to, c.last.At
	b.best = max(to.All, b.best*(1-min(1, since.Seconds()/longHold.Seconds())))
	if to.Sessions < 2 {
		b.best = 0
		return
	}
	if c.state != Cruise || to.Own <= 0 || to.All < to.Own || c.line <= 0 {
		return
	}
	part, weight := to.All/float64(to.Sessions), float64(c.priority.weight())
	goal := min(to.Own+siblingPart*(part-to.Own), mostRaise*to.Own)
	by := goal / to.Own
	switch {
	case by > 1: // what it may send already counts, and streams may need time for it
		by = max(1, min(by, weight*goal/c.line))
	case to.Own-part < nearPart*part*min(1, float64(to.Sessions)/weight-1): // no rate is measured more exactly
		return
	case c.model.usual < c.aim(c.last)/8: // siblings do not take what this one would leave
		return
	}
	c.rate, c.line, c.loss.ceil = c.rate*by, c.line*by, c.loss.ceil*by
	for i := range c.model.rates {
		c.model.rates[i].rate *= by
	}
}

// part is what a session of a priority may have of what the siblings have, bytes/s, if it knew of a line of this rate.
func (b *siblings) part(p Priority, line float64) float64 {
	return min(float64(p.weight())*b.All/float64(b.Sessions), mostRaise*line)
}

// crowd reports whether the session has siblings now.
func (b *siblings) crowd(now time.Duration) bool { return b.Sessions > 1 && now-b.at < siblingsFor }

// whole reports whether the siblings together have all that they had of late. Then nobody else takes the
// line: the queue is theirs.
func (b *siblings) whole(now time.Duration) bool {
	return b.crowd(now) && b.All > takenShare*b.best
}
