package session

import (
	"sync/atomic"

	"github.com/fxfer/fxfer/internal/congestion"
	"github.com/fxfer/fxfer/internal/wire"
)

// Priority says how a transfer shares the line with other traffic. "" is PriorityNormal, or
// PriorityLow as long as that meets a deadline.
type Priority string

// The priorities, from the lowest.
const (
	PriorityLow    Priority = "low"    // takes what others leave
	PriorityNormal Priority = "normal" // takes a fair part
	PriorityHigh   Priority = "high"   // takes most of it
)

// WirePriority returns the number of a priority in the protocol. "" is wire.NoPriority.
func WirePriority(p Priority) (n wire.Priority, ok bool) {
	switch p {
	case "":
		return wire.NoPriority, true
	case PriorityLow:
		return wire.LowPriority, true
	case PriorityNormal:
		return wire.NormalPriority, true
	case PriorityHigh:
		return wire.HighPriority, true
	}
	return 0, false
}

// PriorityOf returns the priority of a number in the protocol, "" for none.
func PriorityOf(n wire.Priority) Priority {
	for _, p := range []Priority{PriorityLow, PriorityNormal, PriorityHigh} {
		if known, _ := WirePriority(p); known == n {
			return p
		}
	}
	return ""
}

// CheckPriority rejects unknown priorities.
func CheckPriority(p Priority) error {
	if _, ok := WirePriority(p); !ok {
		return Usage("choose low, normal or high", "there is no priority %q", p)
	}
	return nil
}

// PriorityWithin returns the priority of a transfer: the wish, but not below least and not above
// most. A wish of NoPriority is NormalPriority, and a bound of NoPriority is none.
func PriorityWithin(wish, least, most wire.Priority) wire.Priority {
	if wish == wire.NoPriority {
		wish = wire.NormalPriority
	}
	wish = max(wish, least)
	if most != wire.NoPriority {
		wish = min(wish, most)
	}
	return wish
}

// sharing is what a priority means to the controller.
func sharing(p wire.Priority) congestion.Priority {
	switch p {
	case wire.LowPriority:
		return congestion.Low
	case wire.HighPriority:
		return congestion.High
	}
	return congestion.Normal
}

// wireOf is the reverse of sharing.
func wireOf(p congestion.Priority) wire.Priority {
	switch p {
	case congestion.Low:
		return wire.LowPriority
	case congestion.High:
		return wire.HighPriority
	case congestion.Normal:
	}
	return wire.NormalPriority
}

// Following returns a Tuning.Priority that follows a priority of the protocol.
func Following(now func() wire.Priority) func() congestion.Priority {
	return func() congestion.Priority { return sharing(now()) }
}

// LivePriority is a priority that can be changed while transfers run. Its methods are safe for
// concurrent use. The zero LivePriority is "".
type LivePriority struct{ number atomic.Uint32 }

// NewLivePriority returns a LivePriority of p.
func NewLivePriority(p Priority) *LivePriority {
	l := &LivePriority{}
	l.Set(p)
	return l
}

// Set changes the priority. It takes effect within a second. An unknown priority counts as "".
func (l *LivePriority) Set(p Priority) {
	n, _ := WirePriority(p)
	l.number.Store(uint32(n))
}

// Get returns the priority.
func (l *LivePriority) Get() Priority { return PriorityOf(wire.Priority(l.number.Load())) }
