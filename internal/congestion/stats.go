package congestion

import (
	"math"
	"time"
)

// Stats sums up what a Controller met and did since its start.
type Stats struct {
	Priority Priority      // the last one
	Base     time.Duration // round trip time without a queue; 0 is unknown
	Starting time.Duration // the session looked for the rate of the line
	Policed  time.Duration // it was near a rate beyond which packets are lost without a queue
	Shared   time.Duration // others used the line, and the session took a part of it
	Yielded  time.Duration // others used the line, and the session took what they left

	// Queue and QueueMost are the delay in the queue before the bottleneck, while there was no sign
	// of others: the median and the largest. Queue is exact to 5 %.
	Queue, QueueMost time.Duration

	// What was sent again, in segments, by what it was lost to.
	LostOwn    int64 // a queue that the session made itself
	LostOthers int64 // a queue that others kept full
	LostLine   int64 // no queue: the line, a policer, or a queue too short to be seen
}

// Recorder makes Stats of the samples and decisions of one Controller. One goroutine uses it.
type Recorder struct {
	stats  Stats
	delays histogram
	police police
	base   time.Duration
	before Sample
	long   time.Duration // when there was clearly a queue of our own, the last time
	unsure unsure
	rest   [3]int64 // bytes lost that make no segment yet, as LostOwn, LostOthers and LostLine
}

// Add takes what c has just decided on a sample.
func (r *Recorder) Add(c *Controller, s Sample, d Decision) {
	dt := s.At - r.before.At
	lost := max(0, s.Lost-r.before.Lost)
	r.before = s
	others := d.State == Compete || d.State == Yield
	switch {
	case d.State == Startup && !c.near(): // on a near path nothing is looked for
		r.stats.Starting += dt
	case d.State == Compete:
		r.stats.Shared += dt
	case d.State == Yield:
		r.stats.Yielded += dt
	}
	if queue := c.model.queue; c.model.base > 0 && !others {
		r.delays.add(queue, dt)
		r.stats.QueueMost = max(r.stats.QueueMost, queue)
		if r.queued(c, s) {
			r.long = s.At
		}
	}
	if c.model.base < r.base-r.base/16 { // there has been a queue all the time, that of others
		r.police, r.stats.Policed = police{from: s}, 0
	}
	r.base = c.model.base
	if !others && c.model.base > 0 {
		bare := r.stats.QueueMost < max(leastQueue, c.model.base/5)
		found := r.police.look(s, r.queued(c, s), bare, max(c.model.steadyWindow(), steadyTrips*s.RTT))
		if bare && c.loss.policed > 0 && s.At < c.loss.ceilUntil { // the session stays below it, and loses little
			found = max(found, dt)
		}
		r.stats.Policed += found
	}
	switch { // a loss shows after a round trip
	case others:
		r.lose(&r.stats.LostOthers, &r.rest[1], lost, s.MSS)
	case r.long > 0 && s.At-r.long <= 2*s.RTT+leastWindow:
		r.lose(&r.stats.LostOwn, &r.rest[0], lost+r.unsure.bytes, s.MSS)
		r.unsure = unsure{}
	case d.State == Startup && r.unsure.bytes == 0:
		r.unsure = unsure{lost, s.At}
	case r.unsure.bytes > 0 && s.At-r.unsure.at <= 2*s.RTT+leastWindow:
		r.unsure.bytes += lost
	case r.unsure.bytes > 0:
		r.lose(&r.stats.LostLine, &r.rest[2], lost+r.unsure.bytes, s.MSS)
		r.unsure = unsure{}
	default:
		r.lose(&r.stats.LostLine, &r.rest[2], lost, s.MSS)
	}
}

// unsure is what was lost in the search for the line's rate, which fills the queue faster than the
// smoothed round trip time shows.
type unsure struct {
	bytes int64
	at    time.Duration // the first time
}

// queued reports whether there is clearly a queue of the session's own: longer than its aim, or at
// least half of the longest one.
func (r *Recorder) queued(c *Controller, s Sample) bool {
	queue := c.model.queue
	return queue > 2*c.aim(s) || 2*queue >= r.stats.QueueMost && queue >= max(leastQueue, c.model.base/5)
}

