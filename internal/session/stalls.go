package session

import (
	"time"

	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/transport"
)

// stalled returns the streams that wait for acknowledgements while others get them. Where none gets
// any, the path is down, and no stream is to blame.
func stalled(now time.Time, rtt time.Duration, states []transfer.StreamState) (dead []uint64) {
	patience := 3*time.Second + 10*rtt
	moving := false
	for _, s := range states {
		moving = moving || s.InFlight > 0 && now.Sub(s.Moved) < time.Second+2*rtt
	}
	if !moving {
		return nil
	}
	for _, s := range states {
		if s.InFlight > 0 && now.Sub(s.Moved) > patience {
			dead = append(dead, s.ID)
		}
	}
	return dead
}

// movements knows when each stream last moved, as this host's kernel sees it. The receiver
// acknowledges whole blocks, which takes long on a slow line or within a low rate limit.
type movements map[uint64]movement

type movement struct {
	arrived uint64
	at      time.Time
}

// update takes what has arrived at the peer's kernel. A stream that a rate holds back counts as
// moving.
func (m movements) update(now time.Time, infos map[uint64]transport.Info, held map[uint64]bool) {
	for id := range m {
		if _, ok := infos[id]; !ok {
			delete(m, id)
		}
	}
	for id, i := range infos {
		if was, known := m[id]; !known || arrived(&i) != was.arrived || held[id] || i.Held {
			m[id] = movement{arrived(&i), now}
		}
	}
}

// apply counts movements like acknowledgements of blocks. It changes states and returns them.
func (m movements) apply(states []transfer.StreamState) []transfer.StreamState {
	for i := range states {
		if at := m[states[i].ID].at; at.After(states[i].Moved) {
			states[i].Moved = at
		}
	}
	return states
}

// silences knows since when the kernel has waited for an acknowledgement on each stream.
type silences map[uint64]silence

type silence struct {
	acked uint64
	since time.Time
}

// silenceMost is how long a kernel may send segments again without any acknowledgement before
// another connection is tried. On a path that was down, the kernel's pauses grow; where large
// packets vanish, only a new connection finds that out. Where a queue is long, the kernel may take
// silenceTimeouts of its timeouts.
const (
	silenceMost     = 6 * time.Second
	silenceTimeouts = 3
)

// update returns the streams that are silent for too long, if nothing is acknowledged on any
// stream.
func (s silences) update(now time.Time, infos map[uint64]transport.Info) (dead []uint64) {
	for id := range s {
		if _, ok := infos[id]; !ok {
			delete(s, id)
		}
	}
	moving := false
	for id, i := range infos {
		was, known := s[id]
		switch {
		case !known || i.BytesAcked != was.acked || i.InFlight == 0 || i.RetransSegs == 0:
			moving = moving || known && i.BytesAcked != was.acked
			s[id] = silence{i.BytesAcked, now}
		case now.Sub(was.since) >= max(silenceMost, silenceTimeouts*timeoutOf(&i)):
			dead = append(dead, id)
		}
	}
	if moving {
		return nil
	}
	return dead
}
