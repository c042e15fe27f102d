package main

import (
	"math"
	"time"

	"github.com/fxfer/fxfer/internal/path/lab"
)

// take is what was recorded of a scene. Times count from its beginning.
type take struct {
	ticks    []tally
	trips    []lab.Trip
	others   *lab.CrossReport // nil if there were none
	udp      *lab.CrossReport // nil if there was none
	sessions [][]point        // what arrived of each session, since it came
	from, to time.Duration    // when the player came and left
	sent     int64            // segments with data that the kernel or QUIC of the player sent, 0 if unknown
	resent   int64            // those of sent that were sent again
}

// tally is the counters of the line at one moment.
type tally struct {
	at time.Duration
	lab.Counters
}

// own returns how many segments of the player the line has got so far, and how many of them it has
// dropped.
func (t *tally) own() (sent, dropped int64) {
	return t.Sent - t.OthersSent, t.Dropped - t.OthersDropped
}

// figures are what a scene shows. NaN means that a figure is unknown, and infinity that something
// never happened. Rates are in bit/s, times in seconds.
type figures struct {
	goodput, limit                 float64
	median, p99                    float64 // delay added to a ping
	byUs                           float64 // how much more delay beside the others than by them alone
	dropped, othersDropped, resent float64 // shares of segments
	udpLost                        float64
	flow, flowAlone                float64 // goodput of the TCP flows beside the player, and without it
	yields, back                   float64 // time from the others' coming and leaving
	drains, regains                float64 // time from the line's fall and return
	jain                           float64
}

const (
	wireBits   = 1538 * 8 // of a full segment
	leaves     = 0.9      // the share that the flow needs of what it gets alone
	whole      = 0.9      // of the line: as good as all of it
	yieldSpan  = 500 * time.Millisecond
	regainSpan = time.Second
)

// figures computes the figures of a take. alone is a take of the others without the player, or nil.
func (t *take) figures(sc *scene, alone *take) figures {
	unknown := math.NaN()
	f := figures{
		limit: sc.limit(), byUs: unknown, udpLost: unknown, flow: unknown, flowAlone: unknown, yields: unknown, back: unknown,
		drains: unknown, regains: unknown, jain: unknown, resent: unknown,
	}
	f.median, f.p99 = t.added(0.5, t.from, t.to), t.added(0.99, t.from, t.to)
	f.dropped, f.othersDropped = t.drops()
	if t.sent > 0 {
		f.resent = float64(t.resent) / float64(t.sent)
	}
	if t.udp != nil && t.udp.Sent > 0 {
		f.udpLost = float64(t.udp.Lost) / float64(t.udp.Sent)
	}
	var rates []float64
	for _, points := range t.sessions {
		f.goodput += rateAfter(points, 0)
		rates = append(rates, rateAfter(points, settle))
	}
	if len(rates) > 1 {
		f.jain = jain(rates)
	}
	if alone != nil {
		from, to := sc.ages()
		f.flow, f.flowAlone = flowRate(t.others, sc.others.From+from, sc.others.From+to), flowRate(alone.others, from, to)
		f.byUs = t.added(0.5, sc.others.From+from, sc.others.From+to) - alone.added(0.5, from, to)
	}
	own := t.ownRates()
	line := float64(sc.link.Rate)
	full := func(v float64) bool { return v >= whole*line }
	if alone != nil && sc.others.From > sc.lead {
		f.yields = own.since(sc.others.From, yieldSpan, func(v float64) bool { return v <= line-leaves*f.flowAlone/tcpShare })
		f.back = own.since(sc.others.To, regainSpan, full)
	}
	if len(sc.changes) == 2 {
		f.drains = t.delays().since(sc.changes[0].at, yieldSpan, func(v float64) bool { return v <= max(0.005, sc.link.RTT.Seconds()/10) })
		f.regains = own.since(sc.changes[1].at, regainSpan, full)
	}
	return f
}

// added returns a quantile of the delay added to pings in a part of the scene, in seconds.
func (t *take) added(q float64, from, to time.Duration) float64 {
	var r lab.PingReport
	for _, trip := range t.trips {
		if trip.At >= from && trip.At < to {
			r.Trips = append(r.Trips, trip)
		}
	}
	if len(r.Trips) == 0 {
		return math.NaN()
	}
	return r.Added(q).Seconds()
}

// drops returns the shares of segments that the line dropped while the player was there: of the
// player's, and of all others'.
func (t *take) drops() (own, others float64) {
	var first, last tally
	for _, x := range t.ticks {
		if x.at <= t.from || first.at == 0 {
			first = x
		}
		last = x
	}
	sent0, dropped0 := first.own()
	sent1, dropped1 := last.own()
	return share(dropped1-dropped0, sent1-sent0), share(last.OthersDropped-first.OthersDropped, last.OthersSent-first.OthersSent)
}

func share(part, all int64) float64 {
	if all <= 0 {
		return math.NaN()
	}
	return float64(part) / float64(all)
}

// series is a figure at ascending moments.
type series struct {
	at     []time.Duration
	values []float64
}

func (s *series) add(at time.Duration, v float64) {
	s.at = append(s.at, at)
	s.values = append(s.values, v)
}

// since returns how many seconds after from the mean of the values over span is ok for the first
// time, or infinity.
func (s *series) since(from, span time.Duration, ok func(mean float64) bool) float64 {
	for i, at := range s.at {
		if at < from {
			continue
		}
		if s.at[len(s.at)-1] < at+span {
			break // the rest is too short to tell
		}
		sum, n := 0.0, 0
		for j := i; s.at[j] < at+span; j++ {
			sum += s.values[j]
			n++
		}
		if ok(sum / float64(n)) {
			return (at - from).Seconds()
		}
	}
	return math.Inf(1)
}

// ownRates returns what the line has accepted of the player from tick to tick, in bit/s on the wire.
func (t *take) ownRates() *series {
	var s series
	for i := 1; i < len(t.ticks); i++ {
		a, b := &t.ticks[i-1], &t.ticks[i]
		sent0, dropped0 := a.own()
		sent1, dropped1 := b.own()
		s.add(a.at, float64(sent1-dropped1-sent0+dropped0)*wireBits/(b.at-a.at).Seconds())
	}
	return &s
}

// delays returns the delay added to each ping, in seconds.
func (t *take) delays() *series {
	var s series
	for _, trip := range t.trips {
		s.add(trip.At, trip.Added.Seconds())
	}
	return &s
}

// rateAfter returns the mean rate of what arrived after a moment, in bit/s. The first point may be
// later than the beginning, when nothing had arrived.
func rateAfter(points []point, from time.Duration) float64 {
	var first point
	for _, p := range points {
		if p.at <= from {
			first = p
		}
	}
	if len(points) == 0 || points[len(points)-1].at <= first.at {
		return 0
	}
	last := points[len(points)-1]
	return float64(last.bytes-first.bytes) * 8 / (last.at - first.at).Seconds()
}

// flowRate returns the goodput of cross traffic between two moments in bit/s. Its report has whole
// seconds.
func flowRate(r *lab.CrossReport, from, to time.Duration) float64 {
	a, b := int(from/time.Second), int(to/time.Second)
	sum := int64(0)
	for i := a; i < min(b, len(r.PerSecond)); i++ {
		sum += r.PerSecond[i]
	}
	return float64(sum) * 8 / float64(max(1, b-a))
}

// jain is Jain's index of fairness: 1 if all have the same, 1/n if one has all (Jain, Chiu and
// Hawe, DEC-TR-301).
func jain(xs []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, x := range xs {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return math.NaN()
	}
	return sum * sum / (float64(len(xs)) * squares)
}
