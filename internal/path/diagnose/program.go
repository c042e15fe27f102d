package diagnose

import (
	"math"
	"time"
)

const (
	obeyed    = 0.8 // of SO_MAX_PACING_RATE: headers are paced, too
	answering = 0.6 // of the time
	quickest  = 10 * time.Millisecond
	quickAsks = 0.3 // requests in a round trip, if they come more often than that
	pausing   = 0.3 // of a second, in which a program that limits its rate writes nothing at the least
	wobble    = 0.1 // standard deviation of a steady rate, as a share
	leastWins = 3   // seconds of a steady rate, without the first
)

// program finds what held a program back that is not ours: nothing is known of its stages. The
// shares are of the time with data in flight.
func (v *view) program(c *Cell, backlog, rwnd, sndbuf float64) Limiter {
	s, r, d := &c.Sender, &c.Receiver, c.Length
	local, around := v.SenderHost.Loopback == 1, v.around(c)
	switch {
	case around.noted(around.Nagled):
		return Stalls
	case share(r.Unread, d) >= most, around.noted(around.Shut):
		return ReceivingProgram
	case s.PaceLimit > 0 && c.Rate() >= obeyed*float64(s.PaceLimit):
		return RateLimit
	case v.asks(&around): // what a request brings may fill a window or a buffer, and more of it would not help
		return Requests
	case rwnd >= capped && rwnd >= sndbuf:
		return ReceiverWindow
	case sndbuf >= capped:
		return SenderBuffer
	case v.Seen == Receiver, local && backlog >= capped:
		return Unknown
	case backlog >= capped:
		return v.path(c)
	case !local && backlog+rwnd+sndbuf >= 0.2:
		if v.ramping(c) {
			return v.slowStart()
		}
		return v.weaker(c, backlog, rwnd, sndbuf)
	}
	return SendingProgram
}

// weaker decides by the strongest of weak signs.
func (v *view) weaker(c *Cell, backlog, rwnd, sndbuf float64) Limiter {
	switch {
	case rwnd > max(backlog, sndbuf):
		return ReceiverWindow
	case sndbuf > backlog:
		return SenderBuffer
	}
	return v.path(c)
}

// asks reports whether a program sends only what the other side has just asked for. Requests that
// come in quick succession prove nothing, unless they are about one in a round trip.
func (v *view) asks(s *Sample) bool {
	if s.Asked == 0 || share(s.Answering, s.At) < answering {
		return false
	}
	each := s.At / time.Duration(s.Asked)
	return each >= quickest || v.minRTT >= time.Duration(quickAsks*float64(each))
}

// steadyProgram turns the time in which a program wrote at one rate into a rate limit. It compares
// whole seconds, because programs write in parts. A large part may fill the send buffer for a moment.
func (v *view) steadyProgram(cells []Cell) {
	var seconds []float64
	var bits float64
	var all, own, buffer time.Duration
	first := 0 // cell of the second
	var parts []*Cell
	for i := range cells {
		c := &cells[i]
		bits += c.Rate() * c.Length.Seconds()
		switch c.Limiter {
		case SendingProgram:
			own += c.Length
		case SenderBuffer:
			buffer += c.Length
		}
		if all += c.Length; all < time.Second {
			continue
		}
		if share(own, all) >= pausing && share(own+buffer, all) >= most && bits > 0 {
			seconds = append(seconds, bits/all.Seconds())
			for k := first; k <= i; k++ {
				parts = append(parts, &cells[k])
			}
		}
		bits, all, own, buffer, first = 0, 0, 0, 0, i+1
	}
	if !steady(seconds) {
		return
	}
	for _, c := range parts {
		if c.Limiter == SenderBuffer {
			c.Limiter = RateLimit
		}
	}
	for i := range cells {
		if cells[i].Limiter == SendingProgram {
			cells[i].Limiter = RateLimit
		}
	}
}

