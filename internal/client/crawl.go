package client

import (
	"context"
	"fmt"
	"time"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// crawlBytes is what a session moves within crawlSays at the least, or the user is told, and within crawlEnds,
	// or it ends. That is half of a line of 9.6 kbit/s, and a tenth. A peer that pings is never silent.
	crawlBytes = 64 << 10
	crawlSays  = 2 * time.Minute
	crawlEnds  = 10 * time.Minute
	crawlEvery = 2 * time.Second
	// crawlFills is how long a new stream fills buffers on its way.
	crawlFills = 20 * time.Second
	// crawlRate is the limit in bit/s below which a session crawls because the user wants it.
	crawlRate = 64_000
)

// crawlError ends a session that hardly moves. A new one may do better.
type crawlError struct{ moved int64 }

func (e *crawlError) Error() string {
	return fmt.Sprintf("hardly anything gets through: %s in %s", units.Bytes(e.moved), units.Time(crawlEnds))
}

// crawlWatch finds a session that hardly moves although blocks are under way.
type crawlWatch struct {
	peer    string
	checked time.Time
	written int64                  // payload that the receiver has written
	streams map[uint64]crawlStream // those that are open
	moved   int64                  // on them, since there was progress
	stuck   time.Duration          // with blocks under way, since then
	said    bool
}

// crawlStream is what has moved on a stream, in bytes, and since when it is known.
type crawlStream struct {
	moved int64
	since time.Time
}

// check takes the payload that the receiver has written by now, what has moved on each open stream, and whether
// blocks are under way. It returns a message for the user, "" for none, and an error if the session is to end.
func (w *crawlWatch) check(now time.Time, written int64, streams map[uint64]int64, underway bool) (text string, err error) {
	passed := now.Sub(w.checked)
	w.checked = now
	w.follow(now, streams)
	switch {
	case written > w.written, w.moved >= crawlBytes:
		w.written, w.moved, w.stuck = written, 0, 0
		if w.said {
			w.said = false
			text = w.peer + ": more gets through again"
		}
	case underway && passed <= 2*crawlEvery+suspendedAfter: // else this process was suspended, or it is the first time
		w.stuck += passed
	}
	switch {
	case w.stuck >= crawlEnds:
		return "", &crawlError{w.moved}
	case w.stuck >= crawlSays && !w.said:
		w.said = true
		text = fmt.Sprintf("%s: hardly anything gets through: %s in %s", w.peer, units.Bytes(w.moved), units.Time(crawlSays))
	}
	return text, nil
}

// follow adds what has moved on streams since the last time. What goes into the buffers on the way when a stream is
// new does not count: a stream that gets stuck is replaced by a new one.
func (w *crawlWatch) follow(now time.Time, streams map[uint64]int64) {
	next := make(map[uint64]crawlStream, len(streams))
	for id, moved := range streams {
		x, known := w.streams[id]
		if !known {
			x.since = now
		} else if now.Sub(x.since) >= crawlFills {
			w.moved += max(0, moved-x.moved)
		}
		x.moved = moved
		next[id] = x
	}
	w.streams = next
}

// watchCrawl ends a session that hardly moves, and tells the user before, until ctx is done.
func (s *transferSession) watchCrawl(ctx context.Context, end context.CancelCauseFunc) {
	w := crawlWatch{peer: s.url.Address()}
	for session.Sleep(ctx, crawlEvery) {
		stats, streams := s.engine.Stats(), s.set.Moved(s.intent.sends())
		text, err := w.check(time.Now(), stats.Written, streams, stats.Underway > 0 && len(streams) > 0 && !s.mayCrawl())
		if text != "" {
			s.client.notice("%s", text)
		}
		if err != nil {
			end(err)
			return
		}
	}
}

// mayCrawl reports whether the user wants no more: a low rate, or to give way to others.
func (s *transferSession) mayCrawl() bool {
	rate := s.throttle.Rate()
	return rate > 0 && rate < crawlRate || s.priority.now() == wire.LowPriority
}
