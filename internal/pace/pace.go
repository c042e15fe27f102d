// Package pace holds sessions to rates that they share, and divides each rate fairly.
package pace

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// minStep and maxStep bound the bytes that a Queue gets at a time: few enough not to be a
	// burst, enough for few system calls. Between them a step is what passes in stepTime.
	minStep  = 32 << 10
	maxStep  = 256 << 10
	stepTime = 2 * time.Millisecond
	// burstTime is how long an unused Bucket fills up. It must be more than the delay of a timer on
	// a busy host: 20 ms lost 5 to 20 % of 100 Mbit/s.
	burstTime = 100 * time.Millisecond
	// credit bounds, in bytes, how far a Queue that was held back elsewhere may fall behind the
	// others and still catch up.
	credit = 256 << 10
)

// Pacer divides the rates of buckets among queues. If several queues wait for the same bucket, the
// one that has had the least of it is next. So all get the same part of a rate, except queues that
// another bucket holds to less: the others divide what those leave. The zero Pacer is ready. Its
// methods, and those of its queues and buckets, may be called concurrently.
type Pacer struct {
	mu      sync.Mutex // guards all fields of the pacer, and those of queues and buckets as marked
	waiting []*Queue   // with requests
	turns   uint64
	timer   *time.Timer
}

// Bucket is a token bucket: a rate that queues of one Pacer share.
type Bucket struct {
	rate   atomic.Int64 // bytes a second, 0 is no limit; written with the pacer's lock held
	passed atomic.Int64 // bytes, while there was a limit

	// Guarded by the pacer's lock.
	tokens float64 // bytes, negative after a step that was larger than the tokens left
	at     time.Time
	served float64 // bytes that the queue served last had had before that
}

// Queue is where the streams of one session wait until their bytes may pass.
type Queue struct {
	pacer   *Pacer
	buckets []*Bucket

	// Guarded by the pacer's lock.
	requests []*request // oldest first
	had      []float64  // from each bucket, bytes
	turn     uint64     // when it was served last
}

type request struct {
	bytes   int
	granted chan struct{}
}

// NewQueue makes a queue whose bytes pass all given buckets. All queues of a Pacer list buckets of
// the same kind in the same place, and general ones before special ones.
func (p *Pacer) NewQueue(buckets ...*Bucket) *Queue {
	return &Queue{pacer: p, buckets: buckets, had: make([]float64, len(buckets))}
}

// SetRate changes the rate of a bucket, in bit/s. 0 is no limit. The new rate also applies to
// requests that already wait.
func (p *Pacer) SetRate(b *Bucket, bitsPerSecond int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	b.fillLocked(now)
	b.rate.Store(max(0, (bitsPerSecond+7)/8))
	b.fillLocked(now)
	p.grantLocked(now)
}

// Rate is the rate in bit/s, 0 for no limit.
func (b *Bucket) Rate() int64 { return b.rate.Load() * 8 }

// Passed is how many bytes have passed while there was a limit.
func (b *Bucket) Passed() int64 { return b.passed.Load() }

// fillLocked adds the tokens since the last call.
func (b *Bucket) fillLocked(now time.Time) {
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

// rate is the least rate of its buckets, in bytes a second. 0 is no limit.
func (q *Queue) rate() (least int64) {
	for _, b := range q.buckets {
		if r := b.rate.Load(); r > 0 && (least == 0 || r < least) {
			least = r
		}
	}
	return least
}

// Step is how many bytes to wait for at a time.
func (q *Queue) Step() int {
	return int(min(maxStep, max(minStep, float64(q.rate())*stepTime.Seconds())))
}

// Wait returns when n bytes may pass, or when ctx is done. n should not be much more than Step.
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
		for i, other := range q.requests {
			if other == r {
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

// grantLocked grants all requests that may pass by now, and sets a timer for the next one.
func (p *Pacer) grantLocked(now time.Time) {
	for {
		next, soonest := p.nextLocked(now)
		if next == nil {
			if len(p.waiting) > 0 {
				p.comeAgainLocked(soonest)
			}
			return
		}
		p.turns++
		next.turn = p.turns
		r := next.requests[0]
		for i, b := range next.buckets {
			if b.rate.Load() > 0 {
				b.tokens -= float64(r.bytes)
				b.passed.Add(int64(r.bytes))
			}
			start := next.startLocked(i)
			next.had[i], b.served = start+float64(r.bytes), max(b.served, start)
		}
		p.dropLocked(next, 0)
		close(r.granted)
	}
}

// nextLocked returns the queue to serve now, or nil and the time until one may be served.
func (p *Pacer) nextLocked(now time.Time) (next *Queue, soonest time.Duration) {
	soonest = math.MaxInt64
	for _, q := range p.waiting {
		if wait := q.waitLocked(now); wait > 0 {
			soonest = min(soonest, wait)
		} else if next == nil || q.beforeLocked(next) {
			next = q
		}
	}
	return next, soonest
}

// startLocked is what the queue has had of a bucket. It loses what it did not use, except for the
// credit.
func (q *Queue) startLocked(i int) float64 { return max(q.had[i], q.buckets[i].served-credit) }

// beforeLocked reports whether q is served before other: start-time fair queueing (Goyal, Vin,
// Cheng, SIGCOMM 1996) by the most special bucket that both share.
func (q *Queue) beforeLocked(other *Queue) bool {
	for i := min(len(q.buckets), len(other.buckets)) - 1; i >= 0; i-- {
		if q.buckets[i] != other.buckets[i] || q.buckets[i].rate.Load() == 0 {
			continue
		}
		if a, b := q.startLocked(i), other.startLocked(i); a != b {
			return a < b
		}
		break
	}
	return q.turn < other.turn
}

// waitLocked is how long it takes until all buckets of the queue have tokens.
func (q *Queue) waitLocked(now time.Time) (longest time.Duration) {
	for _, b := range q.buckets {
		b.fillLocked(now)
		if b.tokens < 0 {
			longest = max(longest, time.Duration(-b.tokens/float64(b.rate.Load())*float64(time.Second))+1)
		}
	}
	return longest
}

func (p *Pacer) comeAgainLocked(after time.Duration) {
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
