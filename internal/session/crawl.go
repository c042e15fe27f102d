package session

import (
	"context"
	"fmt"
	"time"

	"github.com/fxfer/fxfer/internal/units"
)

const (
	// crawlBytes is what a session moves within crawlSays at the least, or the user is told, and within crawlEnds,
	// or it ends. That is half of a line of 9.6 kbit/s, and a tenth. A peer that pings is never silent.
	crawlBytes = 64 << 10
	crawlSays  = 2 * time.Minute
	crawlEnds  = 10 * time.Minute
	crawlEvery = 2 * time.Second
	// crawlTrusts is how long a server may say that it works while nothing comes of it. It takes so long to read 60 TB
	// at 100 MB/s.
	crawlTrusts = 7 * 24 * time.Hour
	// crawlLate is how long after the last look the next one comes only if this process was suspended.
	crawlLate = 3 * crawlEvery
	// crawlFills is how long a new stream fills buffers on its way, and crawlJoins what moves on it before, by
	// handshakes, keep-alives and probes of the MTU.
	crawlFills = 20 * time.Second
	crawlJoins = 16 << 10
)

// crawlError ends a session that hardly moves. A new one may do better.
type crawlError struct {
	moved int64
	idle  bool
}

func (e *crawlError) Error() string { return crawls(e.moved, e.idle, crawlEnds) }

// crawls says what is wrong with a session.
func crawls(moved int64, idle bool, since time.Duration) string {
	if idle {
		return "nothing has happened for " + units.Time(since) + ", though the other side answers"
	}
	return fmt.Sprintf("hardly anything gets through: %s in %s", units.Bytes(moved), units.Time(since))
}

// crawlWatch finds a session that hardly moves, although blocks are under way, or although there are none and neither
// end works.
type crawlWatch struct {
	peer    string
	trusts  bool // the other end for as long as it says that it works, not only for crawlTrusts
	checked time.Time
	seen    crawlLook
	streams map[uint64]crawlStream // those that are open

	// Since there was progress.
	moved   int64         // on the streams
	limited time.Duration // by a rate limit, all streams together
	stuck   time.Duration // with blocks under way
	idle    time.Duration // with none, since an end worked
	claimed time.Duration // with none, before the other end said last that it worked, and since this one did
	said    bool
}

// crawlStream is what has moved on a stream, in bytes, and since when it carries blocks.
type crawlStream struct {
	moved int64
	since time.Time
}

// crawlLook is what a session has done by now.
type crawlLook struct {
	steps    int64            // of the engine, blocks written among them
	streams  map[uint64]int64 // bytes that have moved on each open one
	underway bool             // blocks are
	work     time.Duration    // of this end
	claimed  time.Duration    // work of the other end, as it says
	limited  time.Duration    // by a rate limit of either end, all streams together
	patient  bool             // the session may wait now
}

// check returns a message for the user, "" for none, and an error if the session is to end.
func (w *crawlWatch) check(now time.Time, x crawlLook) (text string, err error) {
	passed := now.Sub(w.checked)
	suspended := passed > crawlLate // or it is the first time
	worked, claims := x.work > w.seen.work, x.claimed > w.seen.claimed && (w.trusts || w.claimed < crawlTrusts)
	progress := x.steps > w.seen.steps
	w.limited += max(0, x.limited-w.seen.limited)
	w.follow(now, x.streams)
	w.checked, w.seen = now, x
	switch {
	case progress, w.moved >= crawlBytes:
		w.moved, w.limited, w.stuck, w.idle, w.claimed = 0, 0, 0, 0, 0
		if w.said {
			w.said = false
			text = w.peer + ": more gets through again"
		}
	case suspended, x.patient:
	case x.underway:
		w.stuck += passed
	case worked:
		w.idle, w.claimed = 0, 0
	case claims:
		w.idle, w.claimed = 0, w.claimed+w.idle+passed
	default:
		w.idle += passed
	}
	sum, idle := w.stuck+w.idle, w.idle > w.stuck
	switch {
	case w.limited >= sum/2: // it is meant to be slow
	case sum >= crawlEnds:
		return "", &crawlError{w.moved, idle}
	case sum >= crawlSays && !w.said:
		w.said = true
		text = w.peer + ": " + crawls(w.moved, idle, crawlSays)
	}
	return text, nil
}

// follow adds what has moved on streams since the last time. What goes into the buffers on the way when a stream is
// new does not count: a stream that gets stuck is replaced by a new one.
func (w *crawlWatch) follow(now time.Time, streams map[uint64]int64) {
	next := make(map[uint64]crawlStream, len(streams))
	for id, moved := range streams {
		x, known := w.streams[id]
		if !known || x.moved <= crawlJoins {
			x.since = now
		} else if now.Sub(x.since) >= crawlFills {
			w.moved += max(0, moved-x.moved)
		}
		x.moved = moved
		next[id] = x
	}
	w.streams = next
}

// Crawl is a session that may hardly move.
type Crawl struct {
	Peer      string
	Engine    Engine
	Set       *StreamSet
	Telemetry *Telemetry
	// Patient reports whether the session may take as long as it wants now. underway says that blocks are under way.
	Patient func(underway bool) bool
	// Trusts says that the other end may take as long as it says that it works: a client may read a program's output.
	Trusts bool
	Notice func(text string)
}

// Watch ends a session that hardly moves, and says so before, until ctx is done.
func (c *Crawl) Watch(ctx context.Context, end func(error)) {
	w := crawlWatch{peer: c.Peer, trusts: c.Trusts}
	w.run(ctx, c.look, c.Notice, end)
}

func (w *crawlWatch) run(ctx context.Context, look func() crawlLook, notice func(string), end func(error)) {
	for Sleep(ctx, crawlEvery) {
		text, err := w.check(time.Now(), look())
		if text != "" {
			notice(text)
		}
		if err != nil {
			end(err)
			return
		}
	}
}

func (c *Crawl) look() crawlLook {
	stats := c.Engine.Stats()
	x := crawlLook{steps: stats.Steps, streams: c.Set.Moved(c.Engine.Sends()), underway: stats.Underway > 0}
	x.work, x.claimed, x.limited = c.Telemetry.worked()
	unknown := x.underway && len(x.streams) == 0 // how much gets through
	x.patient = unknown || c.Patient(x.underway)
	return x
}
