package server

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// countAfter is the age at which a count can't justify a refusal any more: other programs may
	// have removed files since.
	countAfter = time.Minute
	// countRest is the pause between counts, in terms of the time that the last one took. It bounds
	// the part of the time that goes into counting.
	countRest = 10
	// countPatience bounds the wait for the next count. If it is further away, the last count
	// decides.
	countPatience = 5 * time.Second
	// countTries bounds the counts in a row while files are moved.
	countTries = 3
)

// shareQuota keeps a share within its quota. It is a transfer.Quota.
//
// It never believes in less than what is there: files that are replaced or removed count until the
// whole share is counted again, which happens when something would not fit.
type shareQuota struct {
	share  string
	folder *access.Folder
	log    *slog.Logger
	now    func() time.Time

	mu        sync.Mutex    // guards all fields below; not held while counting
	quota     usage         // 0 is no bound
	there     usage         // at most, without claimed
	claimed   usage         // by transfers that run
	added     usage         // to there, since the count under way began
	freed     bool          // something was removed since the last count
	moving    int           // moves under way
	moves     int           // that began or ended, ever
	countedAt time.Time     // end of the last count; zero for none
	took      time.Duration // the last count
	counting  chan struct{} // closed at the end of the count under way; nil if there is none
}

// usage is bytes of files, and entries of any kind.
type usage struct{ bytes, entries int64 }

func (u usage) plus(o usage) usage { return usage{u.bytes + o.bytes, u.entries + o.entries} }

func (u usage) max(o usage) usage { return usage{max(u.bytes, o.bytes), max(u.entries, o.entries)} }

func newShareQuota(share string, folder *access.Folder, log *slog.Logger) *shareQuota {
	return &shareQuota{share: share, folder: folder, log: log, now: time.Now}
}

// set changes the quota.
func (l *shareQuota) set(bytes, entries int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.quota = usage{bytes, entries}
}

// Take implements transfer.Quota.
func (l *shareQuota) Take(ctx context.Context, bytes, entries int64) error {
	want := usage{bytes, entries}
	for counted := false; ; {
		pause, again, err := l.tryTake(want, counted)
		if !again {
			return err
		}
		if pause > 0 && !session.Sleep(ctx, pause) {
			return context.Cause(ctx)
		}
		if counted, err = l.count(ctx); err != nil {
			return err
		}
	}
}

// tryTake claims or refuses by the last count. With again it has done neither: the caller counts,
// after the pause, and tries again. counted says that the last count was made for this claim.
func (l *shareQuota) tryTake(want usage, counted bool) (
	pause time.Duration, again bool, err error,
) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := !l.countedAt.IsZero()
	if l.quota == (usage{}) || known && l.fitsLocked(want) {
		l.claimed = l.claimed.plus(want)
		return 0, false, nil
	}
	age := l.now().Sub(l.countedAt)
	fresh := known && !l.freed && l.counting == nil && age < countAfter
	pause = countRest*l.took - age
	switch {
	case counted, fresh:
		return 0, false, l.refusalLocked(want)
	case !known, l.counting != nil:
		return 0, true, nil
	case pause > countPatience:
		return 0, false, l.refusalLocked(want)
	}
	return pause, true, nil
}

func (l *shareQuota) fitsLocked(want usage) bool {
	all := l.there.plus(l.claimed).plus(want)
	bytesFit := l.quota.bytes == 0 || want.bytes == 0 || all.bytes <= l.quota.bytes
	entriesFit := l.quota.entries == 0 || want.entries == 0 || all.entries <= l.quota.entries
	return bytesFit && entriesFit
}

func (l *shareQuota) refusalLocked(want usage) error {
	all := l.there.plus(l.claimed)
	if l.quota.bytes > 0 && want.bytes > 0 && all.bytes+want.bytes > l.quota.bytes {
		return wire.Errorf(wire.CodeNoSpace, "share %q has a quota of %s, of which %s are left",
			l.share, units.Bytes(l.quota.bytes), units.Bytes(max(0, l.quota.bytes-all.bytes)))
	}
	return wire.Errorf(wire.CodeNoSpace, "share %q has a quota of %d entries, of which %d are left",
		l.share, l.quota.entries, max(0, l.quota.entries-all.entries))
}

// Settle implements transfer.Quota.
func (l *shareQuota) Settle(bytes, entries int64, there bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.claimed = l.claimed.plus(usage{-bytes, -entries})
	if there {
		u := usage{bytes, entries}
		l.there, l.added = l.there.plus(u), l.added.plus(u)
	}
}

// Freed implements transfer.Quota.
func (l *shareQuota) Freed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.freed = true
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

// count counts the share, or waits for the count under way. own reports that it counted itself: a
// count that was under way may have missed what was removed just now.
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
		found, still, err := l.countOnceLocked(ctx)
		if err != nil {
			l.freed = true
			return true, err
		}
		if still || try == countTries {
			l.there, l.freed = found, l.freed || !still
			return true, nil
		}
	}
}

// countOnceLocked reads the whole share. It releases mu meanwhile. still reports that nothing was
// moved during the count; otherwise the result is not below the last one, since the count may have
// missed what was moved.
func (l *shareQuota) countOnceLocked(ctx context.Context) (found usage, still bool, err error) {
	l.added, l.freed = usage{}, false
	moves, still := l.moves, l.moving == 0
	began := l.now()
	l.mu.Unlock()
	bytes, entries, err := l.folder.Usage(ctx)
	l.mu.Lock()
	if ctx.Err() != nil {
		return usage{}, false, context.Cause(ctx)
	}
	if err != nil {
		l.log.Warn("the share's quota counts only what can be read", "share", l.share, "error", err)
	}
	found = usage{bytes, entries}.plus(l.added) // the count may have seen some of those, too
	still = still && l.moves == moves
	if !still {
		found = found.max(l.there)
	}
	l.took, l.countedAt = l.now().Sub(began), l.now()
	return found, still, nil
}

// countShares counts the shares that have a quota.
func (s *Server) countShares(ctx context.Context) {
	for _, share := range s.sortedShares() {
		if share.Quota > 0 || share.QuotaFiles > 0 {
			_, _ = share.quota.count(ctx)
		}
	}
}
