package session

import (
	"math"
	"time"
)

// linkShare is the most that a QUIC connection should have in flight, in bytes. When it loses half
// of that at once, for example at the end of slow start in a drop-tail queue, its stream's receiver
// stays below the 1000 gaps at which quic-go gives up ("too many gaps in received data").
const linkShare = 1000 * 1452

// linksFor is the number of connections, each with one stream, that a rate in bytes/s needs at an
// RTT.
func linksFor(rate float64, rtt time.Duration) int {
	return int(math.Ceil(rate * rtt.Seconds() / linkShare))
}

// newReno is the rate, in bytes/s, of one connection of quic-go that loses a share of its segments
// at random. A loss reduces its window to β = 0.7, and a round trip adds a segment to it, which
// gives √((1+β) / 2(1-β) / loss) segments in a round trip (after Mathis et al., 1997).
func newReno(loss float64, rtt time.Duration) float64 {
	const beta = 0.7
	return quicSegment * math.Sqrt((1+beta)/(2*(1-beta))/loss) / rtt.Seconds()
}

// quicSegment is about the payload of a packet, in bytes.
const quicSegment = 1410

// linkGrowth decides how many QUIC connections to use, each with one stream: as many as the
// measured rate needs at its RTT and loss. It takes an addition back that did not pay.
type linkGrowth struct {
	active  int
	begins  int         // what active began with, by the RTT
	from    observation // start of the present measurement
	peak    float64     // goodput, bytes/s
	before  int         // active before the last change that is not judged yet, 0 if it is
	last    float64     // goodput then
	lost    float64     // segments, of sent, since a queue was seen or active changed
	sent    float64
	queued  time.Time // when a queue was seen or made last
	waits   int       // measurements until it is judged
	stopped bool
}

// midRTT is the round trip time that a path within a region stays below. There, slow start is short
// with fewer connections, too, and each of them moves more at once.
const (
	midRTT   = 20 * time.Millisecond
	midLinks = 4
)

// linksAt is the number of connections to begin with at an RTT, where n are there.
func linksAt(rtt time.Duration, n int) int {
	if 0 < rtt && rtt < midRTT {
		return midLinks
	}
	return max(InitialStreams, n)
}

// roomFor is how much more than what is in flight the windows of connections should hold, so that the
// path window can look for more.
const roomFor = 1.3

// cramped reports whether the windows of the connections are the limit. NewReno adds a packet in a round
// trip once slow start has ended, which a pause of a host can do early.
func cramped(o *observation, goodput float64) bool {
	return o.cwnd > 0 && float64(o.cwnd) < roomFor*goodput*o.minRTT.Seconds() && !queues(o.rtt, o.minRTT)
}

// settleFor is the number of measurements that new connections have for their slow start.
const settleFor = 2

// lossShows is how many round trips it takes until all that a queue drops is known as lost.
const lossShows = 2

// queues reports whether an RTT shows a queue that may drop packets.
func queues(rtt, least time.Duration) bool { return rtt > least*5/4 }

// enoughLost is the number of lost segments from which a loss rate is computed.
const enoughLost = 6

// next returns the number of connections to use.
func (g *linkGrowth) next(o observation, limit int) int {
	if o.streams == 0 {
		return g.active
	}
	if n := min(linksAt(o.minRTT, o.streams), limit); g.active == g.begins && (g.active == 0 || n < g.active) {
		g.active, g.begins = n, n // the first packets may have been late
	}
	if o.queued.After(g.queued) {
		g.queued = o.queued
	}
	if queues(o.rtt, o.minRTT) {
		g.queued = o.at
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
	g.lost += float64(o.retrans - min(o.retrans, g.from.retrans))
	g.sent += float64(o.sent - min(o.sent, g.from.sent))
	if g.from.at.Before(g.queued.Add(lossShows * o.rtt)) { // it may be the queue that drops
		g.lost, g.sent = 0, 0
	}
	g.from = o
	g.peak = max(g.peak, goodput)
	if g.before > 0 {
		if g.waits--; g.waits > 0 {
			return g.active
		}
		if goodput < g.last*pays {
			g.active, g.stopped = max(g.before, linksFor(goodput, o.minRTT)), true
		}
		g.before = 0
		return g.active
	}
	if n := min(2*g.active, InitialStreams, limit); n > g.active && cramped(&o, goodput) {
		g.active = n // they are connected, and whether they help shows only when the path window has grown
		return g.active
	}
	if g.stopped {
		return g.active
	}
	want := linksFor(g.peak, o.minRTT)
	expected := goodput
	if g.lost >= enoughLost && g.sent > 0 {
		one := newReno(g.lost/g.sent, o.rtt)
		want = max(want, int(min(g.peak/one, MaxStreams))+1, g.active*3/2) // the line may carry more
		expected = min(goodput, one*float64(g.active))                     // without slow start
	}
	if want = min(want, limit); want > g.active {
		g.before, g.last, g.waits = g.active, expected, settleFor
		g.active, g.lost, g.sent = want, 0, 0
	}
	return g.active
}
