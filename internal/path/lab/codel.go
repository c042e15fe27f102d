package lab

import "math"

// The parameters of CoDel, as RFC 8289 section 4.4 recommends them.
const (
	codelTarget   = 5_000_000   // ns
	codelInterval = 100_000_000 // ns
)

// codel decides which packets a queue drops early, so that they wait for about codelTarget at
// most (RFC 8289). It is the pseudocode of section 5, asked packet by packet.
type codel struct {
	firstAbove int64 // when the wait will have been above the target for an interval; 0: it is below
	dropNext   int64 // when the next packet is dropped, while dropping
	count      int   // packets dropped since dropping began
	lastCount  int   // count when dropping began
	dropping   bool
	after      followUp
}

// followUp is what a drop means for the packet behind it, which leaves the queue at the same time.
type followUp int

const (
	nothing followUp = iota
	spared           // the drop began the dropping: this packet is sent
	advance          // the drop was one of several: the time of the next drop follows
)

// drops reports whether the packet that would leave the queue at time now is dropped instead. It
// has waited for sojourn ns. few says that at most one full packet waits behind it.
func (c *codel) drops(now, sojourn int64, few bool) bool {
	above := c.above(now, sojourn, few)
	after := c.after
	c.after = nothing
	switch {
	case after == spared:
		return false
	case c.dropping && !above:
		c.dropping = false
		return false
	case c.dropping:
		if after == advance {
			c.dropNext = controlLaw(c.dropNext, c.count)
		}
		if now < c.dropNext {
			return false
		}
		c.count++
		c.after = advance
		return true
	case !above:
		return false
	}
	// If the last dropping ended a short time ago, its rate of drops is a good start.
	delta := c.count - c.lastCount
	c.count = 1
	if delta > 1 && now-c.dropNext < 16*codelInterval {
		c.count = delta
	}
	c.lastCount = c.count
	c.dropping = true
	c.dropNext = controlLaw(now, c.count)
	c.after = spared
	return true
}

// above reports whether packets have waited for too long during a whole interval.
func (c *codel) above(now, sojourn int64, few bool) bool {
	if sojourn < codelTarget || few {
		c.firstAbove = 0
		return false
	}
	if c.firstAbove == 0 {
		c.firstAbove = now + codelInterval
		return false
	}
	return now >= c.firstAbove
}

// idle tells that the queue was empty when the line could have sent.
func (c *codel) idle() {
	c.firstAbove, c.dropping, c.after = 0, false, nothing
}

func controlLaw(t int64, count int) int64 {
	return t + int64(codelInterval/math.Sqrt(float64(count)))
}
