// Package pace limits what sessions send or receive to rates that they share fairly.
package pace

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// minStep and maxStep limit how many bytes a Queue lets through at a time: few enough not to be
	// a burst, and enough to need few system calls. Between these, a step is what passes in
	// stepTime.
	minStep  = 32 << 10
	maxStep  = 256 << 10
	stepTime = 2 * time.Millisecond
	// burstTime is how long a Bucket fills while nobody takes from it. It must be longer than
	// timers are late on a busy host: with 20 ms, 5 to 20 % of 100 Mbit/s were lost.
	burstTime = 100 * time.Millisecond
	// credit limits how many bytes a Queue may catch up on the others after it was held back by
	// another bucket.
	credit = 256 << 10
)

// Pacer shares rates among queues. Among those that wait for the same bucket, it serves the one
// that has had least of it. So each gets the same share, unless another of its buckets limits it to
// less; then the others get the rest. The zero Pacer is ready for use. The methods of a Pacer and
// of its queues and buckets are safe for concurrent use.
type Pacer struct {
	mu      sync.Mutex // guards what follows, and fields of Bucket and Queue
	waiting []*Queue   // those with requests
	turns   uint64
	timer   *time.Timer
}

// Bucket is a rate that queues of one Pacer share.
type Bucket struct {
	rate atomic.Int64 // bytes/s, 0 is no limit; written with the pacer's lock held

	// Guarded by the pacer's lock.
	tokens float64 // bytes; negative after a step that took more than there was
	at     time.Time
	clock  float64 // bytes that the queue served last had had before
}

// Queue is one session's requests in a Pacer.
type Queue struct {
	pacer   *Pacer
	buckets []*Bucket

	// Guarded by the pacer's lock.
	requests []*request // oldest first
	had      []float64  // bytes from each bucket
	turn     uint64     // when it was served last
}

type request struct {
	bytes   int
	granted chan struct{}
}

// Queue returns a queue that takes from all these buckets. In all queues of a Pacer, buckets of the
// same kind have the same position, and more special ones follow more general ones.
func (p *Pacer) Queue(buckets ...*Bucket) *Queue {
	return &Queue{pacer: p, buckets: buckets, had: make([]float64, len(buckets))}
}

// SetRate changes the rate of a bucket, in bit/s; 0 is no limit. It holds for waiting requests,
// too.
func (p *Pacer) SetRate(b *Bucket, bitsPerSecond int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	b.fill(now)
	b.rate.Store(max(0, (bitsPerSecond+7)/8))
	b.fill(now)
	p.grantLocked(now)
}

// Rate returns the rate in bit/s; 0 is no limit.
func (b *Bucket) Rate() int64 { return b.rate.Load() * 8 }

// fill adds the tokens since the last call.
func (b *Bucket) fill(now time.Time) {
	rate := float64(b.rate.Load())
	if rate == 0 {
		b.tokens, b.at = 0, now
		return
	}
	burst := max(minStep, rate*burstTime.Seconds())
	b.tokens = min(burst, b.tokens+rate*now.Sub(b.at).Seconds())
	b.at = now
}

// Limited reports whether any bucket of the queue has a rate.
func (q *Queue) Limited() bool { return q.rate() > 0 }

// rate returns the least rate of the buckets in bytes/s; 0 is no limit.
func (q *Queue) rate() (least int64) {
	for _, b := range q.buckets {
		if r := b.rate.Load(); r > 0 && (least == 0 || r < least) {
			least = r
		}
	}
	return least
}

// Step returns how many bytes to wait for at a time.
func (q *Queue) Step() int {
	return int(min(maxStep, max(minStep, float64(q.rate())*stepTime.Seconds())))
}

// Wait returns when n bytes may pass, or when ctx is done. n is at most about Step.
func (q *Queue) Wait(ctx context.Context, n int) error {
	if err := ctx.Err(); err != nil || !q.Limited() || n <= 0 {
		return err
	}
	p := q.pacer
	r := &request{bytes: n, granted: make(chan struct{})}
	p.mu.Lock()
	if len(q.requests) == 0 {
		p.waiting = append(p.waiting, q)
	}
	q.requests = append(q.requests, r)
	p.grantLocked(time.Now())
	p.mu.Unlock()
	select {
	case <-r.granted:
		return nil
	case <-ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		for i, waiting := range q.requests {
			if waiting == r {
				p.dropLocked(q, i)
				break
			}
		}
		return ctx.Err()
	}
}

// dropLocked removes a request.
func (p *Pacer) dropLocked(q *Queue, i int) {
	q.requests = append(q.requests[:i], q.requests[i+1:]...)
	if len(q.requests) > 0 {
		return
	}
	for i, w := range p.waiting {
		if w == q {
			p.waiting = append(p.waiting[:i], p.waiting[i+1:]...)
			break
		}
	}
}

// grantLocked serves all requests that may pass now, and sets the timer for the next one.
func (p *Pacer) grantLocked(now time.Time) {
	for {
		var next *Queue
		soonest := time.Duration(math.MaxInt64)
		for _, q := range p.waiting {
			if wait := q.wait(now); wait > 0 {
				soonest = min(soonest, wait)
			} else if next == nil || q.before(next) {
				next = q
			}
		}
		if next == nil {
			if len(p.waiting) > 0 {
				p.setTimerLocked(soonest)
			}
			return
		}
		p.turns++
		next.turn = p.turns
		r := next.requests[0]
		for i, b := range next.buckets {
			if b.rate.Load() > 0 {
				b.tokens -= float64(r.bytes)
			}
			start := next.start(i)
			next.had[i], b.clock = start+float64(r.bytes), max(b.clock, start)
		}
		p.dropLocked(next, 0)
		close(r.granted)
	}
}

// start returns how many bytes a queue has had from a bucket. It limits what the queue can catch up
// on to credit.
func (q *Queue) start(i int) float64 { return max(q.had[i], q.buckets[i].clock-credit) }

// before reports whether q is served before other: start-time fair queueing (Goyal, Vin, Cheng,
// SIGCOMM 1996) for the most special bucket that both share.
func (q *Queue) before(other *Queue) bool {
	for i := min(len(q.buckets), len(other.buckets)) - 1; i >= 0; i-- {
		if q.buckets[i] != other.buckets[i] || q.buckets[i].rate.Load() == 0 {
			continue
		}
		if a, b := q.start(i), other.start(i); a != b {
			return a < b
		}
		break
	}
	return q.turn < other.turn
}

// wait returns how long it takes until all buckets of the queue have tokens.
func (q *Queue) wait(now time.Time) (longest time.Duration) {
	for _, b := range q.buckets {
		b.fill(now)
		if b.tokens < 0 {
			longest = max(longest, time.Duration(-b.tokens/float64(b.rate.Load())*float64(time.Second))+1)
		}
	}
	return longest
}

func (p *Pacer) setTimerLocked(after time.Duration) {
	if p.timer != nil {
		p.timer.Reset(after)
		return
	}
	p.timer = time.AfterFunc(after, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.grantLocked(time.Now())
	})
}
