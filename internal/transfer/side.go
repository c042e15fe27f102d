package transfer

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/fxfer/fxfer/internal/wire"
)

// side is what both sides of a session have in common: messages, events, counters and the end.
type side struct {
	pump    *pump
	counts  counters
	clock   *Clock
	message func(wire.Message) // takes messages that are not the engine's; nil for none

	ctx     context.Context // ends with the session, with the reason as its cause
	stop    context.CancelCauseFunc
	ending  sync.Once
	running sync.WaitGroup // goroutines and Closes that Run waits for, but those of the pump

	events  sync.Mutex // guards now; held while onEvent runs, so that events come one at a time
	now     Event      // that onEvent gets: kept here, so that an event takes no memory of its own
	onEvent func(*Event)
}

// errFinished is the cause of a session's good end.
var errFinished = errors.New("finished")

func newSide(
	stream io.ReadWriteCloser, r *wire.Reader, clock *Clock, onEvent func(*Event),
	message func(wire.Message),
) *side {
	s := &side{pump: newPump(stream, r), clock: clock, onEvent: onEvent, message: message}
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	return s
}

// over reports whether the session has ended.
func (s *side) over() bool { return s.ctx.Err() != nil }

// result is what Run returns: nil after a good end.
func (s *side) result() error {
	if cause := context.Cause(s.ctx); !errors.Is(cause, errFinished) {
		return cause
	}
	return nil
}

// slot waits for a place in slots and takes it. It returns false when the session ends first.
func (s *side) slot(slots chan struct{}) bool {
	select {
	case slots <- struct{}{}:
		return true
	case <-s.ctx.Done():
		return false
	}
}

// checking notes that this side reads or removes files that are there, until done is called.
func (s *side) checking() (done func()) { return s.clock.start(Check).stop }

// event reports an event. The caller holds no lock that a callback could need.
func (s *side) event(ev Event) {
	s.counts.steps.Add(1)
	if s.onEvent != nil {
		s.events.Lock()
		defer s.events.Unlock()
		s.now = ev
		s.onEvent(&s.now)
	}
}

// other passes a message on that is not the engine's.
func (s *side) other(m wire.Message) {
	if s.message != nil {
		s.message(m)
	}
}