// lose counts bytes as segments.
func (r *Recorder) lose(segments, rest *int64, bytes int64, mss int) {
	if mss <= 0 {
		return
	}
	*rest += bytes
	*segments += *rest / int64(mss)
	*rest %= int64(mss)
}

// Stats returns the sums so far, of c.
func (r *Recorder) Stats(c *Controller) Stats {
	s := r.stats
	s.Priority, s.Base = c.priority, c.model.base
	s.Queue = min(r.delays.median(), s.QueueMost)
	return s
}

// police finds a rate beyond which packets are lost without a queue: that of a policer, or of a queue
// too short to be seen. Random loss is the same at any rate. One moment of loss proves nothing: the
// rate delivered must be the same seconds later, while another one is sent, or the path must never have
// shown a queue.
type police struct {
	from   Sample  // start of the present measurement
	queued bool    // there was a queue during it
	rate   float64 // delivered while many were lost, bytes/s; 0 is none
	most   float64 // share that was lost then
	sent   float64 // bytes since then, but for times of much loss
	lost   float64 // of these
	pushed float64 // sending rate at which many were lost for the first time, bytes/s
	since  time.Duration
	sure   bool          // it was the same later, at another sending rate, or there never was a queue
	near   time.Duration // at that rate, and not sure yet
}

const (
	policedLoss  = 0.02 // share lost without a queue that may be a policer's doing
	policedOver  = 1.15 // of its rate; a session that gets more has no policer
	policedNear  = 0.7  // of its rate; a session that sends less is held back by something else
	manyLosses   = 24   // fewer segments may be chance
	policedLike  = 0.1  // two rates that differ by less are the same
	policedApart = 0.03 // two sending rates that differ by more are not
	policedLong  = 2 * time.Second
	leastQueue   = time.Millisecond
)

// look takes a sample each time, and measures once in a window. It returns how long the session was
// policed.
func (p *police) look(s Sample, queued, bare bool, window time.Duration) time.Duration {
	p.queued = p.queued || queued
	if s.At-p.from.At < window {
		return 0
	}
	from, clear := p.from, !p.queued
	p.from, p.queued = s, false
	if p.rate > 0 && clear && bare && s.At-p.since >= policedLong {
		p.sure = true
	}
	rate, lost := rateSince(from, s), float64(s.Lost-from.Lost)
	sent := lost + float64(s.Delivered-from.Delivered)
	many := float64(manyLosses * s.MSS)
	if p.rate > 0 && rate > policedOver*p.rate {
		*p = police{from: s}
	}
	push := sent / (s.At - from.At).Seconds()
	if p.rate > 0 && clear && lost >= many && s.At-p.since >= policedLong &&
		math.Abs(rate-p.rate) <= policedLike*p.rate && math.Abs(push-p.pushed) >= policedApart*p.pushed {
		p.sure = true
	}
	if lost < policedLoss*sent {
		p.sent, p.lost = p.sent+sent, p.lost+lost
	} else if clear && lost >= many && lost > p.most*sent {
		if p.rate == 0 {
			p.pushed, p.since = push, from.At
		}
		p.rate, p.most, p.sent, p.lost = max(p.rate, rate), lost/sent, 0, 0
	}
	proven := p.most*p.sent >= many && p.lost < p.most/4*p.sent
	if !proven || rate < policedNear*p.rate {
		return 0
	}
	if p.near += s.At - from.At; !p.sure {
		return 0
	}
	was := p.near
	p.near = 0
	return was
}

const (
	leastDelay  = 100 * time.Microsecond // less is no delay
	delayGrowth = 1.1                    // from one class to the next
	delays      = 128                    // classes: the last one begins at 18 s
)

// histogram is how long delays held, by classes.
type histogram [delays]time.Duration

func (h *histogram) add(delay, held time.Duration) {
	class := 0
	if delay > leastDelay {
		class = 1 + int(math.Log(delay.Seconds()/leastDelay.Seconds())/math.Log(delayGrowth))
	}
	h[min(class, delays-1)] += held
}

// median returns the middle of the class that holds the median.
func (h *histogram) median() time.Duration {
	var all, sum time.Duration
	for _, held := range h {
		all += held
	}
	for class, held := range h {
		if sum += held; sum*2 > all && class > 0 {
			return seconds(leastDelay.Seconds() * math.Pow(delayGrowth, float64(class)-0.5))
		}
		if sum*2 > all {
			break
		}
	}
	return 0
}
