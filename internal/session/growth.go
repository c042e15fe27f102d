package session

import (
	"time"

	"github.com/fxfer/fxfer/internal/congestion"
	"github.com/fxfer/fxfer/internal/transport"
)

// growth decides how many TCP streams to use. It tries more only after goodput has settled, only
// where it sees a cause that more streams help against (a full window, loss), and only as long as
// the last addition paid. Where losses have made congestion windows smaller than the path, more come at
// once. It uses fewer streams at once where nothing was lost so far and their windows have room for the
// path, and otherwise step by step, as long as goodput does not fall: each then sends larger units, which
// cost less work. At high rates that work is the limit, so it does not wait for goodput to settle, and
// takes one step.
type growth struct {
	active  int         // streams in use, 0 before the first decision
	from    observation // start of the present measurement
	last    float64     // goodput before the last change, bytes/s
	peak    float64
	change  int           // the last change of active, 0 if it was judged
	doubted bool          // once, fewer streams had less goodput
	stopped bool          // no more changes, but for windows that hold too little
	tight   bool          // they do so now
	fewer   time.Time     // before it, no stream is given up
	pause   time.Duration // how long that was, the last time
}

const (
	// nearRTT is the round trip time that a path within a building stays below.
	nearRTT = time.Millisecond
	// nearStreams is how many such a path begins with. A block then soon arrives, whatever bounds the
	// rate. From nearFast on, in bytes/s, congestion.FewStreams keep both hosts busy while one of them
	// waits for a disk.
	nearStreams = 2
	nearFast    = 100e6 / 8
	// costly is the goodput, in bytes/s, from which the work per stream matters.
	costly = 1.5e9 / 8
	// pays is the least gain for which streams are added again.
	pays = 1.04
	// spareWindow is how many times the BDP the congestion windows of those that remain shall hold. With less than
	// tightWindows, more streams help.
	spareWindow  = 1.25
	tightWindows = 1.1
	// fullShare is the part of the rate that streams may send, with more of which none is missing.
	fullShare = 0.97
	// leastPause is for how long no stream is given up after some came back, and mostPause the same if that happens
	// again and again.
	leastPause = 5 * time.Second
	mostPause  = 5 * time.Minute
	// limiting is the share of the time from which full windows are the limit.
	limiting = 0.1
	// settled is the gain between two measurements below which slow start is over.
	settled = 1.10
)

// next returns the number of streams to use.
func (g *growth) next(o observation, limit int) int {
	if g.tight = false; o.streams == 0 {
		return g.active
	}
	if g.active == 0 {
		g.active = min(StartingStreams(o.minRTT, o.streams), limit) // history may have opened more
		if o.relayed {
			g.active = min(max(RelayedStreams, o.streams), limit)
		}
	}
	if g.from.at.IsZero() || o.written == 0 {
		g.from = o
		return g.active
	}
	period := o.at.Sub(g.from.at)
	if period < max(500*time.Millisecond, 8*o.minRTT) {
		return g.active
	}
	goodput := float64(o.written-g.from.written) / period.Seconds()
	lost := float64(o.retrans - min(o.retrans, g.from.retrans))
	segments := goodput * period.Seconds() / 1448
	g.from = o
	lossy := !lossFree(lost, segments)
	queued := o.rtt > o.minRTT*5/4
	near := isNear(o.minRTT) && !o.relayed // a near path began with few
	fast := goodput > costly
	full := o.capped > limiting && !((near || fast) && g.roomy(goodput, &o))         // windows are the limit
	few := !lossy && !near && !o.relayed && !(fast && full) && !o.at.Before(g.fewer) // by what is known here
	grows := goodput > g.peak*settled                                                // slow start is not over, or the last addition pays
	g.peak = max(g.peak, goodput)
	if near && goodput > nearFast && g.active < min(congestion.FewStreams, limit) {
		g.active = min(congestion.FewStreams, limit)
		return g.active
	}
	if n := min(holding(goodput, &o), limit); n > g.using(&o) && !near && !o.relayed {
		g.active, g.change, g.doubted, g.tight = max(n, g.active), 0, false, true
		if !o.at.Before(g.fewer) { // otherwise it is still the same event
			g.pause = min(max(2*g.pause, leastPause), mostPause)
		}
		g.fewer = o.at.Add(g.pause)
		return g.active
	}
	if g.stopped {
		return g.active
	}
	if grows {
		if n := sufficient(2*goodput, &o); fast && few && n < g.active {
			g.last, g.change = goodput, n-g.active
			g.active = n
		}
		return g.active
	}
	if g.change > 0 && g.peak < g.last*pays {
		g.stopped = true
		return g.active
	}
	if g.change < 0 && goodput < g.last/pays {
		if g.doubted {
			g.active, g.stopped = g.active-g.change, true
		}
		g.doubted = true
		return g.active
	}
	g.last, g.change, g.doubted = goodput, 0, false
	if n := sufficient(max(goodput, o.rate), &o); n < g.active && few {
		// Their windows tell soon if that is too few. But where something is lost, a few recover slowly from it.
		if clean := lossFree(float64(o.retrans), float64(o.written)/1448); clean && o.rate > 0 && len(o.windows) > 0 {
			g.active = n
			return n
		}
		if !fast {
			n = max(n, g.active*3/4)
		}
		g.change = n - g.active
	} else if full || lossy && !queued && o.behind { // otherwise more streams would not help
		g.last = g.peak
		g.change = min(limit, g.active+max(4, g.active/2)) - g.active
	}
	g.active += g.change
	return g.active
}

