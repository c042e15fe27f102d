package session

import (
	"fmt"
	"time"

	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/internal/wire"
)

// Deadline decides the priority of a transfer that has to end by a time: the lowest that will do,
// by the rate of the last minutes. One goroutine uses it.
type Deadline struct {
	at      time.Time
	began   time.Time
	now     Priority
	since   time.Time            // of now
	seen    []moved              // since then, oldest first; at least recentRate of them
	reached map[Priority]float64 // rates of each at its end, bit/s
	back    time.Duration        // that a priority keeps before it is lowered
}

// moved is the payload at the target at a moment, in bytes.
type moved struct {
	at    time.Time
	bytes int64
}

// Outlook is what is known of a transfer at a moment.
type Outlook struct {
	At      time.Time
	Moved   int64 // payload at the target, bytes
	Left    int64 // to be moved still, bytes
	Listing bool  // there may be more than Left
}

// Ahead adds what has arrived of blocks that are not complete yet, in bytes. The streams complete
// their blocks at about the same time, so without these a slow transfer seems to stand still and to
// jump by turns.
func (o Outlook) Ahead(bytes int64, streams int) Outlook {
	o.Moved += max(0, bytes)
	o.Left = max(0, o.Left-AheadOf(bytes, streams)) // more than that was sent in vain
	return o
}

// AheadOf bounds what streams can have carried of blocks that are not complete yet, in bytes.
func AheadOf(bytes int64, streams int) int64 {
	return min(max(0, bytes), int64(streams)<<wire.MaxBlockLog)
}

// PriorityChange is a change of priority for the sake of a deadline, with its reason.
type PriorityChange struct {
	At       time.Time
	Priority Priority
	Raised   bool
	Left     int64         // bytes to be written
	Rate     float64       // that the forecast is based on, bit/s
	Needs    time.Duration // for Left at Rate
	Deadline time.Time
}

const (
	// tight is the share of the time left from which a forecast does not do, and ample the share
	// below which a lower priority does. Between them nothing changes. Where the present priority
	// needs less than the share spare, a lower one is tried, whatever it reached before: others may
	// have gone.
	tight = 0.9
	ample = 0.7
	spare = 0.4
	// recentRate is the most time over which a rate is measured. settleRate is the most that a
	// priority gets before it is judged. Its first half does not count: beside other traffic, the
	// streams need a while to find what the new priority gives them. settleBack is the most that a
	// priority gets before it is lowered for the first time. Each time makes it twice as long, and a
	// trial four times. firstBytes is the most time that a transfer gets to find something to send.
	// Where the deadline is near, each is nearShare of the time from the start to the deadline.
	recentRate = 3 * time.Minute
	settleRate = 30 * time.Second
	settleBack = 5 * time.Minute
	firstBytes = 10 * time.Minute
	nearShare  = 0.1
	// lookEvery is the time between two looks.
	lookEvery = time.Second
)

// NewDeadline begins with the lowest priority.
func NewDeadline(at, now time.Time) *Deadline {
	d := &Deadline{
		at: at, began: now, now: PriorityLow, since: now, reached: make(map[Priority]float64),
	}
	d.back = d.near(settleBack)
	return d
}

// near is most, or nearShare of the time from the start to the deadline if that is less. Four looks
// are the least.
func (d *Deadline) near(most time.Duration) time.Duration {
	return max(4*lookEvery, min(most, share(nearShare, d.at.Sub(d.began))))
}

// Priority is the present decision.
func (d *Deadline) Priority() Priority { return d.now }

