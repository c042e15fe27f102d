package session

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/congestion"
	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/wire"
)

// SiblingsEvery is the time between two calls of TellSiblings.
const SiblingsEvery = congestion.SiblingsEvery

// Siblings is what the server said last to a session that sends, about sessions that share its path.
// Its methods are safe for concurrent use. The zero Siblings has nothing.
type Siblings struct {
	news atomic.Pointer[congestion.Siblings]
}

// Hear takes what the server says. It may say anything.
func (s *Siblings) Hear(m *wire.Siblings) {
	s.news.Store(&congestion.Siblings{
		Sessions: int(min(m.Sessions, math.MaxInt32)), Turn: int(m.Turn % math.MaxInt32),
		Own: float64(m.Own), All: float64(m.All),
	})
}

// tell passes on what is new.
func (s *Siblings) tell(c *congestion.Controller) {
	if to := s.news.Swap(nil); to != nil {
		c.SetSiblings(*to)
	}
}

// Sibling is a session, as its server sees it among those that share its path. One goroutine uses it.
type Sibling struct {
	telemetry *Telemetry
	push      bool                 // the server sends
	priority  func() wire.Priority // now

	member congestion.Member
	at     diagnose.Sample // of the receiver, or of the server if it sends, when the rate was measured
	sent   diagnose.Sample // of the sender, when it was seen whether data wait
}

// NewSibling returns the Sibling of a session. push reports whether the server sends, and priority is that of now.
func NewSibling(t *Telemetry, push bool, priority func() wire.Priority) *Sibling {
	return &Sibling{telemetry: t, push: push, priority: priority}
}

// waits is from which part of the time on data count as waiting to be sent.
const waits = 0.5

// look measures the session since the last time.
func (s *Sibling) look() *congestion.Member {
	s.member.SetPriority(sharing(s.priority()))
	sender, receiver := s.telemetry.Latest(s.push)
	here, moved := receiver, receiver.Received-s.at.Received
	if s.push {
		here, moved = sender, sender.Acked-s.at.Acked
	}
	if passed := here.At - s.at.At; passed > 0 {
		s.member.Rate = max(0, float64(moved)/passed.Seconds())
		s.at = here
	}
	if passed := sender.At - s.sent.At; passed > 0 { // a number of streams with data, times the time
		s.member.Waits = (sender.Backlog - s.sent.Backlog).Seconds() > waits*passed.Seconds()
		s.sent = sender
	}
	return &s.member
}

// TellSiblings decides what a server says to the sessions that send from one host to another, those of low priority
// apart from the others, at a time since any start. It returns nil for those to whom there is nothing to say.
func TellSiblings(now time.Duration, family []*Sibling) []*wire.Siblings {
	members := make([]*congestion.Member, len(family))
	for i, s := range family {
		members[i] = s.look()
	}
	say := make([]*wire.Siblings, len(family))
	for i, to := range congestion.Tell(now, members) {
		if to.Sessions > 0 {
			say[i] = &wire.Siblings{
				Sessions: uint64(to.Sessions), Turn: uint64(to.Turn), Own: uint64(to.Own), All: uint64(to.All),
			}
		}
	}
	return say
}
