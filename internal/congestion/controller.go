package congestion

import (
	"math"
	"time"
)

// Controller decides for one session, at the end that sends. One goroutine uses it.
type Controller struct {
	priority Priority
	model    model

	state  State
	since  time.Duration // start of the state
	last   Sample
	rate   float64       // bytes/s; +Inf until something was delivered
	calm   time.Duration // since when the queue has been nearly empty
	growth float64       // of the rate, per round trip
}

// New returns a Controller that is about to start.
func New(p Priority) *Controller {
	return &Controller{priority: p, rate: math.Inf(1)}
}

const (
	startGain   = 2.0  // of the delivered rate, at the start: doubles it each round trip
	drainGain   = 0.5  // of the delivered rate, while the queue of the start flows off
	afterDrain  = 0.97 // of the largest delivered rate
	leastShare  = 0.75 // of the largest delivered rate of late: less only shows that others send
	leastGrowth = 0.008
	mostGrowth  = 0.25
)

// aim is the queueing delay to hold. It is below the 5 ms at which CoDel begins to drop (RFC 8289).
func (c *Controller) aim(s Sample) time.Duration {
	t := time.Duration(0.03 * float64(c.model.base))
	return min(max(t, 1500*time.Microsecond), 4*time.Millisecond) + c.model.packets(2, s.MSS)
}

// Update takes a sample and decides.
func (c *Controller) Update(s Sample) Decision {
	c.model.update(s)
	dt := s.At - c.last.At
	c.last = s
	if c.model.base == 0 || s.Delivered == 0 {
		c.calm = s.At
		return c.decision()
	}
	switch c.state {
	case Startup:
		c.start(s)
	case Drain:
		c.drain(s)
	case Cruise:
		c.cruise(s, dt)
	}
	return c.decision()
}

func (c *Controller) decision() Decision { return Decision{Rate: c.rate, State: c.state} }

func (c *Controller) enter(state State, now time.Duration) {
	c.state, c.since, c.calm, c.growth = state, now, now, leastGrowth
}

// start doubles the rate each round trip until a queue shows that the line is full.
func (c *Controller) start(s Sample) {
	m := &c.model
	full := m.base/20 + 3*time.Millisecond + m.packets(6, s.MSS)
	if m.queue > full || m.sent > 0.05 && s.Backlog > 0 {
		c.enter(Drain, s.At)
		c.drain(s)
		return
	}
	if m.delivered > 0 {
		if math.IsInf(c.rate, 1) {
			c.rate = 0
		}
		c.rate = max(c.rate, startGain*m.delivered)
	}
}

// drain lets the queue flow off.
func (c *Controller) drain(s Sample) {
	m := &c.model
	if m.queue <= c.aim(s) || s.At-c.since > 4*s.RTT+leastWindow {
		c.rate = afterDrain * m.most()
		c.enter(Cruise, s.At)
		return
	}
	c.rate = drainGain * m.most()
}

// cruise holds the standing queue at its aim. With R the rate, D the delivered rate and T the time
// in which to correct the queue: R = D × (1 + (aim - queue) / T). T is four times the age of the
// feedback, which is stable.
func (c *Controller) cruise(s Sample, dt time.Duration) {
	m := &c.model
	aim := c.aim(s)
	trip := max(s.RTT, dt)
	if m.standing > aim {
		c.calm, c.growth = s.At, leastGrowth
		excess := (m.standing - aim).Seconds() / (4 * (trip + standingTime)).Seconds()
		c.rate = min(c.rate, m.most()*(1-min(excess, 1-leastShare)))
		return
	}
	if s.Backlog == 0 || s.Windowed {
		return // it does not send what it may: nothing is learnt
	}
	if m.standing < aim/2 && s.At-c.calm > 3*trip {
		c.growth = min(mostGrowth, c.growth*math.Pow(1.5, dt.Seconds()/trip.Seconds()))
	}
	c.rate *= 1 + c.growth*min(1, dt.Seconds()/trip.Seconds())
	c.rate = min(c.rate, startGain*m.most())
}
