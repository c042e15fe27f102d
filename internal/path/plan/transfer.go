package plan

import (
	"math"
	"sort"
	"time"
)

// DefaultInitial is the initial window in segments, RFC 6928. Older systems have OldInitial, RFC 3390.
const (
	DefaultInitial = 10
	OldInitial     = 3
)

// Transfer is a size to be moved over a path.
type Transfer struct {
	Path    Path
	Window  int64 // payload that a stream may have in flight, in bytes; 0 is as much as it takes
	Streams int   // > 0
	Control Control
	Size    int64         // in bytes
	Within  time.Duration // the window of time for it
	Initial int           // initial window in segments: the lesser of initcwnd and initrwnd; 0 is DefaultInitial
}

// Limiter is what holds a transfer back.
type Limiter string

// The limiters that a plan knows.
const (
	LineRate Limiter = "line rate"
	Window   Limiter = "window"
	Loss     Limiter = "random loss"
	Ramp     Limiter = "slow start"
)

// EachRate is what one stream carries at most in bit/s if it has the line for itself, and why.
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

// Rate is what the streams carry together in bit/s once slow start is over, and why it isn't more.
func (t Transfer) Rate() (bitsPerSecond float64, why Limiter) {
	each, why := t.EachRate()
	line := t.Path.Goodput()
	if all := each * float64(t.Streams); all < line {
		return all, why
	}
	return line, LineRate
}

// seconds is how long the transfer takes from its first byte on. Slow start doubles what is in flight each round trip. Data flows like a
// fluid here, which is within one round trip of what TCP's bursts take, and makes the time grow with the RTT alone.
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

// flight is what so many streams send in the first round trip, in bytes.
func (t Transfer) flight(streams int) float64 {
	initial := t.Initial
	if initial == 0 {
		initial = DefaultInitial
	}
	return float64(streams) * float64(initial) * float64(t.Path.Segment())
}

// Time is how long the transfer takes, without the set-up of connections. What doesn't fit a Duration is its maximum.
func (t Transfer) Time() time.Duration { return duration(t.seconds()) }

// SlowStart is the part of Time that slow start costs.
func (t Transfer) SlowStart() time.Duration {
	rate, _ := t.Rate()
	return duration(t.seconds() - float64(t.Size)*8/rate)
}

// Limiter is what holds the whole transfer back, or the streams if its size is 0.
func (t Transfer) Limiter() Limiter {
	if t.Size > 0 && t.SlowStart() > t.Time()/2 {
		return Ramp
	}
	_, why := t.Rate()
	return why
}

// Fits tells whether the transfer ends within its window of time.
func (t Transfer) Fits() bool { return t.seconds() <= t.Within.Seconds() }

// Need is the goodput in bit/s that the transfer takes, slow start aside, to end within its window of time.
func (t Transfer) Need() float64 { return float64(t.Size) * 8 / t.Within.Seconds() }

// Moves is how many bytes the rate carries in the window of time.
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

// Remedy is what would do, by itself: so many streams with the window as it is, or such a window with the streams as they are.
// 0 is where that would not do.
type Remedy struct {
	Streams int
	Window  int64
}

// Fill is the least that fills the line. A stream's window need not be larger than its part of the BDP.
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

// Fit is the least that lets the transfer end within its window of time. If streams don't, the line is too slow for it, or too long.
func (t Transfer) Fit() Remedy {
	most := t.Fill()
	most.Streams = max(most.Streams, int(math.Ceil(t.Path.BDP()/t.flight(1)))) // which spare the slow start
	if most.Window == 0 {                                                      // loss keeps these streams from filling the line, but a part of it may do
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

// least is the smallest number from 1 to most that will do, or 0. Whatever is larger than one that will do must do, too.
func least(most int, do func(int) bool) int {
	n := 1 + sort.Search(most, func(i int) bool { return do(i + 1) })
	if n > most {
		return 0
	}
	return n
}