// steady reports whether rates hardly differ. The first second has a beginning in it.
func steady(rates []float64) bool {
	if len(rates) < leastWins+1 {
		return false
	}
	rates = rates[1:]
	var sum, squares float64
	for _, r := range rates {
		sum += r
	}
	mean := sum / float64(len(rates))
	for _, r := range rates {
		squares += (r - mean) * (r - mean)
	}
	return mean > 0 && math.Sqrt(squares/float64(len(rates))) <= wobble*mean
}

// program adds the evidence against a program that is not ours.
func (f *facts) program(v *Verdict) {
	s, r := &f.Sender, &f.Receiver
	switch f.Limiter {
	case ReceivingProgram:
		v.Side = Receiver
		if r.Unread > 0 {
			v.found(Fact{Kind: ReaderSlow, Share: share(r.Unread, f.Length), Rate: f.Rate()})
		} else {
			v.found(Fact{Kind: WindowShut, Share: share(s.Shut, f.Length), Rate: f.Rate()})
		}
		v.Remedies = append(v.Remedies, Remedy{Kind: FasterReader})
	case Requests:
		v.Side = Sender
		v.found(Fact{
			Kind: RequestsBring, Bytes: s.Acked / max(1, s.Asked), Count: int64(math.Round(float64(s.Asked) / max(1e-3, f.Length.Seconds()))), Time: f.rtt(),
		})
		v.Remedies = append(v.Remedies, Remedy{Kind: MoreRequests}, Remedy{Kind: MoreConnections})
	case Stalls:
		v.Side = Sender
		v.found(Fact{Kind: NagleWaits, Share: share(s.Nagled, f.Length), Time: s.Nagled})
		v.Remedies = append(v.Remedies, Remedy{Kind: OneWrite})
	case SendingProgram:
		v.Side = Sender
		v.found(Fact{Kind: ProgramWrites, Share: max(0, 1-share(s.Backlog, f.Length)), Rate: f.Rate()})
		v.Remedies = append(v.Remedies, Remedy{Kind: FasterProgram})
	case Unknown:
		if f.asked.Here == Receiver {
			v.found(Fact{Kind: SeenFromHere, Rate: f.Rate()})
			v.Remedies = append(v.Remedies, Remedy{Kind: LookAtSender})
			return
		}
		v.found(Fact{Kind: NothingHeld, Rate: f.Rate()})
	}
}

// programRate adds whose rate limit it is: the socket's, or that of the program's own writes.
func (f *facts) programRate(v *Verdict) {
	v.Side = Sender
	if limit := f.Sender.PaceLimit; limit > 0 && f.Rate() >= obeyed*float64(limit) {
		v.found(Fact{Kind: SocketPaced, Rate: f.Rate(), Limit: float64(limit)})
	} else {
		v.found(Fact{Kind: ProgramSteady, Rate: f.Rate()})
	}
	v.Remedies = []Remedy{{Kind: ProgramRate}}
}

// ownBuffer adds the remedy for a buffer that a program has set itself: autotuning would have made
// it larger. The end whose buffer is unknown gets advice.
func (f *facts) ownBuffer(v *Verdict, size, most int64, option string) bool {
	switch {
	case most == 0 || size == 0:
		if option == "SO_RCVBUF" {
			v.Remedies = append(v.Remedies, Remedy{Kind: RaiseTheirs, Expect: f.expect(2)}, Remedy{Kind: MoreConnections})
		} else {
			v.Remedies = append(v.Remedies, Remedy{Kind: LeaveBuffers, Expect: f.expect(2)}, Remedy{Kind: MoreConnections})
		}
	case size < most/4*3:
		v.found(Fact{Kind: BufferByItself, Name: option, Bytes: size, Need: most})
		v.Remedies = append(v.Remedies, Remedy{Kind: LeaveBuffers, Expect: f.expect(2)}, Remedy{Kind: MoreConnections})
	default:
		return false
	}
	return true
}
