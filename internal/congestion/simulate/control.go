package simulate

import (
	"math"
	"slices"
)

// control is the congestion control of a stream. It counts in packets and seconds.
type control interface {
	window() float64        // packets that may be in flight
	pace() float64          // packets/s; +Inf is none
	acked(a ack)            // packets were acknowledged
	lost(now, sent float64) // a packet that was sent then was lost
	expired(now float64)    // nothing was acknowledged for long
}

// ack is what a stream learns by one acknowledgement.
type ack struct {
	now      float64
	n        float64 // packets
	rtt      float64
	sent     float64 // when they were sent
	rate     float64 // of delivery, packets/s
	round    bool    // the first of those that were sent after the last round began
	inflight float64 // packets, before it
}

// initialWindow is that of RFC 6928, packets.
const initialWindow = 10

// reno is RFC 5681, with a window that grows in avoidance as avoid says.
type reno struct {
	cwnd, threshold float64
	reduced         float64 // when it was last reduced
	hystart         hystart
	avoid           func(a ack)
	beta            float64
	reduce          func()
}

func newReno(cwnd float64) *reno {
	r := &reno{cwnd: cwnd, threshold: math.Inf(1), reduced: math.Inf(-1), beta: 0.5}
	r.hystart.base = math.Inf(1)
	r.avoid = func(a ack) { r.cwnd += a.n / r.cwnd }
	r.reduce = func() {}
	return r
}

func (r *reno) window() float64 { return r.cwnd }
func (r *reno) pace() float64   { return math.Inf(1) }

func (r *reno) acked(a ack) {
	late := r.hystart.late(a)
	if a.inflight+a.n < r.cwnd/2 || a.sent < r.reduced {
		return // something else limits it, or it recovers
	}
	if r.cwnd >= r.threshold {
		if a.inflight+a.n+2 >= r.cwnd {
			r.avoid(a)
		}
		return
	}
	r.cwnd += a.n
	if late && r.cwnd >= 16 {
		r.threshold = r.cwnd
	}
}

// hystart tells when slow start has found the rate of the line, as Linux does
// (net/ipv4/tcp_cubic.c).
type hystart struct {
	base    float64 // least RTT
	began   float64 // of the round
	last    float64 // acknowledgement of those that followed each other closely in it
	least   float64 // RTT in it
	samples int     // of the RTT in it
}

const (
	hystartGap     = 0.002 // between acknowledgements that follow each other closely, s
	hystartSamples = 8     // of the RTT that tell the delay of a round
)

// late reports whether acknowledgements have come one after the other for half of the path's RTT, or all
// of a round late.
func (h *hystart) late(a ack) bool {
	h.base = min(h.base, a.rtt)
	if a.round {
		h.began, h.last, h.least, h.samples = a.now, a.now, math.Inf(1), 0
	}
	if a.now-h.last <= hystartGap {
		h.last = a.now
	}
	h.least = min(h.least, a.rtt)
	h.samples++
	delayed := h.samples > hystartSamples && h.least > h.base+min(max(h.base/8, 0.004), 0.016)
	return h.last-h.began > h.base/2 || delayed
}

func (r *reno) lost(now, sent float64) {
	if sent < r.reduced {
		return // in the same round trip
	}
	r.reduced = now
	r.reduce()
	r.cwnd = max(2, r.cwnd*r.beta)
	r.threshold = r.cwnd
}

func (r *reno) expired(now float64) {
	if now == r.reduced {
		return
	}
	r.reduced = now
	r.reduce()
	r.threshold = max(2, min(r.threshold, r.cwnd*r.beta))
	r.cwnd = 1
}

// newCubic is RFC 9438.
func newCubic(cwnd float64) *reno {
	const (
		c     = 0.4
		beta  = 0.7
		alpha = 3 * (1 - beta) / (1 + beta)
	)
	r := newReno(cwnd)
	r.beta = beta
	most := 0.0  // window before the last reduction
	epoch := 0.0 // begin of the growth; 0 is none
	k := 0.0     // time at which it reaches most
	friendly := 0.0
	lost := false
	r.reduce = func() {
		epoch, lost = 0, true
		if r.cwnd < most {
			most = r.cwnd * (1 + beta) / 2 // fast convergence
		} else {
			most = r.cwnd
		}
	}
	r.avoid = func(a ack) {
		if epoch == 0 {
			epoch, friendly = a.now, r.cwnd
			k = 0
			if r.cwnd < most {
				k = math.Cbrt((most - r.cwnd) / c)
			} else {
				most = r.cwnd
			}
		}
		friendly += alpha * a.n / r.cwnd
		d := a.now - epoch + a.rtt - k
		target := min(max(most+c*d*d*d, r.cwnd), 1.5*r.cwnd)
		if !lost { // as Linux does until it knows more
			target = max(target, 1.05*r.cwnd)
		}
		r.cwnd = max(r.cwnd+a.n*(target-r.cwnd)/r.cwnd, friendly)
	}
	return r
}

