package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLinksFor(t *testing.T) {
	const gbit = 1e9 / 8
	require.Equal(t, 1, linksFor(gbit, time.Millisecond))
	require.Equal(t, 11, linksFor(gbit, 120*time.Millisecond))
	require.Equal(t, 44, linksFor(10*gbit, 50*time.Millisecond))
	// 0.1 % at 50 ms is 53 segments in a round trip.
	require.InDelta(t, 53*quicSegment/0.05, newReno(0.001, 50*time.Millisecond), 1e4)
}

// lossy is a path on which each connection reaches the rate of NewReno.
type lossy struct {
	rate  float64 // of the line, bytes/s
	loss  float64
	rtt   time.Duration
	burst float64 // goodput of the first second, in slow start
	work  float64 // the most that the hosts can do, bytes/s; 0 is any
}

// settle returns the connections in use after a minute.
func (p lossy) settle(limit int) int {
	var g linkGrowth
	o := observation{at: time.Unix(0, 0), streams: InitialStreams, minRTT: p.rtt, quic: true}
	active, lost := InitialStreams, 0.0
	for i := range 240 {
		rate := p.rate
		if p.loss > 0 {
			rate = min(rate, float64(active)*newReno(p.loss, p.rtt))
		}
		if p.work > 0 {
			rate = min(rate, p.work)
		}
		if i < 4 && p.burst > 0 {
			rate = p.burst
		}
		o.rtt = p.rtt
		if rate == p.rate {
			o.rtt = 2 * p.rtt
		}
		o.at = o.at.Add(TuneEvery)
		bytes := rate * TuneEvery.Seconds()
		o.written += int64(bytes)
		o.sent += uint64(bytes / quicSegment)
		lost += bytes / quicSegment * p.loss
		o.retrans = uint64(lost)
		active = g.next(o, limit)
		o.streams = max(o.streams, active)
	}
	return active
}

func TestLinkGrowth(t *testing.T) {
	const gbit = 1e9 / 8
	const far = 50 * time.Millisecond
	for name, c := range map[string]struct {
		path      lossy
		limit     int
		from, and int
	}{
		"a full line stays as it is":      {lossy{gbit, 0, far, 0, 0}, 64, 16, 16},
		"a queue that drops is no reason": {lossy{gbit, 1e-5, 25 * time.Millisecond, 0, 0}, 64, 16, 16},
		"a path within a region":          {lossy{gbit, 0, 10 * time.Millisecond, 0, 0}, 64, 4, 4},
		"a fast one":                      {lossy{10 * gbit, 0, 15 * time.Millisecond, 0, 0}, 64, 13, 13},
		"one with loss":                   {lossy{gbit, 1e-3, 15 * time.Millisecond, 0, 0}, 64, 13, 64},
		"some loss":                       {lossy{gbit, 1e-4, far, 0.9 * gbit, 0}, 64, 22, 64},
		"more loss":                       {lossy{gbit, 1e-3, far, 0.9 * gbit, 0}, 64, 64, 64},
		"never more than the limit":       {lossy{gbit, 1e-3, far, 0.9 * gbit, 0}, 24, 24, 24},
		"loss without a fast slow start":  {lossy{gbit, 1e-4, far, 0, 0}, 64, 17, 64},
		"what does not pay is given up":   {lossy{gbit, 1e-3, far, 0.9 * gbit, 0.15 * gbit}, 64, 16, 16},
		"a path too long for 16":          {lossy{2 * gbit, 0, 240 * time.Millisecond, 0, 0}, 64, 42, 42},
		"a short path takes few":          {lossy{gbit, 0, 100 * time.Microsecond, 0, 0}, 64, 4, 4},
	} {
		got := c.path.settle(c.limit)
		require.GreaterOrEqual(t, got, c.from, name)
		require.LessOrEqual(t, got, c.and, name)
	}
}

// What a queue dropped is no random loss, though the queue is gone when the loss is seen. What the
// start lost is none either, however short the queue.
func TestLinkGrowthQueue(t *testing.T) {
	const rtt = 80 * time.Millisecond
	for name, c := range map[string]struct {
		losesAt time.Duration
		queueAt time.Duration // seen at that moment; 0 is never
		startTo time.Duration // end of the start
		more    bool
	}{
		"the start":             {losesAt: 750 * time.Millisecond, startTo: 700 * time.Millisecond},
		"a queue":               {losesAt: 10 * time.Second, queueAt: 9750 * time.Millisecond, startTo: time.Second},
		"long after both":       {losesAt: 20 * time.Second, queueAt: 9750 * time.Millisecond, startTo: time.Second, more: true},
		"no queue and no start": {losesAt: 2 * time.Second, more: true},
	} {
		var g linkGrowth
		o := observation{streams: InitialStreams, minRTT: rtt, quic: true}
		active := 0
		for at := TuneEvery; at < 30*time.Second; at += TuneEvery {
			o.at, o.rtt = time.Unix(0, 0).Add(at), rtt
			if at == c.queueAt {
				o.rtt = 2 * rtt
			}
			if at <= c.startTo {
				o.queued = o.at
			}
			o.written += 9e6
			o.sent += 6500
			if at == c.losesAt {
				o.retrans += 500
			}
			active = max(active, g.next(o, MaxStreams))
		}
		require.Equal(t, c.more, active > InitialStreams, "%s: %d", name, active)
	}
}

// The first packets of a session may be late, which makes a path look long.
func TestLinkGrowthLate(t *testing.T) {
	var g linkGrowth
	o := observation{at: time.Unix(0, 0), streams: InitialStreams, minRTT: 25 * time.Millisecond, quic: true}
	require.Equal(t, InitialStreams, g.next(o, MaxStreams))
	o.minRTT = 10 * time.Millisecond
	require.Equal(t, midLinks, g.next(o, MaxStreams))
	o.minRTT = 5 * time.Millisecond
	require.Equal(t, midLinks, g.next(o, MaxStreams))
}

// More connections help where their windows hold little more than what is in flight, and there is no
// queue.
func TestLinkGrowthCramped(t *testing.T) {
	const rtt = 19 * time.Millisecond
	for name, c := range map[string]struct {
		cwnd  int // of a connection, bytes
		line  float64
		queue bool
		want  int
	}{
		"windows that hold little":      {300e3, 125e6, false, 16},
		"roomy ones":                    {2e6, 125e6, false, midLinks},
		"little, and a slow line":       {300e3, 10e6, false, midLinks},
		"little, and a queue":           {300e3, 125e6, true, midLinks},
		"no more than the hosts can do": {300e3, 2 * 300e3 / rtt.Seconds(), false, 4},
	} {
		var g linkGrowth
		o := observation{at: time.Unix(0, 0), streams: InitialStreams, minRTT: rtt, rtt: rtt, quic: true}
		if c.queue {
			o.rtt = 2 * rtt
		}
		active := midLinks
		for range 100 {
			o.at = o.at.Add(TuneEvery)
			o.cwnd = active * c.cwnd
			rate := min(c.line, float64(o.cwnd)/rtt.Seconds())
			o.written += int64(rate * TuneEvery.Seconds())
			active = g.next(o, MaxStreams)
		}
		require.Equal(t, c.want, active, name)
	}
}
