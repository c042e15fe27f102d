package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/filter"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// Watcher sends what becomes complete in a folder.
type Watcher struct {
	Queue  *Queue
	Dir    string         // absolute
	URL    string         // without secrets, for the queue's description
	Settle time.Duration  // for so long a complete file has not changed; at least MinSettle
	Marker string         // suffix of marker files, "" for none
	Rules  *filter.Filter // of files that are not sent; nil for none
	Then   Then
	// Send sends these files, which are paths below Dir with slashes, and calls result for each whose
	// outcome is known, from one goroutine at a time. It asks intact about each path after it has
	// read the metadata there. It sends the file as these describe it, or not at all. It may read the
	// paths several times; what came before does not count then. It returns nil if what the server
	// has is durable, whatever the results say, and otherwise why the session failed as a whole. Without
	// paths, it shows whether the server would take files.
	Send func(ctx context.Context, paths iter.Seq[string], intact func(path string) bool, result func(Result)) error
	// Early sends the beginnings of files while they grow, in one session, until next returns false; nil
	// sends only complete files. It is as Client.SendEarly.
	Early func(ctx context.Context, next func(context.Context) (string, int64, bool), result func(path string, there int64, err error)) error
	// Tell tells somebody news, once or more often; nil tells nobody. After an error, Run calls it again
	// later, also in another process, for a day. It does not hold up Send. Without it, what others did not
	// tell stays in the queue.
	Tell func(context.Context, News) error
	Log  *slog.Logger

	news   chan struct{}   // signalled when there are some
	told   map[string]bool // keys of news that are told and still in the queue; only tellAll uses it
	urgent urgent
	early  early
	linger time.Duration // for so long a file stays here once it is there, before Then

	sessions sessions // only the sending goroutine uses it

	steady map[string]firstSeen // files that are arriving; only the scanning goroutine uses this and what follows
	aside  map[string]firstSeen // files in asideName, as they were first seen there
	kept   map[string]kept      // files that could not be removed or moved
	unread map[string]bool      // errors of scans that are reported
}

// firstSeen is a version of a file and when a scan first found it.
type firstSeen struct {
	version Version
	since   time.Time
}

// kept is a file that could not be removed or moved so many times.
type kept struct {
	version Version
	tries   int
	until   time.Time // the next try
}

// DefaultSettle is what users get who name no Settle.
const DefaultSettle = 5 * time.Second

// MinSettle is the least Settle. Time stamps of file systems stand still for some milliseconds: a
// shorter one could miss a write.
const MinSettle = 100 * time.Millisecond

const (
	scanEvery  = 30 * time.Second       // the longest time between scans, where the kernel notifies
	pollEvery  = 2 * time.Second        // and where it does not
	gatherFor  = 100 * time.Millisecond // notifications of so much time lead to one scan
	scanShare  = 10                     // scans take at most one part in so many of the time
	lookEvery  = time.Second            // for changes that commands made in the queue
	maxBackoff = time.Minute            // between sessions that fail

	maxSessions = 4 // at a time; all but one are for files that somebody waits for
)

