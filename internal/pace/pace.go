// Package pace holds what sessions send or receive to rates that they share, fairly.
package pace

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// minStep and maxStep bound what a Flow is let through at a time, in bytes: small enough not to be a burst, large enough for few
	// system calls. Between them it is what passes in stepTime.
	minStep  = 32 << 10
	maxStep  = 256 << 10
	stepTime = 2 * time.Millisecond
	// burstTime is how long a Bucket fills up while nobody takes from it: more than a timer is late on a busy host, where 20 ms lost 5 to 20 % of 100 Mbit/s.
	burstTime = 100 * time.Millisecond
	// credit bounds, in bytes, how far a Flow that was held back elsewhere may fall behind the others and still catch up.
	credit = 256 << 10
)

// Pacer lets flows through. Of those that wait for the same bucket, the one goes first that has had the least of it, so that each gets the
// same share unless another of its buckets holds it to less; what that leaves is the others'. The zero Pacer is ready. Its methods and
// those of its flows and buckets may be called concurrently.
type Pacer struct {
	mu      sync.Mutex
	waiting []*Flow // with requests
	turns   uint64
	timer   *time.Timer
}

// Bucket is a rate that flows of one Pacer share.
type Bucket struct {
	rate atomic.Int64 // bytes a second, 0 is no limit; set with the pacer's lock held

	// Guarded by the pacer's lock.
	tokens float64 // bytes, less than 0 after a step that was larger than what was there
	at     time.Time
	clock  float64 // what the flow that was let through last had had, bytes
}

// Flow is one session's part in a Pacer.
type Flow struct {
	pacer   *Pacer
	buckets []*Bucket

	// Guarded by the pacer's lock.
	queue []*request // oldest first
	had   []float64  // of each bucket, bytes
	turn  uint64     // when it was let through last
}

type request struct {
	bytes   int
	granted chan struct{}
}

// Flow makes a flow through buckets. In all flows of a Pacer those of one kind have the same place, the more special behind the more
// general ones.
func (p *Pacer) Flow(buckets ...*Bucket) *Flow {
	return &Flow{pacer: p, buckets: buckets, had: make([]float64, len(buckets))}
}

// SetRate changes the rate of a bucket, in bit/s; 0 is no limit. Those that wait are let through by the new one.
func (p *Pacer) SetRate(b *Bucket, bitsPerSecond int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	b.fill(now)
	b.rate.Store(max(0, (bitsPerSecond+7)/8))
	b.fill(now)
	p.grantLocked(now)
}

// Rate is the rate in bit/s, 0 for none.
func (b *Bucket) Rate() int64 { return b.rate.Load() * 8 }

// fill adds what came since the last call.
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

// Limited tells whether a rate is set for any bucket of the flow.
func (f *Flow) Limited() bool { return f.rate() > 0 }

// rate is the least of its buckets, bytes a second; 0 is none.
func (f *Flow) rate() (least int64) {
	for _, b := range f.buckets {
		if r := b.rate.Load(); r > 0 && (least == 0 || r < least) {
			least = r
		}
	}
	return least
}

// Step is how many bytes to wait for at a time.
func (f *Flow) Step() int {
	return int(min(maxStep, max(minStep, float64(f.rate())*stepTime.Seconds())))
}

// Wait returns when n bytes, at most about Step, may pass, or when ctx is done.
func (f *Flow) Wait(ctx context.Context, n int) error {
	if err := ctx.Err(); err != nil || !f.Limited() || n <= 0 {
		return err
	}
	p := f.pacer
	r := &request{bytes: n, granted: make(chan struct{})}
	p.mu.Lock()
	if len(f.queue) == 0 {
		p.waiting = append(p.waiting, f)
	}
	f.queue = append(f.queue, r)
	p.grantLocked(time.Now())
	p.mu.Unlock()
	select {
	case <-r.granted:
		return nil
	case <-ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		for i, q := range f.queue {
			if q == r {
				p.dropLocked(f, i)
				break
			}
		}
		return ctx.Err()
	}
}

// dropLocked takes a request away.
func (p *Pacer) dropLocked(f *Flow, i int) {
	f.queue = append(f.queue[:i], f.queue[i+1:]...)
	if len(f.queue) > 0 {
		return
	}
	for i, w := range p.waiting {
		if w == f {
			p.waiting = append(p.waiting[:i], p.waiting[i+1:]...)
			break
		}
	}
}

// grantLocked lets through whoever may pass by now, and comes again when the next one may.
func (p *Pacer) grantLocked(now time.Time) {
	for {
		var next *Flow
		soonest := time.Duration(math.MaxInt64)
		for _, f := range p.waiting {
			if wait := f.wait(now); wait > 0 {
				soonest = min(soonest, wait)
			} else if next == nil || f.before(next) {
				next = f
			}
		}
		if next == nil {
			if len(p.waiting) > 0 {
				p.comeAgainLocked(soonest)
			}
			return
		}
		p.turns++
		next.turn = p.turns
		r := next.queue[0]
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

// start is what a flow has had of a bucket. Of what it did not use only the credit is left.
func (f *Flow) start(i int) float64 { return max(f.had[i], f.buckets[i].clock-credit) }

// before tells which of two flows goes first: start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996) by the most special bucket that
// both share.
func (f *Flow) before(g *Flow) bool {
	for i := min(len(f.buckets), len(g.buckets)) - 1; i >= 0; i-- {
		if f.buckets[i] != g.buckets[i] || f.buckets[i].rate.Load() == 0 {
			continue
		}
		if a, b := f.start(i), g.start(i); a != b {
			return a < b
		}
		break
	}
	return f.turn < g.turn
}

// wait is how long until all buckets of the flow have something.
func (f *Flow) wait(now time.Time) (longest time.Duration) {
	for _, b := range f.buckets {
		b.fill(now)
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