// holding is how many streams hold what the path does after losses have made their windows smaller; 0 is unknown, or
// quick streams, whose windows are next to nothing at times. New ones help only if those that there are send less than
// they may.
func holding(goodput float64, o *observation) int {
	if o.rate == 0 {
		return 0
	}
	n := congestion.Holding(min(goodput, o.rate)*o.minRTT.Seconds(), tightWindows, o.windows)
	if queues(o.rtt, o.minRTT) || goodput > fullShare*o.rate {
		n = min(n, o.streams)
	}
	return n
}

// lossFree reports whether next to nothing was lost of so many segments.
func lossFree(lost, segments float64) bool { return lost <= 2e-5*segments || lost <= 2 }

// using is how many streams may send.
func (g *growth) using(o *observation) int {
	if o.joined > 0 {
		return min(o.joined, g.active)
	}
	return g.active
}

// roomy reports whether full windows are not the limit: they hold twice what the path does, so that a
// host at one end takes its time.
func (g *growth) roomy(goodput float64, o *observation) bool {
	return 2*goodput*o.minRTT.Seconds() < float64(g.active*min(o.window, o.peer))
}

// sufficient is the number of streams whose buffers hold twice the BDP, which BBR keeps in flight
// (cwnd_gain in net/ipv4/tcp_bbr.c), and whose congestion windows have room for it now: a paced stream
// does not use all of its window, and one of cubic needs seconds for a larger one. goodput is in bytes/s.
func sufficient(goodput float64, o *observation) int {
	if o.window == 0 {
		return o.streams
	}
	bdp := goodput * o.minRTT.Seconds()
	n := max(congestion.FewStreams, int(2*bdp/float64(o.window))+1)
	return max(n, congestion.Holding(bdp, spareWindow, o.windows))
}

// Near reports whether the path of a connection that has just begun stays within a building.
func Near(c transport.Conn) bool {
	i, ok := c.Info()
	return ok && isNear(i.RTT)
}

func isNear(rtt time.Duration) bool { return 0 < rtt && rtt < nearRTT }

// StartingStreams is the number of streams that a transfer begins with at an RTT, after one that
// needed so many before; 0 is an unknown RTT, or number.
func StartingStreams(rtt time.Duration, before int) int {
	if isNear(rtt) {
		return nearStreams
	}
	return max(InitialStreams, before)
}

// StreamsFor is the number of streams that a transfer would settle at, after several streams with
// send buffers of sndBuf bytes, as the kernel counts them, reached a goodput in bytes/s.
func StreamsFor(streams int, goodput float64, rtt time.Duration, sndBuf int64) int {
	if goodput <= costly || streams <= 1 {
		return MaxStreams
	}
	return sufficient(goodput, &observation{streams: streams, minRTT: rtt, window: int(float64(sndBuf) * bufferPayload)})
}