// Run watches the folder until ctx ends, and then returns nil. Before, it returns an error if the
// queue or the folder cannot be read at the beginning, ErrRunning or ErrOther if another watcher is
// in the way, and why a session failed if waiting does not cure that and none has ever succeeded.
func (w *Watcher) Run(ctx context.Context) error {
	unlock, err := w.Queue.lock(time.Second)
	if err != nil {
		return err
	}
	defer unlock()
	if err := w.begin(); err != nil {
		return err
	}
	if err := w.checkAlone(); err != nil {
		return err
	}
	if kind := remoteType(w.Dir); kind != "" && w.Then.removes() {
		w.Log.Warn(fmt.Sprintf("%s is on %s, which does not say who has a file open for writing: "+
			"what a program writes to a file more than a second after it was sent can be lost", w.Dir, kind))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	wake, sent := make(chan struct{}, 1), make(chan struct{}, 1)
	var sending sync.WaitGroup
	sending.Go(func() { cancel(w.sendAll(ctx, wake, sent)) })
	if w.Early != nil {
		sending.Go(func() { w.sendEarly(ctx) })
	}
	if w.Tell != nil {
		sending.Go(func() { w.tellAll(ctx) })
	}
	err = w.scanAll(ctx, wake, sent)
	cancel(err)
	sending.Wait()
	w.emptyAside()
	if err == nil && !errors.Is(context.Cause(ctx), context.Canceled) {
		err = context.Cause(ctx)
	}
	return err
}

// begin prepares the queue: what a crash left in state Sending waits again. So do the files that are
// there if Then removes files from now on: the server may have lost them since.
func (w *Watcher) begin() error {
	w.steady, w.aside, w.kept, w.unread = map[string]firstSeen{}, map[string]firstSeen{}, map[string]kept{}, map[string]bool{}
	w.news, w.told = make(chan struct{}, 1), map[string]bool{}
	return w.Queue.update(func(c *change) error {
		before, err := about(c.tx)
		if err != nil {
			return err
		}
		err = c.setAbout(func(a *About) { a.Dir, a.URL, a.Removes = w.Dir, w.URL, w.Then.removes() })
		if err == nil && w.Then.removes() && !before.Removes {
			err = compareAgain(c)
		}
		if err != nil {
			return err
		}
		return wait(c, func(string) bool { return true })
	})
}

// compareAgain lets the files that are there wait for another session.
func compareAgain(c *change) error {
	var there []named
	err := each(c.tx, func(p string, f *File) error {
		if f.State == There {
			there = append(there, named{p, &File{State: Waiting, Version: f.Version, Arrived: f.Arrived}})
		}
		return nil
	})
	for _, n := range there {
		if err == nil {
			err = c.put(n.path, n.file)
		}
	}
	return err
}

// checkAlone returns ErrOther if another watcher of the folder is running and one of the two removes
// files: the other would not get them.
func (w *Watcher) checkAlone() error {
	dir, err := os.Stat(w.Dir)
	if err != nil {
		return err
	}
	others, err := w.Queue.others()
	for _, q := range others {
		a, failed := q.About()
		if failed != nil {
			return failed
		}
		other, failed := os.Stat(a.Dir)
		if failed == nil && os.SameFile(dir, other) && (w.Then.removes() || a.Removes) && q.isRunning(time.Second) {
			return ErrOther
		}
	}
	return err
}

// wait puts files in state Sending back into state Waiting.
func wait(c *change, which func(path string) bool) error {
	all, err := c.pending()
	for _, n := range all {
		if err == nil && n.file.State == Sending && which(n.path) {
			n.file.State = Waiting
			err = c.put(n.path, n.file)
		}
	}
	return err
}

// signal wakes the reader of a channel of capacity 1.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// scanAll scans the folder again and again until ctx ends. It signals wake after each scan that made
// a file wait. sent is signalled after files have arrived at the server.
func (w *Watcher) scanAll(ctx context.Context, wake chan<- struct{}, sent <-chan struct{}) error {
	h := newHints(w.Dir, func(text string) { w.Log.Warn(text) })
	defer h.close()
	events, failures := h.events()
	var before time.Duration // that the scan before took
	for first := true; ; first = false {
		began := time.Now()
		again, err := w.scan(began, wake, h)
		switch {
		case err != nil && first:
			return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
		case err != nil:
			w.Log.Error("scan", "error", err)
			again = maxBackoff
		}
		took := time.Since(began)
		least := restAfter(took, before)
		before = took
		next := time.NewTimer(max(min(again, h.every()), least))
		soon := func() { next.Reset(max(0, least-time.Since(began))) }
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return nil
			case <-next.C:
				waiting = false
			case <-sent:
				soon()
			case _, ok := <-events:
				if !ok {
					events = nil
				}
				soon()
			case err, ok := <-failures:
				if !ok {
					failures = nil
					continue
				}
				h.failed(err)
				soon()
			}
		}
		next.Stop()
	}
}

