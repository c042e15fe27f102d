package fxfer

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Throttle is a rate limit that can be changed while transfers run under it, which share it. It is safe for concurrent use.
type Throttle struct {
	now atomic.Pointer[pace]
}

// pace is a rate that holds until it is changed.
type pace struct {
	bits    int64         // a second; 0 is unlimited
	limiter *rate.Limiter // nil for unlimited
	changed chan struct{} // closed when another pace holds
}

// NewThrottle returns a limit of so many bit/s; 0 is none.
func NewThrottle(bitsPerSecond int64) *Throttle {
	t := &Throttle{}
	t.now.Store(newPace(bitsPerSecond))
	return t
}

func newPace(bitsPerSecond int64) *pace {
	p := &pace{bits: max(0, bitsPerSecond), changed: make(chan struct{})}
	if p.bits > 0 {
		p.limiter = rate.NewLimiter(rate.Limit(p.bits)/8, limitStep)
	}
	return p
}

// Set changes the limit to so many bit/s, 0 for none, from the next few kilobytes on. What the kernel has already been given still goes out.
func (t *Throttle) Set(bitsPerSecond int64) {
	if t.Rate() != max(0, bitsPerSecond) {
		close(t.now.Swap(newPace(bitsPerSecond)).changed)
	}
}

// Rate is the limit in bit/s, 0 if there is none.
func (t *Throttle) Rate() int64 { return t.now.Load().bits }

// unlimited tells whether nothing is held back now.
func (t *Throttle) unlimited() bool { return t.now.Load().limiter == nil }

// wait waits until n bytes, at most limitStep, may be written. Whoever waits when the limit changes begins anew under the new one.
func (t *Throttle) wait(ctx context.Context, n int) error {
	for {
		p := t.now.Load()
		if p.limiter == nil {
			return ctx.Err()
		}
		timer := time.NewTimer(p.limiter.ReserveN(time.Now(), n).Delay())
		select {
		case <-timer.C:
			return nil
		case <-p.changed:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// throttle is the limit of what is sent.
func (o *Options) throttle() *Throttle {
	if o.Throttle != nil {
		return o.Throttle
	}
	return NewThrottle(o.RateLimit)
}
