package congestion

import (
	"math"
	"time"
)

// Stats sums up what a Controller met and did since its start.
type Stats struct {
	Priority Priority      // the last one
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
	before Sample
	long   time.Duration // when the queue was clearly longer than its aim, the last time
	rest   [3]int64      // bytes lost that make no segment yet, as LostOwn, LostOthers and LostLine
}

// Add takes what c has just decided on a sample.
func (r *Recorder) Add(c *Controller, s Sample, d Decision) {
	dt := s.At - r.before.At
	lost := max(0, s.Lost-r.before.Lost)
	r.before = s
	others := d.State == Compete || d.State == Yield
	switch d.State {
	case Compete:
		r.stats.Shared += dt
	case Yield:
		r.stats.Yielded += dt
	}
	if queue := c.model.queue; c.model.base > 0 && !others {
		r.delays.add(queue, dt)
		r.stats.QueueMost = max(r.stats.QueueMost, queue)
		if queue > 2*c.aim(s) {
			r.long = s.At
		}
	}
	switch { // a loss shows after a round trip
	case others:
		r.lose(&r.stats.LostOthers, &r.rest[1], lost, s.MSS)
	case r.long > 0 && s.At-r.long <= 2*s.RTT+leastWindow:
		r.lose(&r.stats.LostOwn, &r.rest[0], lost, s.MSS)
	default:
		r.lose(&r.stats.LostLine, &r.rest[2], lost, s.MSS)
	}
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
	s.Priority = c.priority
	s.Queue = min(r.delays.median(), s.QueueMost)
	return s
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