// restAfter returns how long no scan begins after one that took so long, as did the one before. Only
// a folder that takes long each time is large: a single scan may have waited for a disk, or for a
// host that slept.
func restAfter(took, before time.Duration) time.Duration {
	return max(gatherFor, scanShare*min(took, before))
}

// scan scans the folder once and updates the queue. It returns when the next scan is due at the
// latest.
func (w *Watcher) scan(now time.Time, wake chan<- struct{}, h *hints) (again time.Duration, err error) {
	root, err := os.OpenRoot(w.Dir)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	left, err := w.finishAside(root, now)
	if err != nil {
		w.Log.Error("files that were sent", "error", err)
	}
	f, err := scan(root, w.Rules, w.Marker)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", w.Dir, cause(err))
	}
	if h != nil {
		h.watch(w.Dir, f.folders)
	}
	w.reportUnread(f)
	var gone map[string]note
	var lingers time.Duration
	waiting := false
	err = w.Queue.update(func(c *change) error {
		gone, lingers, waiting, err = w.compare(c, root, f, now)
		return err
	})
	if err != nil {
		return 0, err
	}
	if waiting {
		signal(wake)
	}
	for p, n := range gone {
		if err := setAside(root, p, n.Version); err != nil {
			w.keep(p, n.Version, now)
			w.Log.Error("remove what was sent", "path", p, "error", err)
			continue
		}
		left++
	}
	again = lingers
	if left > 0 {
		again = min(again, asideFor)
	}
	for _, s := range w.steady {
		again = min(again, untilReady(now.Sub(s.since), w.Settle, w.Marker != ""))
	}
	return again, nil
}

// untilReady returns when to look again at a file that has been steady for so long and is not ready.
// A file that stays open for writing may be closed without a notification.
func untilReady(steady, settle time.Duration, withMarker bool) time.Duration {
	switch {
	case withMarker && steady < MinSettle:
		return MinSettle - steady
	case withMarker:
		return scanEvery
	case steady < settle:
		return settle - steady
	}
	return pollEvery
}

// reportUnread reports each folder that cannot be read, once.
func (w *Watcher) reportUnread(f *found) {
	still := map[string]bool{}
	for _, err := range f.errs {
		if still[err.Error()] = true; !w.unread[err.Error()] {
			w.Log.Error("read", "error", err)
		}
	}
	w.unread = still
}

// compare updates the queue by what a scan found. It returns the files that are there and that Then
// wants gone here, with the notes about them that the queue has then, when the next one goes, and
// whether a file has begun to wait.
func (w *Watcher) compare(c *change, root *os.Root, f *found, now time.Time) (gone map[string]note, lingers time.Duration, waiting bool, err error) {
	gone, lingers = map[string]note{}, scanEvery
	w.lookAgain(root, f)
	a, err := about(c.tx)
	if err != nil {
		return nil, 0, false, err
	}
	arriving := map[string]uint64{}
	left := make(map[string]bool, len(f.files)) // not in the queue
	for p := range f.files {
		left[p] = true
	}
	changed := map[string]*File{}
	see := func(p string, old *File) {
		v := f.files[p]
		file := observe(old, v, func() bool { return w.isReady(root, f, p, v, now) }, now)
		if file.State == Arriving {
			if s, known := w.steady[p]; !known || s.version != v {
				w.steady[p] = firstSeen{v, now}
			}
			if w.Early != nil && v.Size >= earlyFrom && !a.Paused {
				arriving[p] = v.Inode
			}
			if there := w.early.there(p); there != file.Early {
				with := *file
				with.Early = there
				file = &with
			}
		} else {
			delete(w.steady, p)
		}
		if file != old {
			changed[p] = file
			waiting = waiting || file.State == Waiting
		}
		if file.State != There || !w.Then.removes() || w.isKept(p, v, now) || !hasRoomAside(root, p) {
			return
		}
		if left := untilGone(file, w.linger, now); left > 0 {
			lingers = min(lingers, left)
			return
		}
		gone[p] = note{v, f.marker(p)}
	}
	err = each(c.tx, func(p string, old *File) error {
		switch _, here := f.files[p]; {
		case here:
			delete(left, p)
			see(p, old)
		case !f.hides(p):
			delete(w.steady, p)
			if _, aside := w.aside[p]; !aside {
				delete(w.kept, p)
			}
			if file := miss(old, now); file != old {
				changed[p] = file
			}
		}
		return nil
	})
	for p := range left {
		see(p, nil)
	}
	w.early.set(arriving)
	for p, file := range changed {
		if err == nil {
			err = c.put(p, file)
		}
	}
	for p, n := range gone {
		if err == nil {
			err = c.write(asideBucket, p, n)
		}
	}
	return gone, lingers, waiting, err
}

