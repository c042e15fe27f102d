package session

import (
	"math"
	"time"
)

// linkShare is what a QUIC connection should have in flight at most, bytes: when it loses half of that in one go, as at the end of slow
// start before a queue that drops its tail, the receiver of its stream has not yet "too many gaps in received data" (1000 in quic-go).
const linkShare = 1000 * 1452

// linksFor is the number of connections, each with one stream, that a rate in bytes/s takes at an RTT.
func linksFor(rate float64, rtt time.Duration) int {
	return int(math.Ceil(rate * rtt.Seconds() / linkShare))
}

// newReno is the rate in bytes/s of one connection of quic-go that loses a share of its segments at random: with a window that a loss takes
// down to β = 0.7 and that a round trip raises by a segment, √((1+β) / 2(1-β) / loss) segments in a round trip (after Mathis et al., 1997).
func newReno(loss float64, rtt time.Duration) float64 {
	const beta = 0.7
	return quicSegment * math.Sqrt((1+beta)/(2*(1-beta))/loss) / rtt.Seconds()
}

// quicSegment is about what a packet carries, bytes.
const quicSegment = 1410

// linkGrowth decides on the number of QUIC connections, each with one stream: as many as the rate takes that was seen, with its RTT and its
// loss. What does not pay is given up again.
type linkGrowth struct {
	active  int
	from    Observation // start of the present measurement
	peak    float64     // goodput, bytes/s
	before  int         // active before the last change that is not judged yet, 0 if it is
	last    float64     // goodput then
	lost    float64     // segments, of sent, since a queue was seen or active changed
	sent    float64
	waits   int // measurements until it is judged
	stopped bool
}

// midRTT is what a path within a region stays below. There, slow start is over soon with fewer connections as well, and each of them sends and
// gets more at once: at 1 Gbit/s × 10 ms 8 instead of 16, both fixed, took both ends 0.83 and 0.81 of
// the CPU time; with 16 connected and 8 used, as here, the sender took 0.98 and 0.95.
const (
	midRTT   = 20 * time.Millisecond
	midLinks = 8
)

// settleFor is how many measurements new connections have for their slow start.
const settleFor = 2

// enoughLost is from how many lost segments a loss is reckoned.
const enoughLost = 6

// next returns the number of connections to use.
func (g *linkGrowth) next(o Observation, limit int) int {
	if o.Streams == 0 {
		return g.active
	}
	if g.active == 0 {
		g.active = min(max(InitialStreams, o.Streams), limit)
		switch {
		case o.MinRTT > 0 && o.MinRTT < NearRTT:
			g.active = min(NearStreams, limit)
		case o.MinRTT > 0 && o.MinRTT < midRTT:
			g.active = min(midLinks, limit)
		}
	}
	if g.from.at.IsZero() || o.written == 0 {
		g.from = o
		return g.active
	}
	period := o.at.Sub(g.from.at)
	if period < max(500*time.Millisecond, 8*o.MinRTT) {
		return g.active
	}
	goodput := float64(o.written-g.from.written) / period.Seconds()
	g.lost += float64(o.retrans - min(o.retrans, g.from.retrans))
	g.sent += float64(o.sent - min(o.sent, g.from.sent))
	if o.rtt > o.MinRTT*5/4 { // it may be the queue that drops
		g.lost, g.sent = 0, 0
	}
	g.from = o
	g.peak = max(g.peak, goodput)
	if g.before > 0 {
		if g.waits--; g.waits > 0 {
			return g.active
		}
		if goodput < g.last*pays {
			g.active, g.stopped = max(g.before, linksFor(goodput, o.MinRTT)), true
		}
		g.before = 0
		return g.active
	}
	if g.stopped {
		return g.active
	}
	want := linksFor(g.peak, o.MinRTT)
	expected := goodput
	if g.lost >= enoughLost && g.sent > 0 {
		one := newReno(g.lost/g.sent, o.rtt)
		want = max(want, int(min(g.peak/one, MaxStreams))+1, g.active*3/2) // what the line could carry was perhaps never seen
		expected = min(goodput, one*float64(g.active))                     // the end of slow start may be in it
	}
	if want = min(want, limit); want > g.active {
		g.before, g.last, g.waits = g.active, expected, settleFor
		g.active, g.lost, g.sent = want, 0, 0
	}
	return g.active
}