// bbr is BBR, version 1 (draft-cardwell-iccrg-bbr-congestion-control-00).
type bbr struct {
	cwnd  float64
	state int
	gain  float64

	rates  [10]float64 // largest of each of the last rounds
	most   float64     // of them
	rounds int
	best   float64 // of the growth at the start
	flat   int     // rounds without growth

	base     float64 // least RTT of late
	baseAt   float64
	phase    int
	phaseAt  float64
	probeEnd float64
	unfilled bool // it probes the RTT in the middle of its start, and goes on with that
}

const (
	bbrStartup = iota
	bbrDrain
	bbrCruise
	bbrProbeRTT

	bbrHigh = 2.89
)

func newBBR(cwnd float64) *bbr {
	return &bbr{cwnd: cwnd, gain: bbrHigh, base: math.Inf(1)}
}

func (b *bbr) pace() float64 {
	if b.most > 0 {
		return b.gain * b.most
	}
	return math.Inf(1)
}

func (b *bbr) window() float64 {
	if b.state == bbrProbeRTT {
		return 4
	}
	return b.cwnd
}

func (b *bbr) lost(_, _ float64) {}
func (b *bbr) expired(float64)   { b.cwnd = 1 }

func (b *bbr) acked(a ack) {
	if a.round {
		b.rounds++
		b.rates[b.rounds%len(b.rates)] = 0
		b.most = slices.Max(b.rates[:])
	}
	if i := b.rounds % len(b.rates); a.rate > b.rates[i] {
		b.rates[i] = a.rate
		b.most = max(b.most, a.rate)
	}
	fresh := math.IsInf(b.base, 1)
	renew := !fresh && a.now > b.baseAt+10
	if a.rtt <= b.base || renew {
		b.base, b.baseAt = a.rtt, a.now
	}
	bdp := b.most * b.base
	switch b.state {
	case bbrStartup:
		b.start(a)
	case bbrDrain:
		if a.inflight <= bdp {
			b.state, b.phase, b.phaseAt, b.gain = bbrCruise, 2, a.now, 1
		}
	case bbrCruise:
		b.cycle(a, bdp)
	case bbrProbeRTT:
		if b.probeEnd == 0 && a.inflight <= 4+a.n {
			b.probeEnd = a.now + max(0.2, b.base)
		}
		switch {
		case b.probeEnd == 0 || a.now <= b.probeEnd:
		case b.unfilled:
			b.state, b.gain, b.flat = bbrStartup, bbrHigh, -2 // a probe says nothing about the rate
		default:
			b.state, b.phase, b.phaseAt, b.gain = bbrCruise, 2, a.now, 1
		}
	}
	if renew && b.state != bbrProbeRTT {
		b.unfilled = b.state == bbrStartup
		b.state, b.gain, b.probeEnd = bbrProbeRTT, 1, 0
	}
	switch target := max(4, 2*bdp+3); b.state {
	case bbrStartup:
		if b.cwnd < bbrHigh*bdp || b.rounds < 3 {
			b.cwnd += a.n
		}
	default:
		b.cwnd = min(b.cwnd+a.n, target)
	}
}

// start ends after three rounds in which the rate did not grow by a quarter.
func (b *bbr) start(a ack) {
	if !a.round {
		return
	}
	if b.most >= 1.25*b.best {
		b.best, b.flat = b.most, 0
	} else if b.flat++; b.flat >= 3 {
		b.state, b.gain = bbrDrain, 1/bbrHigh
	}
}

var bbrGains = [8]float64{1.25, 0.75, 1, 1, 1, 1, 1, 1}

func (b *bbr) cycle(a ack, bdp float64) {
	over := a.now-b.phaseAt > b.base
	switch b.gain {
	case 1.25:
		over = over && a.inflight >= 1.25*bdp || a.now-b.phaseAt > 3*b.base
	case 0.75:
		over = over || a.inflight <= bdp
	}
	if over {
		b.phase = (b.phase + 1) % len(bbrGains)
		b.phaseAt, b.gain = a.now, bbrGains[b.phase]
	}
}

// blind sends whatever happens, as UDP does.
type blind struct{}

func (blind) window() float64   { return math.Inf(1) }
func (blind) pace() float64     { return math.Inf(1) }
func (blind) acked(ack)         {}
func (blind) lost(_, _ float64) {}
func (blind) expired(float64)   {}
