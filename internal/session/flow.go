package session

import (
	"time"

	"github.com/fxfer/fxfer/internal/congestion"
	"github.com/fxfer/fxfer/internal/wire"
)

// Flow tunes streams that carry data without an engine: it holds them to the rate of the path, and
// decides how many of them may send, as in a transfer. One goroutine uses it.
type Flow struct {
	tuner
	next  time.Time     // of the next decision about the number of streams
	begun time.Duration // CPU time
}

// NewFlow makes a Flow of the streams in a set. fixed is their number, or 0 for as many as the path
// needs, up to most.
func NewFlow(set *StreamSet, fixed, most int, p wire.Priority) *Flow {
	tuning := Tuning{Fixed: fixed > 0, Most: func() int { return most }}
	if fixed > 0 {
		tuning.Most = func() int { return fixed }
	}
	tuning.Priority = func() congestion.Priority { return sharing(p) }
	f := &Flow{tuner: tuner{set: set, Tuning: tuning, window: newWindow(set)}, begun: processTime()}
	f.active = min(InitialStreams, f.Most())
	if f.Fixed {
		f.active = fixed
	}
	return f
}

// Next implements probe.Tuner.
func (f *Flow) Next(now time.Time, received int64, ending bool) (streams int) {
	f.free = f.window.step(now, f.priority(), ending)
	if infos := f.set.infos(); len(infos) > 0 && now.After(f.next) {
		f.active = f.needed(f.observe(now, received, infos))
		f.next = now.Add(TuneEvery)
	}
	return f.using()
}

// CPU is what this process has used since NewFlow.
func (f *Flow) CPU() time.Duration { return processTime() - f.begun }
