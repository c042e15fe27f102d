package simulate

import (
	"slices"
	"time"
)

// Pause is a time in which a host of a flow, or a process on it, gets no processor.
type Pause struct {
	From, For time.Duration
	Where     Side
}

// Side is what pauses.
type Side int

// The sides.
const (
	Process Side = iota // that sends: the kernel sends what was written, and nobody decides
	Host                // that sends: nothing leaves, and acknowledgements wait
	Peer                // that receives: its acknowledgements come at the end, all at once
)

func (s Side) String() string { return [...]string{"process", "host", "peer"}[s] }

// probed is how many packets the kernel of a flow sends again for each of its streams if nothing
// was acknowledged for longer than timeout: a tail loss probe (RFC 8985), and one when its timer
// expires, until it sees that both were needless (RFC 5682).
const (
	probed  = 2
	timeout = 0.2 // s, and a round trip
)

// pause returns the one at that time, or nil.
func (f *flow) pause(now float64) *Pause {
	at := seconds(now)
	i := slices.IndexFunc(f.Pauses, func(p Pause) bool { return at >= p.From && at < p.From+p.For })
	if i < 0 {
		return nil
	}
	return &f.Pauses[i]
}

// halt begins, goes on with, or ends (nil) a pause.
func (f *flow) halt(p *Pause, now float64) {
	before := f.paused
	if f.paused = p; p == before {
		return
	}
	for _, s := range f.streams {
		s.paused = p != nil && p.Where == Host
		if p != nil && p.Where == Process {
			s.left = min(s.left, waiting)
		}
	}
	if before != nil && before.Where != Process {
		f.wake(now)
	}
}

// wake hears at the end of a pause what came meanwhile, and counts what timers sent again.
func (f *flow) wake(now float64) {
	for _, s := range f.streams {
		if s.inflight > 0 && now-s.known > timeout+s.srtt {
			f.needless += probed
		}
	}
	for i := range f.late {
		t := &f.late[i]
		t.at = now
		f.streams[t.stream-f.streams[0].number].acked(t)
	}
	f.late = f.late[:0]
}

// hear takes an acknowledgement, or lets it wait for the end of a pause.
func (s *stream) hear(t train) {
	if p := s.flow.paused; p != nil && p.Where != Process {
		s.flow.late = append(s.flow.late, t)
		return
	}
	s.acked(&t)
}
