package client

import (
	"github.com/fxfer/fxfer/internal/pace"
)

// Throttle is a rate limit that can be changed while transfers run under it, which share it. The zero Throttle is none. It is safe for
// concurrent use.
type Throttle struct {
	pacer pace.Pacer
	limit pace.Bucket
}

// NewThrottle returns a limit of so many bit/s; 0 is none.
func NewThrottle(bitsPerSecond int64) *Throttle {
	t := &Throttle{}
	t.Set(bitsPerSecond)
	return t
}

// Set changes the limit to so many bit/s, 0 for none, from the next few kilobytes on. What the kernel has already been given still goes out.
func (t *Throttle) Set(bitsPerSecond int64) { t.pacer.SetRate(&t.limit, bitsPerSecond) }

// Rate is the limit in bit/s, 0 if there is none.
func (t *Throttle) Rate() int64 { return t.limit.Rate() }

// throttle is the limit of what is sent.
func (o *Options) throttle() *Throttle {
	if o.Throttle != nil {
		return o.Throttle
	}
	return NewThrottle(o.RateLimit)
}
