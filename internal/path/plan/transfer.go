package plan

import (
	"math"
	"sort"
	"time"
)

// DefaultInitial is the initial window in segments (RFC 6928). Older systems use OldInitial (RFC
// 3390).
const (
	DefaultInitial = 10
	OldInitial     = 3
)

// Transfer is an amount of data to move over a path.
type Transfer struct {
	Path    Path
	Window  int64 // payload bytes that a stream may have in flight; 0 is unlimited
	Streams int   // > 0
	Control Control
	Size    int64         // in bytes
	Within  time.Duration // the time in which it must end
	Initial int           // segments: the lesser of initcwnd and initrwnd; 0: DefaultInitial
	Disk    float64       // payload in bit/s that the slower disk takes or gives; 0 is unlimited
	CPU     float64       // payload in bit/s that the slower host's CPU carries; 0 is unlimited
}

// Limiter is what holds a transfer back.
type Limiter string

// The limiters of a plan.
const (
	LineRate Limiter = "line rate"
	Window   Limiter = "window"
	Loss     Limiter = "random loss"
	Ramp     Limiter = "slow start"
	Disk     Limiter = "disk"
	CPU      Limiter = "CPU"
)

// EachRate is the most that one stream carries in bit/s if it has the line for itself, and what
// limits it.
func (t Transfer) EachRate() (bitsPerSecond float64, why Limiter) {
	rate, why := t.Path.Goodput(), LineRate
	if ceiling := t.Path.Ceiling(t.Window); t.Window > 0 && ceiling < rate {
		rate, why = ceiling, Window
	}
	if limit := t.Path.LossLimit(t.Control); limit < rate {
		rate, why = limit, Loss
	}
	return rate, why
}

// Rate is what all streams carry together in bit/s after slow start, and what limits it.
func (t Transfer) Rate() (bitsPerSecond float64, why Limiter) {
	each, why := t.EachRate()
	rate := each * float64(t.Streams)
	if line := t.Path.Goodput(); rate >= line {
		rate, why = line, LineRate
	}
	if t.Disk > 0 && t.Disk < rate {
		rate, why = t.Disk, Disk
	}
	if t.CPU > 0 && t.CPU < rate {
		rate, why = t.CPU, CPU
	}
	return rate, why
}

// seconds is the duration of the transfer from its first byte on. Slow start doubles the data in
// flight in each round trip. The model treats data as a fluid. It differs from TCP's bursts by at
// most one round trip, and its result only grows with the RTT.
func (t Transfer) seconds() float64 {
	rate, _ := t.Rate()
	rtt := t.Path.RTT.Seconds()
	flight := t.flight(t.Streams)
	left, elapsed := float64(t.Size), 0.0
	for flight*8 < rate*rtt && left > flight {
		left -= flight
		flight *= 2
		elapsed += rtt
	}
	return max(rtt, elapsed+left*8/min(rate, flight*8/rtt))
}

// flight is what the streams send in the first round trip, in bytes.
func (t Transfer) flight(streams int) float64 {
	initial := t.Initial
	if initial == 0 {
		initial = DefaultInitial
	}
	return float64(streams) * float64(initial) * float64(t.Path.Segment())
}

// Time is the duration of the transfer without connection setup. It is the largest Duration if
// the result doesn't fit.
func (t Transfer) Time() time.Duration { return duration(t.seconds()) }

// SlowStart is the part of Time that slow start costs.
func (t Transfer) SlowStart() time.Duration {
	rate, _ := t.Rate()
	return duration(t.seconds() - float64(t.Size)*8/rate)
}

// Limiter is what holds the whole transfer back, or the streams if the size is 0.
func (t Transfer) Limiter() Limiter {
	if t.Size > 0 && t.SlowStart() > t.Time()/2 {
		return Ramp
	}
	_, why := t.Rate()
	return why
}

// Fits reports whether the transfer ends within the given time.
func (t Transfer) Fits() bool { return t.seconds() <= t.Within.Seconds() }

// Need is the goodput in bit/s that the transfer needs to end in time, without slow start.
func (t Transfer) Need() float64 { return float64(t.Size) * 8 / t.Within.Seconds() }

// Moves is how many bytes the streams carry in the given time.
func (t Transfer) Moves() float64 {
	rate, _ := t.Rate()
	return rate * t.Within.Seconds() / 8
}

func duration(seconds float64) time.Duration {
	ns := seconds * 1e9
	if ns >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(max(ns, 0))
}

// Remedy lists two changes, each of which suffices alone: more streams with the same window, or a
// larger window with the same streams. A change that would not suffice is 0.
type Remedy struct {
	Streams int
	Window  int64
}

// Fill returns the smallest changes that fill the line. The window of a stream need not exceed
// its part of the BDP.
func (t Transfer) Fill() Remedy {
	bdp := t.Path.BDP()
	streams := 1.0
	if t.Window > 0 {
		streams = bdp / float64(t.Window)
	}
	line, limit := t.Path.Goodput(), t.Path.LossLimit(t.Control)
	r := Remedy{Streams: max(1, int(math.Ceil(max(streams, line/limit))))}
	if limit*float64(t.Streams) >= line {
		r.Window = max(1, int64(math.Ceil(bdp/float64(t.Streams))))
	}
	return r
}

// Fit returns the smallest changes with which the transfer ends in time. If more streams don't
// suffice, the line is too slow or too long.
func (t Transfer) Fit() Remedy {
	most := t.Fill()
	most.Streams = max(most.Streams, int(math.Ceil(t.Path.BDP()/t.flight(1)))) // these save the slow start
	// With loss, these streams can't fill the line, but a smaller part may suffice.
	if most.Window == 0 {
		most.Window = max(1, int64(math.Ceil(t.Path.BDP()/float64(t.Streams))))
	}
	fits := func(streams int, window int64) bool {
		t := t
		t.Streams, t.Window = streams, window
		return t.Fits()
	}
	return Remedy{
		Streams: least(most.Streams, func(n int) bool { return fits(n, t.Window) }),
		Window:  int64(least(int(most.Window), func(n int) bool { return fits(t.Streams, int64(n)) })),
	}
}

// least is the smallest number from 1 to most for which do returns true, or 0. do must be
// monotone: true for a number means true for all larger ones.
func least(most int, do func(int) bool) int {
	n := 1 + sort.Search(most, func(i int) bool { return do(i + 1) })
	if n > most {
		return 0
	}
	return n
}
