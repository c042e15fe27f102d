package quic

import (
	"math"
	"sync"
	"time"
)

// pacing holds a stream to a rate. quic-go asks it before each packet that carries new data of the
// stream. So packets are full, and a new rate applies in the middle of a Write. The zero pacing has
// no bound.
type pacing struct {
	mu       sync.Mutex    // guards what follows
	rate     float64       // bytes/s, 0 is no bound
	span     time.Duration // that a step takes
	credit   float64       // bytes that may leave
	step     float64       // of it, what leaves before the next wait
	at       time.Time     // of credit
	deadline time.Time     // of writes, zero is none
	changed  chan struct{} // closed when a wait must look again; nil while nobody waits
}

const (
	// A step is what leaves at once. It takes stepShare of the round trip at the rate of the stream: the
	// steps of all streams may leave at the same moment, and a short path has a short queue. Timers are
	// no finer than leastSpan.
	stepShare = 5
	leastSpan = time.Millisecond
	mostSpan  = 2 * time.Millisecond
	// train is what quic-go hands to the kernel at once, bytes (MaxLargePacketBufferSize in quic-go).
	// A step that is longer consists of whole trains.
	train = 14 * mss
	// leastPaced and mostPaced bound a step, in bytes.
	leastPaced = 2 * mss
	mostPaced  = 3 * train
	// burstSpans is for how many spans a stream that writes nothing saves up its rate.
	burstSpans = 2
	// lateSpans is how many spans of the time that a timer was late a stream catches up on.
	lateSpans = 2.5
)

// set changes the rate, in bytes/s, on a path of an RTT; +Inf is no bound. It also applies to a step that
// waits.
func (p *pacing) set(rate float64, rtt time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fillLocked(time.Now(), burstSpans)
	free := p.rate == 0
	p.span = min(max(rtt/stepShare, leastSpan), mostSpan)
	p.rate = max(rate, 1)
	if free {
		p.credit = p.stepLocked()
	}
	if math.IsInf(rate, 1) {
		p.rate = 0
	}
	p.wakeLocked()
}

// until sets the time at which waits end, in any case; zero is never.
func (p *pacing) until(deadline time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deadline = deadline
	p.wakeLocked()
}

func (p *pacing) wakeLocked() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// begin reports whether there is a rate. It begins a step with what may leave now.
func (p *pacing) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rate == 0 {
		return false
	}
	p.fillLocked(time.Now(), burstSpans)
	p.step = p.credit
	if p.step > train {
		p.step = math.Floor(p.step/train) * train
	}
	return true
}

// waits reports whether a step waits now.
func (p *pacing) waits() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed != nil
}

// grant returns how many bytes of a packet may leave now: all, or none when the step has left. A
// step is rounded to whole packets.
func (p *pacing) grant(packet int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rate == 0 {
		return packet
	}
	if p.step < float64(packet)/2 {
		return 0
	}
	p.step -= float64(packet)
	p.credit -= float64(packet)
	return packet
}

// wait returns when the next step may leave, at the deadline, or when gone is closed.
func (p *pacing) wait(gone <-chan struct{}) {
	for {
		delay, changed := p.next(time.Now())
		if delay <= 0 {
			return
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-changed:
		case <-gone:
			p.giveUp()
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// next returns how long the next step has to wait, unless the channel is closed before. Nothing
// waits any more if that is not positive.
func (p *pacing) next(now time.Time) (delay time.Duration, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	spans := float64(burstSpans)
	if p.changed != nil { // the timer may have been late
		spans = lateSpans
	}
	p.fillLocked(now, spans)
	if missing := p.stepLocked() - p.credit; p.rate > 0 && missing > 0 {
		delay = time.Duration(missing/p.rate*float64(time.Second)) + 1
	}
	if !p.deadline.IsZero() {
		delay = min(delay, p.deadline.Sub(now))
	}
	switch {
	case delay <= 0:
		p.changed = nil
	case p.changed == nil:
		p.changed = make(chan struct{})
	}
	return delay, p.changed
}

// giveUp ends a wait whose step will not leave.
func (p *pacing) giveUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed = nil
}

func (p *pacing) stepLocked() float64 {
	return min(max(p.rate*p.span.Seconds(), leastPaced), mostPaced)
}

// fillLocked adds the credit since the last call, up to that of some spans.
func (p *pacing) fillLocked(now time.Time, spans float64) {
	passed := now.Sub(p.at).Seconds()
	p.at = now
	most := max(spans*p.rate*p.span.Seconds(), p.stepLocked())
	p.credit = max(p.credit, min(p.credit+p.rate*passed, most))
}