// lookAgain corrects what a scan found of urgent files: these may have come into the queue since.
func (w *Watcher) lookAgain(root *os.Root, f *found) {
	for p := range w.urgent.all() {
		v := look(root, p)
		switch {
		case v == nil:
			delete(f.files, p)
		case finds(root, p):
			f.files[p] = *v
		}
	}
}

// isReady reports whether a file that is arriving is complete.
func (w *Watcher) isReady(root *os.Root, f *found, p string, v Version, now time.Time) bool {
	s, known := w.steady[p]
	if !known || s.version != v {
		return false
	}
	return ready(now.Sub(s.since), w.Settle, v, f.marker(p), w.Marker != "", func() bool { return isOpen(root, p) })
}

// session is one that has ended.
type session struct {
	batch  map[string]Version
	others bool // it had files that nobody waited for
	err    error
}

// sessions are those that run. Only the goroutine that begins them uses it, apart from ended.
type sessions struct {
	running
	files map[string]bool // that they send
	ended chan session
}

// begin runs send in a session of its own. Somebody waits for the files that are urgent.
func (s *sessions) begin(batch map[string]Version, urgent map[string]bool, send func() error) {
	s.n++
	others := false
	for p := range batch {
		s.files[p] = true
		others = others || !urgent[p]
	}
	s.others = s.others || others
	go func() { s.ended <- session{batch, others, send()} }()
}

// end notes that a session has ended.
func (s *sessions) end(x session) {
	s.n--
	s.others = s.others && !x.others // there is one such session at a time
	for p := range x.batch {
		delete(s.files, p)
	}
}

// sendAll sends batches until ctx ends. It looks for the next one when wake is signalled, when a
// command has changed the queue, and when a file is due again. The first session need not have a
// file: it shows whether the server takes any.
//
// A session takes some round trips to begin and to end. Files that somebody waits for do not wait for
// that: other sessions for them begin meanwhile, and one for the others if these wait for long. After one has failed, none begins until all have ended.
func (w *Watcher) sendAll(ctx context.Context, wake <-chan struct{}, sent chan<- struct{}) error {
	w.sessions = sessions{files: map[string]bool{}, ended: make(chan session)}
	run := &w.sessions
	defer func() {
		for ; run.n > 0; run.n-- {
			<-run.ended
		}
	}()
	connected := false
	var failed *session
	for failures := 0; ctx.Err() == nil; {
		before := w.Queue.changed()
		urgent := w.urgent.all()
		if failed == nil && (run.n == 0 || run.n < maxSessions && (len(urgent) > 0 || !run.others)) {
			batch, err := w.take(time.Now())
			switch {
			case err != nil:
				failed = &session{err: err}
			case len(batch) > 0, batch != nil && !connected && run.n == 0:
				run.begin(batch, urgent, func() error { return w.sendBatch(ctx, batch, sent) })
				continue
			}
		}
		if failed != nil && run.n == 0 {
			if w.isFinal(failed.err) {
				return failed.err
			}
			pause := pauseAfter(failures)
			if failures == 0 || len(failed.batch) > 0 { // while nothing waits, one line is enough
				w.Log.Warn("trying again", "in", pause.Round(time.Millisecond), "error", failed.err)
			}
			failures++
			failed = nil
			sleep(ctx, pause)
			continue
		}
		x := w.idle(ctx, wake, before)
		switch {
		case x == nil:
			continue
		case ctx.Err() != nil:
		case x.err != nil:
			failed = cmp.Or(failed, x)
		default:
			if !connected {
				w.Log.Info("connected", "url", w.URL)
			}
			connected, failures = true, 0
		}
		run.end(*x)
	}
	return nil
}

