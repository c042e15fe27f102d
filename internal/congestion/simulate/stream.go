package simulate

import "math"

// stream is a connection. It counts in packets and seconds.
type stream struct {
	flow    *flow
	number  int // among all streams of the world
	control control
	bound   float64 // of the rate; +Inf is none
	cap     float64 // packets in flight that its socket's buffers allow
	left    float64 // packets that it may still send
	paused  bool

	credit    float64 // packets that its pace allows now
	inflight  float64
	srtt      float64
	deviation float64 // mean one, of the RTT (RFC 6298)
	least     float64 // RTT; 0 while unknown
	delivered float64
	known     float64 // when the last acknowledgement came
	earlier   float64 // when what it acknowledged was sent
	round     float64 // packets delivered when the round ends
	seen      float64 // packets delivered at the last sample
}

const (
	// trainTime is the time in s whose packets a kernel that does not pace sends at once: about a millisecond
	// (sk_pacing_shift) at 1.2 times the window in a round trip.
	trainTime = 1.2 / 1024
	// mostTrain is what fits into 64 KiB, packets.
	mostTrain = 44
)

// packets returns how many it sends in a step.
func (s *stream) packets(dt float64) int {
	rate := min(s.bound, s.control.pace())
	late := rate * s.flow.Late.Seconds()
	if s.paused {
		s.credit = 0
		if s.flow.Late > 0 && !math.IsInf(rate, 1) {
			s.credit = late
		}
		return 0
	}
	n := min(s.control.window(), s.cap) - s.inflight
	if s.inflight > s.cap-1 && s.control.window() > s.cap {
		s.flow.windowed += dt
	}
	if n < s.gathers() {
		return 0
	}
	if !math.IsInf(rate, 1) {
		s.credit = max(min(s.credit, late), min(s.credit+rate*dt, rate*dt+1))
		n = min(n, s.credit)
	}
	sent := int(max(0, min(n, s.left, s.flow.source)))
	s.credit = max(0, s.credit-float64(sent))
	s.left -= float64(sent)
	s.inflight += float64(sent)
	s.flow.source -= float64(sent)
	return sent
}

// gathers is for how many packets of room in its window a stream of a kernel that does not pace waits, until it
// sends them at once (Linux, tcp_tso_autosize and tcp_tso_should_defer). The acknowledgement of such a train
// releases the next one.
func (s *stream) gathers() float64 {
	if s.flow.Kind != Cubic && s.flow.Kind != Reno || s.srtt == 0 {
		return 0
	}
	window := min(s.control.window(), s.cap)
	return min(max(2, window/s.srtt*trainTime), mostTrain, window/3)
}

// train of n packets, sent at that time.
func (s *stream) train(at float64, n int) train {
	if s.known == 0 {
		s.known, s.earlier = at, at
	}
	return train{
		stream: s.number, at: at, n: n,
		sent: at, delivered: s.delivered, known: s.known, earlier: s.earlier,
	}
}

// acked takes an acknowledgement, or the news of a loss.
func (s *stream) acked(t *train) {
	now, n := t.at, float64(t.n)
	if t.lost > 0 {
		s.inflight -= float64(t.lost)
		s.flow.lose(t)
		if t.gone {
			s.control.expired(now)
		} else {
			s.control.lost(now, t.sent)
		}
	}
	if t.n == 0 {
		return
	}
	rtt := now - t.sent
	if s.srtt == 0 { // as in RFC 6298
		s.srtt, s.least, s.deviation = rtt, rtt, rtt/2
	} else {
		s.least = min(s.least, rtt)
		s.deviation += (math.Abs(rtt-s.srtt) - s.deviation) / 4
		s.srtt += (rtt - s.srtt) / 8
	}
	s.inflight -= n
	s.delivered += n
	a := ack{now: now, n: n, rtt: rtt, sent: t.sent, inflight: s.inflight + s.gathers()}
	if d := max(now-t.known, t.sent-t.earlier); d > 0 {
		a.rate = (s.delivered - t.delivered) / d
	}
	if t.delivered >= s.round {
		a.round, s.round = true, s.delivered
	}
	s.known, s.earlier = now, t.sent
	s.control.acked(a)
	s.flow.deliver(n)
}