// Update takes an outlook, and reports whether it changes the priority.
func (d *Deadline) Update(o Outlook) (PriorityChange, bool) {
	left := d.at.Sub(o.At)
	if left <= 0 {
		if d.now == PriorityHigh || o.Left == 0 {
			return PriorityChange{}, false
		}
		return d.change(o, PriorityHigh, 0), true
	}
	if n := len(d.seen); n > 0 && o.At.Sub(d.seen[n-1].at) < lookEvery {
		return PriorityChange{}, false
	}
	settled := d.near(settleRate)
	if o.At.Sub(d.since) >= settled/2 {
		d.see(o)
	}
	if o.Moved == 0 {
		settled = d.near(firstBytes)
	}
	if o.At.Sub(d.since) < settled {
		return PriorityChange{}, false
	}
	rate := d.rate(d.near(recentRate))
	d.reached[d.now] = d.rate(settled)
	switch needs := needed(o.Left, rate); {
	case needs > share(tight, left):
		if d.now != PriorityHigh {
			return d.change(o, higher(d.now), rate), true
		}
	case d.now != PriorityLow && !o.Listing && min(needs, o.At.Sub(d.since)) >= d.back:
		low := lower(d.now)
		if before := d.reached[low]; needed(o.Left, before) < share(ample, left) {
			d.back *= 2
			return d.change(o, low, before), true
		}
		if needs < share(spare, left) {
			d.back *= 4
			return d.change(o, low, rate), true
		}
	}
	return PriorityChange{}, false
}

// see remembers what was moved, for the last minutes.
func (d *Deadline) see(o Outlook) {
	d.seen = append(d.seen, moved{o.At, o.Moved})
	for len(d.seen) > 2 && o.At.Sub(d.seen[1].at) >= d.near(recentRate) {
		d.seen = d.seen[1:]
	}
}

// rate is the mean rate at the present priority over about the last so long, in bit/s.
func (d *Deadline) rate(over time.Duration) float64 {
	last := d.seen[len(d.seen)-1]
	i := len(d.seen) - 1
	for i > 0 && last.at.Sub(d.seen[i].at) < over {
		i--
	}
	from := d.seen[i]
	if !last.at.After(from.at) {
		return 0
	}
	return float64(max(0, last.bytes-from.bytes)) * 8 / last.at.Sub(from.at).Seconds()
}

// change enters a priority because of the time that a rate needs.
func (d *Deadline) change(o Outlook, p Priority, rate float64) PriorityChange {
	c := PriorityChange{
		At: o.At, Priority: p, Raised: d.now == PriorityLow || p == PriorityHigh, Left: o.Left,
		Rate: rate, Needs: needed(o.Left, rate), Deadline: d.at,
	}
	d.now, d.since, d.seen = p, o.At, nil
	return c
}

// needed is the time that bytes take at a rate in bit/s, at most a century.
func needed(bytes int64, rate float64) time.Duration {
	const most = 100 * 365 * 24 * time.Hour
	if bytes <= 0 {
		return 0
	}
	if seconds := float64(bytes) * 8 / rate; seconds < most.Seconds() { // false for a rate of 0
		return time.Duration(seconds * float64(time.Second))
	}
	return most
}

func share(part float64, of time.Duration) time.Duration { return time.Duration(part * float64(of)) }

func higher(p Priority) Priority {
	if p == PriorityLow {
		return PriorityNormal
	}
	return PriorityHigh
}

func lower(p Priority) Priority {
	if p == PriorityHigh {
		return PriorityNormal
	}
	return PriorityLow
}

// String says what changed and why, such as "raised to normal at 04:10: 120 GB left, 3 h at 90
// Mbit/s, deadline 06:00".
func (c PriorityChange) String() string {
	verb := "lowered"
	if c.Raised {
		verb = "raised"
	}
	clock := func(t time.Time) string {
		if c.Deadline.Second() != 0 {
			return t.Format(time.TimeOnly)
		}
		return t.Format("15:04")
	}
	text := fmt.Sprintf("%s to %s at %s: %s left, ", verb, c.Priority, clock(c.At), units.Bytes(c.Left))
	switch {
	case !c.At.Before(c.Deadline):
		return text + "and the deadline " + clock(c.Deadline) + " has passed"
	case c.Rate <= 0:
		text += "nothing moves"
	default:
		text += units.Span(c.Needs) + " at " + units.Rate(c.Rate)
	}
	return text + ", deadline " + clock(c.Deadline)
}
