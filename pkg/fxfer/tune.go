package fxfer

import (
	"context"
	"time"

	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/transport"
)

// initialStreams is how many data streams a session opens at once: short transfers are slow start, and each stream brings its
// own initial window.
const initialStreams = 16

// tuner runs at the sending side and decides how many streams a session has, from what the kernel and the receiver's
// acknowledgements show. A stream that stands still while others move is given up.
type tuner struct {
	sender *transfer.Sender
	set    *streamSet
	fixed  bool // the number was asked for
	max    int
	want   func(n int, dead []uint64) // asks for n streams in all
}

const tuneEvery = 250 * time.Millisecond

// run works until ctx is done.
func (t *tuner) run(ctx context.Context) {
	tick := time.NewTicker(tuneEvery)
	defer tick.Stop()
	var g growth
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			o := observe(now, t.sender.Stats().Written, t.set.infos())
			if dead := stalled(now, o.minRTT, t.sender.Streams()); len(dead) > 0 {
				for _, id := range dead {
					t.sender.Drop(id)
				}
				t.want(max(1, o.streams), dead)
				continue
			}
			if !t.fixed {
				if n := g.next(o, t.max); n > o.streams {
					t.want(n, nil)
				}
			}
		}
	}
}

// observation is one look at a session.
type observation struct {
	at      time.Time
	written int64 // payload acknowledged by the receiver so far, bytes
	streams int
	minRTT  time.Duration
	rtt     time.Duration // smoothed, mean of the streams
	capped  float64       // share of the busy time in which a window was the limit, 0 to 1
	retrans uint64        // segments so far
	idle    bool          // the sender does not keep the streams busy
}

func observe(now time.Time, written int64, infos map[uint64]transport.Info) observation {
	o := observation{at: now, written: written, streams: len(infos)}
	var busy, limited time.Duration
	idle := 0
	for _, i := range infos {
		if m := i.MinRTT; m > 0 && (o.minRTT == 0 || m < o.minRTT) {
			o.minRTT = m
		}
		o.rtt += i.RTT / time.Duration(len(infos))
		busy += i.BusyTime
		limited += i.RwndLimited + i.SndbufLimited
		o.retrans += i.RetransSegs
		if i.AppLimited && i.NotSent == 0 {
			idle++
		}
	}
	if busy > 0 {
		o.capped = limited.Seconds() / busy.Seconds()
	}
	o.idle = 2*idle > len(infos)
	return o
}

// stalled returns the streams that wait for acknowledgements while others get them: one that lost its way, not a path that
// is down.
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

// growth decides on more streams: only after goodput has settled, only where a cause is seen that more streams help
// against (a window cap, loss), and only as long as the last addition paid.
type growth struct {
	from    observation // start of the present measurement
	last    float64     // goodput before the last addition, bytes/s
	peak    float64
	added   bool
	stopped bool
}

const (
	// pays is the least gain for which streams are added again.
	pays = 1.04
	// settled is the gain between two measurements below which slow start is over.
	settled = 1.10
)

// next returns the number of streams to have, o.streams for no change.
func (g *growth) next(o observation, limit int) int {
	if g.from.at.IsZero() || o.written == 0 || o.streams == 0 {
		g.from = o
		return o.streams
	}
	period := o.at.Sub(g.from.at)
	if period < max(500*time.Millisecond, 8*o.minRTT) {
		return o.streams
	}
	goodput := float64(o.written-g.from.written) / period.Seconds()
	lost := o.retrans - min(o.retrans, g.from.retrans)
	segments := goodput * period.Seconds() / 1448
	g.from = o
	before := g.peak
	g.peak = max(g.peak, goodput)
	if g.stopped || o.idle || goodput > before*settled {
		return o.streams
	}
	if g.added && g.peak < g.last*pays {
		g.stopped = true
		return o.streams
	}
	lossy := float64(lost) > 2e-5*segments && lost > 2
	queued := o.rtt > o.minRTT*5/4
	if o.capped < 0.1 && (!lossy || queued) {
		return o.streams // the link is full, or something is that streams do not help
	}
	g.last, g.added = g.peak, true
	return min(limit, o.streams+max(4, o.streams/2))
}
