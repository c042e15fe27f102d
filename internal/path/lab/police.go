package lab

import "time"

// policeUDPBurst is how much policed UDP may come at once, as time at its rate.
const policeUDPBurst = 10 * time.Millisecond

// bucket is a token bucket that fills at rate and holds burst bytes. It lets packets pass or
// drops them: none waits. Without a rate, all pass.
type bucket struct {
	rate  int64   // bit/s
	burst float64 // bytes on the wire
	full  int64   // when it will be full, if nothing more passes
}

// configure keeps what the bucket holds, as far as it fits.
func (b *bucket) configure(rate int64, burst float64) { b.rate, b.burst = rate, burst }

// pass returns how many of the first n segments of t pass at time now. The first packet passes a
// full bucket, even if it is larger than the bucket.
func (b *bucket) pass(now int64, t *train, n int) int {
	if b.rate == 0 {
		return n
	}
	one := float64(t.wire(0, 1))
	burst := max(b.burst, one)
	b.full = max(b.full, now)
	tokens := burst - float64(b.full-now)*float64(b.rate)/8e9
	if float64(t.wire(0, n)) > tokens {
		n = max(0, min(n-1, int(tokens/one)))
	}
	b.full += t.wire(0, n) * 8e9 / b.rate
	return n
}
