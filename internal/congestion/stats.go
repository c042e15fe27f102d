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
	Policed  time.Duration // it stayed below a rate beyond which packets are lost without a queue
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
	start  bare // in the start
	bare   bare // after it
	base   time.Duration
	begun  time.Duration // when the session was in the start, the last time
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
		r.start, r.bare, r.stats.Policed = bare{}, bare{}, 0
	}
	r.base = c.model.base
	if !others && c.model.base > 0 {
		if d.State == Startup || d.State == Drain {
			r.begun = s.At
		}
		if s.At-r.begun <= 2*s.RTT+leastWindow { // a loss shows after a round trip
			r.start.add(c, s, lost, dt)
		} else {
			r.bare.add(c, s, lost, dt)
		}
		if c.loss.policed > 0 && s.At < c.loss.ceilUntil && r.unqueued(c) {
			r.stats.Policed += dt
		}
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

// bare measures whether a path has no queue. A session that tries for more than the line carries sees a
// drop-tail queue for some of the time, and loses packets in it. A policer has no queue. A busy host makes the
// RTT longer now and then, but not just when something is lost.
type bare struct {
	all, above   time.Duration // how long that was measured, and for how long of it the queue was above half of the aim
	lost, behind float64       // bytes, and their sum weighted with the longest queue at about that time, bytes × s
}

// add takes a sample of c, before which that much was lost in that time.
func (b *bare) add(c *Controller, s Sample, lost int64, dt time.Duration) {
	b.all += dt
	if c.model.queue > c.least(s)/2 {
		b.above += dt
	}
	b.lost += float64(lost)
	b.behind += float64(lost) * c.model.longest(s.At-2*s.RTT).Seconds()
}

// unqueued reports whether the path has no queue. In the start, a session may make one before a policer, by what that
// lets through at once. Once enough was lost later, that shows it, too.
func (r *Recorder) unqueued(c *Controller) bool {
	all := bare{
		all: r.start.all + r.bare.all, above: r.start.above + r.bare.above,
		lost: r.start.lost + r.bare.lost, behind: r.start.behind + r.bare.behind,
	}
	return all.holds(c) || r.bare.lost >= float64(tellingLosses*c.last.MSS) && r.bare.holds(c)
}

// holds reports whether there is none.
func (b *bare) holds(c *Controller) bool {
	return b.above < b.all/4 && b.behind <= b.lost*c.model.base.Seconds()/10
}

// leastQueue is the least delay that is clearly a queue.
const leastQueue = time.Millisecond

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
