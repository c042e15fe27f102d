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
	since   time.Time // when it has moved crawlBytes, or had nothing under way
	moved   int64     // then
	checked time.Time
	said    bool
}

// check takes how many bytes have moved by now, and whether blocks are under way. It returns a message for the user,
// "" for none, and an error if the session is to end.
func (w *crawlWatch) check(now time.Time, moved int64, underway bool) (text string, err error) {
	suspended := now.Sub(w.checked) > 2*crawlEvery+suspendedAfter // also the first time
	w.checked = now
	n, passed := max(0, moved-w.moved), now.Sub(w.since)
	switch {
	case n >= crawlBytes && w.said:
		w.said = false
		text = w.peer + ": more gets through again"
		fallthrough
	case n >= crawlBytes, !underway, suspended:
		w.since, w.moved = now, moved
	case passed >= crawlEnds:
		return "", &crawlError{n}
	case passed >= crawlSays && !w.said:
		w.said = true
		text = fmt.Sprintf("%s: hardly anything gets through: %s in %s", w.peer, units.Bytes(n), units.Time(crawlSays))
	}
	return text, nil
}

// watchCrawl ends a session that hardly moves, and tells the user before, until ctx is done.
func (s *transferSession) watchCrawl(ctx context.Context, end context.CancelCauseFunc) {
	w := crawlWatch{peer: s.url.Address()}
	for session.Sleep(ctx, crawlEvery) {
		moved, known := s.set.Moved(s.intent.sends())
		text, err := w.check(time.Now(), moved, known && !s.mayCrawl() && s.engine.Stats().Underway > 0)
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
