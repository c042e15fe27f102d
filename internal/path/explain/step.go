package explain

import (
	"slices"
	"time"

	"github.com/fxfer/fxfer/internal/path/diagnose"
)

// step ends the present tenth of a second of an end if it is over. A longer time without packets is
// one step, too.
func (c *traffic) step(e *end, at time.Duration) {
	if !c.kept {
		e.forget(at)
		return
	}
	if _, begun := e.samples.Last(); !begun {
		e.samples.Add(e.sample(e.stepAt, c))
	}
	if at-e.stepAt >= 2*step {
		c.finish(e, e.stepAt+step)
	}
	if at-e.stepAt >= step {
		c.finish(e, at)
	}
}

// flush ends the last step.
func (c *traffic) flush(end time.Duration) {
	if !c.kept {
		return
	}
	for i := range c.ends {
		if e := &c.ends[i]; c.last > e.stepAt {
			c.finish(e, min(max(c.last, e.stepAt+step/2), max(end, c.last)))
		}
		c.ends[i].zeroWindowEnd(c.last)
	}
}

func (e *end) zeroWindowEnd(at time.Duration) {
	if e.zero {
		e.zero = false
		e.p.ZeroTime += at - e.zeroSince
	}
}

// forget starts a step anew while no samples are kept.
func (e *end) forget(at time.Duration) {
	if at-e.stepAt >= step {
		e.stepAt, e.clocked, e.sent, e.most, e.full, e.prompt = at, 0, 0, 0, false, 0
		e.count, e.gap = 0, 0
	}
}

const (
	clockedShare = 0.6 // of the bytes of a step that acknowledgements released
	promptShare  = 0.8 // of the bytes of a step that answered
	lossLasts    = time.Second
	fullSegments = 4 // less is no plateau
	smallGap     = 2 * time.Millisecond
	evenGaps     = 6 // times the mean
)

// finish judges a step and takes a sample.
func (c *traffic) finish(e *end, at time.Duration) {
	passed, rtt := at-e.stepAt, c.rtt(e)
	e.flying = e.most
	if !c.atSender(e) { // as much as comes in a round trip
		e.flying = int64(float64(e.sent) * rtt.Seconds() / max(rtt, passed).Seconds())
		window := diagnose.Socket{InFlight: e.flying, Window: e.window, MSS: c.segmentSize()}
		e.full = window.Windowed()
	}
	t := &e.sum
	if e.sent > 0 || e.inFlight() > 0 {
		t.Busy += passed
		t.Flying += passed
		t.RTTSum += int64(float64(rtt) * passed.Seconds())
	}
	if e.sent > 0 {
		e.answers = float64(e.prompt) >= promptShare*float64(e.sent)
	}
	closed := e.zero || e.full && diagnose.Narrowed(e.window, e.widest)
	if t.Retrans > e.resentAt {
		e.lostAt = at
	}
	lately := e.lostAt > 0 && at-e.lostAt < lossLasts
	waits := e.sent > 0 && (float64(e.clocked) >= clockedShare*float64(e.sent) || lately || !c.bare(e) && e.flows(passed))
	e.plateau.add(e.flying, t.Retrans, e.sent > 0)
	switch {
	case closed:
		t.Shut += passed
		t.Windowed += passed
	case e.full:
		t.Windowed += passed
	case e.answers:
		t.Answering += passed
	case waits && e.plateau.level() >= fullSegments*c.segmentSize() && c.bare(e):
		t.Buffered += passed
	case waits:
		t.Backlog += passed
	}
	e.resentAt = t.Retrans
	e.stepAt = at
	e.samples.Add(e.sample(at, c))
	e.clocked, e.sent, e.most, e.full, e.prompt = 0, 0, 0, false, 0
	e.count, e.gap = 0, 0
}

// flows reports whether data comes without gaps, as it does behind a full line.
func (e *end) flows(passed time.Duration) bool {
	return e.count > 1 && e.gap <= max(smallGap, evenGaps*passed/time.Duration(e.count))
}

// bare reports whether there is no queue on the path.
func (c *traffic) bare(e *end) bool {
	least := c.minRTT(e)
	return c.rtt(e)-least < max(time.Millisecond, least/5)
}

func (e *end) sample(at time.Duration, c *traffic) diagnose.Sample {
	s := e.sum
	s.At, s.Streams, s.Acked, s.InFlight, s.MSS = at, 1, e.acked, e.flying, c.segmentSize()
	s.SndWnd, s.RTT, s.MinRTT = e.widest, c.rtt(e), c.minRTT(e)
	if e.plateau.widest > 0 {
		s.SndBuf = e.plateau.widest / 2 * 3 // what a kernel counts for that payload
	}
	return s
}

// atSender reports whether the capture was made nearer to this sender than to its peer.
func (c *traffic) atSender(e *end) bool {
	if c.shaken == 3 {
		return 2*c.backOf(e) <= c.firstAck-c.syn
	}
	return e.minTo >= e.minBack
}

// rtt is the round trip of a sender's data.
func (c *traffic) rtt(e *end) time.Duration {
	switch {
	case e.rttTo == 0:
		return c.handshakeRTT()
	case c.atSender(e):
		return e.rttTo
	}
	return e.rttTo + e.rttBack
}

func (c *traffic) minRTT(e *end) time.Duration {
	switch {
	case e.minTo == 0:
		return c.handshakeRTT()
	case c.atSender(e):
		return least(e.minTo, c.handshakeRTT())
	}
	return least(e.minTo+e.minBack, c.handshakeRTT())
}

func (c *traffic) handshakeRTT() time.Duration {
	if c.shaken < 3 {
		return 0
	}
	return max(1, c.firstAck-c.syn)
}

// plateau finds an amount in flight that stays the same: something other than the network holds it
// there, since a congestion window grows until segments are lost.
type plateau struct {
	last    [8]int64 // in flight in the last steps
	n       int
	retrans int64
	widest  int64 // the last level
}

// flat is how far the steps of a plateau may lie apart, as a share.
const flat = 0.12

func (p *plateau) add(inFlight, retrans int64, moves bool) {
	if retrans != p.retrans || !moves {
		p.n, p.retrans = 0, retrans
		return
	}
	p.last[p.n%len(p.last)] = inFlight
	p.n++
	if l := p.level(); l > 0 {
		p.widest = l
	}
}

// level is what is in flight on the plateau, 0 if there is none.
func (p *plateau) level() int64 {
	if p.n < len(p.last) {
		return 0
	}
	low, high := slices.Min(p.last[:]), slices.Max(p.last[:])
	if float64(high-low) > flat*float64(high) {
		return 0
	}
	return high
}

// host is what the handshake says of a host.
func (e *end) host() diagnose.Host { return diagnose.Host{Name: e.addr.Addr().Unmap().String()} }

// packets sums up one direction.
func (c *traffic) packets(from, to *end) *Packets {
	p := from.p
	p.Opened, p.MSS = c.opened && c.shaken >= 2, c.segmentSize()
	p.ScaleFrom, p.ScaleTo = from.scale, to.scale
	p.SACK, p.Timestamps = from.sack && to.sack, from.stamp && to.stamp
	p.AtSender, p.RTT, p.Plateau = c.atSender(from), c.minRTT(from), from.plateau.widest
	if p.Plateau < fullSegments*p.MSS { // a few packets are no window
		p.Plateau = 0
	}
	if c.opened && from.first.over && from.fresh > from.first.bytes {
		p.FirstFlight = from.first.segments
	}
	return &p
}
