package server

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// countAfter is the age from which what is known of a share is not enough to refuse something: others may have removed files.
	countAfter = time.Minute
	// countRest is how long counting rests, in terms of what it took: so much of the time, at most, goes into it.
	countRest = 10
	// countPatience bounds the wait for such a rest. Then what does not fit by the last count is refused.
	countPatience = 5 * time.Second
	// countTries bounds the counts in a row during which something was moved.
	countTries = 3
)

// shareQuota keeps a share within its quota. What it says is there is never less than what is there: what is replaced or removed counts until
// all is counted anew, which happens when something would not fit. It is a transfer.Quota.
type shareQuota struct {
	share string
	tree  *disk.Tree
	log   *slog.Logger
	now   func() time.Time

	mu       sync.Mutex
	quota    holding // 0 is no bound
	there    holding // at most, beside what is held
	held     holding // for entries under way
	grew     holding // what was added to there since the count under way began
	loose    bool    // something has gone since the last count
	moving   int     // things on their way to another place
	moves    int     // that began or ended
	counted  time.Time
	took     time.Duration
	counting chan struct{} // closed at the end of the count under way; nil if there is none
}

// holding is bytes of files, and entries of any kind.
type holding struct{ bytes, entries int64 }

func (u holding) plus(o holding) holding { return holding{u.bytes + o.bytes, u.entries + o.entries} }

func (u holding) most(o holding) holding {
	return holding{max(u.bytes, o.bytes), max(u.entries, o.entries)}
}

func newShareQuota(share string, tree *disk.Tree, log *slog.Logger) *shareQuota {
	return &shareQuota{share: share, tree: tree, log: log, now: time.Now}
}

// set changes the quota. What is there stays.
func (l *shareQuota) set(bytes, entries int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.quota = holding{bytes, entries}
}

// Take implements transfer.Quota.
func (l *shareQuota) Take(ctx context.Context, bytes, entries int64) error {
	want := holding{bytes, entries}
	for counted := false; ; {
		rest, again, err := l.tryTake(want, counted)
		if !again {
			return err
		}
		if rest > 0 && !session.Sleep(ctx, rest) {
			return context.Cause(ctx)
		}
		if counted, err = l.count(ctx); err != nil {
			return err
		}
	}
}

// tryTake claims what is wanted, or refuses it, by the last count. again says that it is worth another one, after a rest; counted, that
// there was one for this.
func (l *shareQuota) tryTake(want holding, counted bool) (rest time.Duration, again bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := !l.counted.IsZero()
	if l.quota == (holding{}) || known && l.fitsLocked(want) {
		l.held = l.held.plus(want)
		return 0, false, nil
	}
	age := l.now().Sub(l.counted)
	switch {
	case counted, known && !l.loose && l.counting == nil && age < countAfter:
		return 0, false, l.refusalLocked(want)
	case !known || l.counting != nil:
		return 0, true, nil
	case countRest*l.took-age > countPatience:
		return 0, false, l.refusalLocked(want)
	}
	return countRest*l.took - age, true, nil
}

func (l *shareQuota) fitsLocked(want holding) bool {
	all := l.there.plus(l.held).plus(want)
	return (l.quota.bytes == 0 || want.bytes == 0 || all.bytes <= l.quota.bytes) && (l.quota.entries == 0 || want.entries == 0 || all.entries <= l.quota.entries)
}

func (l *shareQuota) refusalLocked(want holding) error {
	all := l.there.plus(l.held)
	if l.quota.bytes > 0 && want.bytes > 0 && all.bytes+want.bytes > l.quota.bytes {
		return wire.Errorf(wire.CodeNoSpace, "share %q has a quota of %s, of which %s are left", l.share, units.Bytes(l.quota.bytes), units.Bytes(max(0, l.quota.bytes-all.bytes)))
	}
	return wire.Errorf(wire.CodeNoSpace, "share %q has a quota of %d entries, of which %d are left", l.share, l.quota.entries, max(0, l.quota.entries-all.entries))
}

// Settle implements transfer.Quota.
func (l *shareQuota) Settle(bytes, entries int64, there bool) {
	u := holding{bytes, entries}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = l.held.plus(holding{-bytes, -entries})
	if there {
		l.there, l.grew = l.there.plus(u), l.grew.plus(u)
	}
}

// Freed implements transfer.Quota.
func (l *shareQuota) Freed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loose = true
}

// Moving implements transfer.Quota.
func (l *shareQuota) Moving() (moved func()) {
	step := func(n int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.moving += n
		l.moves++
	}
	step(1)
	return func() { step(-1) }
}

// count counts all that is there. It reports whether it has begun by itself: a count that was under way may have missed what has gone just
// now.
func (l *shareQuota) count(ctx context.Context) (own bool, err error) {
	l.mu.Lock()
	if done := l.counting; done != nil {
		l.mu.Unlock()
		select {
		case <-done:
			return false, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
	done := make(chan struct{})
	l.counting = done
	defer func() {
		l.counting = nil
		close(done)
		l.mu.Unlock()
	}()
	for try := 1; ; try++ {
		l.grew, l.loose = holding{}, false
		moves, still := l.moves, l.moving == 0
		began := l.now()
		l.mu.Unlock()
		bytes, entries, err := l.tree.Usage(ctx)
		l.mu.Lock()
		if ctx.Err() != nil {
			l.loose = true
			return true, context.Cause(ctx)
		}
		if err != nil {
			l.log.Warn("the share's quota counts only what can be read", "share", l.share, "error", err)
		}
		found := holding{bytes, entries}.plus(l.grew) // of what came meanwhile it may have seen some as well
		still = still && l.moves == moves
		if !still {
			found = found.most(l.there) // what moved may have been missed
		}
		l.took, l.counted = l.now().Sub(began), l.now()
		if still || try == countTries {
			l.there, l.loose = found, l.loose || !still
			return true, nil
		}
	}
}

// countShares finds out what is in the shares that have a quota.
func (s *Server) countShares(ctx context.Context) {
	for _, share := range s.folders() {
		if share.Quota > 0 || share.QuotaFiles > 0 {
			_, _ = share.quota.count(ctx)
		}
	}
}
