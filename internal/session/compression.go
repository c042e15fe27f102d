package session

import (
	"context"
	"runtime"
	"time"

	"github.com/fxfer/fxfer/internal/compress"
	"github.com/fxfer/fxfer/internal/transport"
)

// farRTT is the round trip time from which slow start is felt. Then what is sent before the path
// has been measured matters, too.
const farRTT = 5 * time.Millisecond

// assumePath tells a meter, which may be nil, to begin with compression where the stream c is long.
func assumePath(m *compress.Meter, c transport.Conn) {
	if m == nil {
		return
	}
	if i, ok := c.Info(); ok && max(i.MinRTT, i.RTT) >= farRTT {
		m.Assume()
	}
}

// feedMeter feeds a meter with measurements of the streams of a set, until ctx is done.
func feedMeter(ctx context.Context, set *StreamSet, m *compress.Meter) {
	tick := time.NewTicker(compress.Interval)
	defer tick.Stop()
	var before usage
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			after := measure(set)
			if !before.at.IsZero() {
				m.Tick(after.at, between(&before, &after, runtime.GOMAXPROCS(0)))
			}
			before = after
		}
	}
}

// usage is a measurement of the streams of a set. All counts run from the start of the streams.
type usage struct {
	at      time.Time
	cpu     time.Duration // of this process
	streams map[uint64]streamUsage
}

type streamUsage struct {
	blocked time.Duration // in Write
	closed  time.Duration // of that, at most, while the peer's window was full
	wrote   int64         // by Write, bytes
	acked   int64         // by the peer's kernel, bytes; 0 if unknown
}

func measure(set *StreamSet) usage {
	l := usage{at: time.Now(), cpu: processTime(), streams: make(map[uint64]streamUsage)}
	for _, d := range set.Streams() {
		var s streamUsage
		s.blocked, s.wrote = d.load(time.Now())
		if i, ok := d.Info(); ok {
			s.closed, s.acked = i.RwndLimited, int64(i.BytesAcked)
		}
		l.streams[d.ID] = s
	}
	return l
}

// between describes the path by two measurements. A stream that had nothing to write says nothing
// about it.
func between(before, after *usage, cores int) compress.Path {
	passed := after.at.Sub(before.at).Seconds()
	if passed <= 0 {
		return compress.Path{}
	}
	var p compress.Path
	used := 0
	for id, now := range after.streams {
		was := before.streams[id]
		bytes := now.wrote - was.wrote
		if now.acked > 0 {
			bytes = now.acked - was.acked
		}
		p.Rate += float64(max(0, bytes)) / passed
		blocked := now.blocked - was.blocked
		if blocked <= 0 && now.wrote == was.wrote {
			continue
		}
		used++
		p.Blocked += min(1, max(0, (blocked-(now.closed-was.closed)).Seconds()/passed))
	}
	if used > 0 {
		p.Blocked /= float64(used)
	}
	p.CPU = min(1, (after.cpu-before.cpu).Seconds()/passed/float64(cores))
	return p
}
