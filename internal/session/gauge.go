package session

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/fxfer/fxfer/internal/compress"
	"github.com/fxfer/fxfer/internal/transport"
)

// farRTT is the round trip from which slow start is felt, and with it what is sent before the path has been seen.
const farRTT = 5 * time.Millisecond

// AssumePath lets a meter begin as is right for the path of a stream that is connected. It may be nil.
func AssumePath(m *compress.Meter, c transport.Conn) {
	if m == nil {
		return
	}
	if i, ok := c.Info(); ok && max(i.MinRTT, i.RTT) >= farRTT {
		m.Assume()
	}
}

// FeedMeter shows a meter what the streams of a set do, until ctx is done.
func FeedMeter(ctx context.Context, set *StreamSet, m *compress.Meter) {
	tick := time.NewTicker(compress.Interval)
	defer tick.Stop()
	var before look
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			after := lookAt(set)
			if !before.at.IsZero() {
				m.Tick(after.at, between(&before, &after, runtime.GOMAXPROCS(0)))
			}
			before = after
		}
	}
}

// look is what is seen of the streams of a set at one moment. All counts run from the beginning.
type look struct {
	at      time.Time
	cpu     time.Duration // of this process
	streams map[uint64]streamLook
}

type streamLook struct {
	blocked time.Duration // in Write
	closed  time.Duration // of that, while the peer's window was; at most
	wrote   int64         // by Write, bytes
	acked   int64         // by the peer's kernel, bytes; 0 where that is not known
}

func lookAt(set *StreamSet) look {
	l := look{at: time.Now(), cpu: processTime(), streams: make(map[uint64]streamLook)}
	for _, d := range set.Streams() {
		var s streamLook
		s.blocked, s.wrote = d.load(time.Now())
		if i, ok := d.Info(); ok {
			s.closed, s.acked = i.RwndLimited, int64(i.BytesAcked)
		}
		l.streams[d.ID] = s
	}
	return l
}

// between says what the streams did between two looks. A stream that had nothing to write says nothing of the path.
func between(before, after *look, cores int) compress.Path {
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

// Coder returns what decides on compression, nil for none.
func Coder(name string) (*compress.Meter, error) {
	switch name {
	case "", "none":
		return nil, nil
	case "auto":
		return compress.NewMeter(runtime.GOMAXPROCS(0)), nil
	case "zstd":
		return compress.Always(), nil
	}
	return nil, fmt.Errorf("there is no compression %q", name)
}
