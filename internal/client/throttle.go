package client

import (
	"github.com/fxfer/fxfer/internal/pace"
)

// Throttle is a rate limit that can be changed while transfers run. Transfers with the same
// Throttle share its rate in what this host sends. The zero Throttle is no limit. It is safe for
// concurrent use.
type Throttle struct {
	pacer pace.Pacer
	limit pace.Bucket
}

// NewThrottle returns a limit in bit/s; 0 is no limit.
func NewThrottle(bitsPerSecond int64) *Throttle {
	t := &Throttle{}
	t.Set(bitsPerSecond)
	return t
}

// Set changes the limit, in bit/s; 0 is none. It takes effect within a few kilobytes, at a server that
// sends within a second. Data that the kernel has taken before still goes out.
func (t *Throttle) Set(bitsPerSecond int64) { t.pacer.SetRate(&t.limit, bitsPerSecond) }

// Rate is the limit in bit/s, 0 if there is none.
func (t *Throttle) Rate() int64 { return t.limit.Rate() }

// Passed is how many bytes have passed while there was a limit.
func (t *Throttle) Passed() int64 { return t.limit.Passed() }

// queue paces the data streams of a session.
func (t *Throttle) queue() *pace.Queue { return t.pacer.NewQueue(&t.limit) }

// throttle limits a transfer.
func (c *Client) throttle(call *Transfer) *Throttle {
	if call.Throttle != nil {
		return call.Throttle
	}
	return NewThrottle(c.opt.RateLimit)
}
