package outbox

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

const (
	earlyFrom  = 4 << 20 // bytes; smaller files are sent when they are complete
	earlyBlock = 1 << 20 // bytes; only whole ones are sent early
	earlyEvery = time.Second
	earlyIdle  = 30 * time.Second // after which a session without anything to send ends
)

// earlyTo returns how many bytes of a file that grows are to be at the server next, 0 if nothing is to
// be sent. there are those of it that are there. A file that was cut begins anew.
func earlyTo(there, size int64) int64 {
	to := size - size%earlyBlock
	if to < earlyFrom || to == there {
		return 0
	}
	return to
}

// growing is a file that arrives, of which a part is sent early.
type growing struct {
	inode uint64
	there int64     // bytes at the server, as far as is known
	busy  bool      // it is part of the present session, and has no result
	tries int       // that failed for its own sake, such as since it was cut
	after time.Time // the next try
}

// early are the files that are sent while they grow. It is safe for concurrent use.
type early struct {
	mu     sync.Mutex // guards the following
	files  map[string]*growing
	cancel context.CancelFunc // of the present session, nil if there is none
	ended  chan struct{}      // closed when that has ended
}

// set replaces the files that arrive: the inode by path.
func (e *early) set(arriving map[string]uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.files == nil {
		e.files = map[string]*growing{}
	}
	maps.DeleteFunc(e.files, func(p string, g *growing) bool {
		_, still := arriving[p]
		return !still && !g.busy
	})
	for p, inode := range arriving {
		switch g := e.files[p]; {
		case g == nil:
			e.files[p] = &growing{inode: inode}
		case g.inode != inode:
			g.inode, g.there = inode, 0
		}
	}
}

// there returns how many bytes of a file are at the server.
func (e *early) there(p string) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if g := e.files[p]; g != nil {
		return g.there
	}
	return 0
}

// find returns a file of which more is to be sent now, and how much of it is to be there then. With
// take, it is part of the session from now on.
func (e *early) find(root *os.Root, take bool, now time.Time) (path string, to int64, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range slices.Sorted(maps.Keys(e.files)) {
		g := e.files[p]
		if g.busy || now.Before(g.after) {
			continue
		}
		v := look(root, p)
		if v == nil {
			continue
		}
		if v.Inode != g.inode {
			g.inode, g.there = v.Inode, 0
		}
		to := earlyTo(g.there, v.Size)
		if to > 0 {
			to = earlyTo(g.there, dense(root, p, v.Size))
		}
		if to > 0 {
			g.busy = take
			return p, to, true
		}
	}
	return "", 0, false
}

// dense returns how many bytes a file has before its first hole. A program that claims all the space
// first fills the holes later: until then, they would be sent as zeros.
func dense(root *os.Root, p string, size int64) int64 {
	f, err := root.OpenFile(p, openFlags, 0)
	if err != nil {
		return 0
	}
	defer f.Close()
	return dataOf(f, size)
}

// result takes what became of a file that find has returned.
func (e *early) result(p string, there int64, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	g := e.files[p]
	if g == nil {
		return
	}
	if g.busy, g.there = false, there; err != nil {
		g.there, g.after = 0, time.Now().Add(retryAfter(g.tries))
		g.tries++
		return
	}
	g.tries = 0
}

// begin notes that a session begins, and end that it has ended.
func (e *early) begin(cancel context.CancelFunc) (end func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ended := make(chan struct{})
	e.cancel, e.ended = cancel, ended
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		cancel()
		e.cancel = nil
		for _, g := range e.files {
			g.busy = false
		}
		close(ended)
	}
}

// release returns when nothing of these files is sent early any more. The session that does so ends:
// the next one goes on with the others.
func (e *early) release(ctx context.Context, batch map[string]Version) {
	e.mu.Lock()
	busy := false
	for p := range batch {
		if g := e.files[p]; g != nil {
			busy = busy || g.busy
			delete(e.files, p)
		}
	}
	if !busy || e.cancel == nil {
		e.mu.Unlock()
		return
	}
	e.cancel()
	ended := e.ended
	e.mu.Unlock()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// sendEarly sends the beginnings of files while they arrive, until ctx ends. It never holds up files
// that are complete.
func (w *Watcher) sendEarly(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		if _, _, ok := w.findEarly(ctx, false, 0); !ok {
			return
		}
		session, cancel := context.WithCancel(ctx)
		end := w.early.begin(cancel)
		err := w.Early(session, func(ctx context.Context) (string, int64, bool) {
			return w.findEarly(ctx, true, earlyIdle)
		}, w.early.result)
		stopped := session.Err() != nil
		end()
		switch {
		case errors.Is(err, fxfer.ErrNoEarly):
			w.Log.Warn("files are sent only when they are complete", "error", err)
			return
		case err == nil || stopped:
			failures = 0
		default:
			pause := pauseAfter(failures)
			if failures == 0 { // it holds up nothing: one line is enough
				w.Log.Warn("files that grow: trying again", "in", pause.Round(time.Millisecond), "error", err)
			}
			failures++
			sleep(ctx, pause)
		}
	}
}

// findEarly waits for a file that has grown, for so long at most; 0 is forever. It returns false if
// there is none, or when ctx has ended. take is as in early.find.
func (w *Watcher) findEarly(ctx context.Context, take bool, most time.Duration) (path string, to int64, ok bool) {
	began := time.Now()
	for ctx.Err() == nil {
		if root, err := os.OpenRoot(w.Dir); err == nil {
			path, to, ok = w.early.find(root, take, time.Now())
			_ = root.Close()
		}
		if ok || most > 0 && time.Since(began) > most {
			return path, to, ok
		}
		sleep(ctx, earlyEvery)
	}
	return "", 0, false
}