// pauseAfter returns how long to wait after so many failures in a row before the present one.
func pauseAfter(failures int) time.Duration {
	pause := min(time.Second<<min(failures, 10), maxBackoff)
	return pause/2 + rand.N(pause)/2 //nolint:gosec // jitter
}

// isFinal reports whether waiting does not cure the error of a session: the URL or the trust in its
// server is wrong, and no session has ever succeeded.
func (w *Watcher) isFinal(err error) bool {
	switch fxfer.KindOf(err) {
	case fxfer.KindUsage, fxfer.KindTrust, fxfer.KindNotFound:
		a, failed := w.Queue.About()
		return failed == nil && !a.Reached
	default:
		return false
	}
}

// idle returns when a session has ended, or with nil when there may be something to send. before is
// the mark of the queue that had nothing.
func (w *Watcher) idle(ctx context.Context, wake <-chan struct{}, before [2]int64) *session {
	due := time.NewTimer(retryAfter(0))
	defer due.Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case x := <-w.sessions.ended:
			return &x
		case <-wake:
			return nil
		case <-w.urgent.queued:
			return nil
		case <-due.C: // a file may be due again
			return nil
		case <-look.C:
			if w.Queue.changed() != before {
				return nil
			}
		}
	}
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// take marks the files of the next batch as being sent, and returns them: none with an error, and nil
// if the queue is paused. While a session runs, these are only files that somebody waits for.
func (w *Watcher) take(now time.Time) (batch map[string]Version, err error) {
	err = w.Queue.update(func(c *change) error {
		batch = nil
		a, err := about(c.tx)
		if err != nil || a.Paused {
			return err
		}
		batch = map[string]Version{}
		run, urgent := w.sessions, w.urgent.all()
		if err := wait(c, func(p string) bool { return !run.files[p] }); err != nil { // if the last end was not stored
			return err
		}
		waiting, err := c.pending()
		if err != nil {
			return err
		}
		waiting = slices.DeleteFunc(waiting, func(n named) bool { return run.files[n.path] })
		for _, n := range next(waiting, urgent, run.running, now) {
			if n.file.State = Sending; w.isIntact(n.path, n.file.Version) {
				batch[n.path] = n.file.Version
			} else {
				n.file = &File{State: Arriving, Version: n.file.Version, Arrived: now} // the next scan knows more
			}
			if err := c.put(n.path, n.file); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	return batch, nil
}

// sendBatch sends files in one session and stores the results. It returns the error of the session,
// which is not about single files.
//
// The server makes the names of files durable at the end of a session. So a file is there only
// after a session that has ended well. After any other, the next one finds it by its digest.
func (w *Watcher) sendBatch(ctx context.Context, batch map[string]Version, sent chan<- struct{}) error {
	w.early.release(ctx, batch)
	paths := slices.Sorted(maps.Keys(batch))
	var mu sync.Mutex // guards results
	results := map[string]Result{}
	list := func(yield func(string) bool) {
		mu.Lock()
		clear(results)
		mu.Unlock()
		for _, p := range paths {
			if !yield(p) {
				return
			}
		}
	}
	intact := func(p string) bool {
		v, ours := batch[p]
		return ours && w.isIntact(p, v)
	}
	failed := w.Send(ctx, list, intact, func(r Result) {
		mu.Lock()
		defer mu.Unlock()
		if _, ours := batch[r.Path]; ours { // others are folders
			results[r.Path] = r
		}
	})
	if failed != nil {
		maps.DeleteFunc(results, func(_ string, r Result) bool { return r.Err == nil })
	} else {
		for _, p := range paths {
			if _, known := results[p]; !known {
				results[p] = Result{Path: p, Err: errLeftOut}
			}
		}
	}
	err := w.store(batch, results, failed, ctx.Err() != nil)
	if err == nil && len(results) > 0 {
		signal(sent)
	}
	return errors.Join(failed, err)
}

// isIntact reports whether a file is still of this version, and nobody writes to it.
func (w *Watcher) isIntact(p string, v Version) bool {
	root, err := os.OpenRoot(w.Dir)
	if err != nil {
		return false
	}
	defer root.Close()
	now := look(root, p)
	return now != nil && *now == v && !isOpen(root, p)
}

// store stores the results of a session, lets files without a result wait again, and notes how the
// session ended.
func (w *Watcher) store(batch map[string]Version, results map[string]Result, failed error, stopped bool) error {
	root, err := os.OpenRoot(w.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	now := time.Now()
	defer signal(w.news)
	return w.Queue.update(func(c *change) error {
		for _, p := range slices.Sorted(maps.Keys(results)) {
			old, err := c.file(p)
			if err != nil {
				return err
			}
			file := settle(old, results[p], batch[p], look(root, p), now)
			if file == old && file != nil {
				continue
			}
			if err := c.put(p, file); err != nil {
				return err
			}
			w.report(results[p], file)
			if err := w.tellLater(c, results[p], batch[p], file, now); err != nil {
				return err
			}
		}
		err := wait(c, func(p string) bool { _, ours := batch[p]; return ours })
		if err != nil || stopped {
			return err
		}
		return c.setAbout(func(a *About) {
			if a.Error = ""; failed != nil {
				a.Error = failed.Error()
				return
			}
			a.Reached = true
		})
	})
}

// report logs what became of a file.
func (w *Watcher) report(r Result, f *File) {
	switch {
	case f != nil && f.State == There:
		w.Log.Info("there", "path", r.Path, "bytes", f.Version.Size)
	case f != nil && f.Error != "":
		w.Log.Warn("failed", "path", r.Path, "error", r.Err, "again", f.After.Format(time.TimeOnly))
	}
}

// tellLater stores what Tell has to tell of a file after its result, nil for one that is gone here.
func (w *Watcher) tellLater(c *change, r Result, sent Version, f *File, now time.Time) error {
	if f == nil && r.Err == nil {
		f = &File{State: There, Version: sent, Digest: r.Digest}
	}
	if w.Tell == nil || f == nil {
		return nil
	}
	n, tell := newsOf(r.Path, f, now)
	if !tell {
		return nil
	}
	gaveWay, err := c.addNews(n)
	if gaveWay {
		w.Log.Warn("too much news that nobody hears: the oldest is given up")
	}
	return err
}

// changed returns a mark that differs after another process has changed the queue.
func (q *Queue) changed() (mark [2]int64) {
	if info, err := os.Stat(q.path); err == nil {
		mark = [2]int64{info.ModTime().UnixNano(), info.Size()}
	}
	return mark
}

// CheckMoveTo returns an error unless files of dir can be moved into the folder to, outside dir.
func CheckMoveTo(dir, to string) error {
	if IsInside(dir, to) {
		return fmt.Errorf("%s is inside of the watched folder", to)
	}
	into, err := os.Open(to)
	if err != nil {
		return err
	}
	defer into.Close()
	there, err := os.MkdirTemp(dir, ownPrefix+"test-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(there) }()
	from, err := os.Open(there)
	if err != nil {
		return err
	}
	defer from.Close()
	name := filepath.Base(there)
	if err := os.WriteFile(filepath.Join(there, name), nil, 0o600); err != nil {
		return err
	}
	if err := renameNew(from, name, into, name); err != nil {
		return fmt.Errorf("files cannot be moved from %s to %s: %w", dir, to, cause(err))
	}
	return os.Remove(filepath.Join(to, name))
}

// IsInside reports whether a path is that of a folder or of something in it, also behind symlinks.
func IsInside(dir, p string) bool {
	below := func(dir, p string) bool {
		rel, err := filepath.Rel(dir, p)
		return err == nil && filepath.IsLocal(rel)
	}
	return below(dir, p) || below(behindLinks(dir), behindLinks(p))
}

// behindLinks returns where a path leads, or the path itself if that is not known.
func behindLinks(p string) string {
	if real, err := filepath.EvalSymlinks(p); err == nil {
		return real
	}
	return p
}
