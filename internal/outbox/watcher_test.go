package outbox

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fxfer/fxfer/pkg/fxfer"
	"github.com/stretchr/testify/require"
)

// queueFiles makes the queue hold these files.
func queueFiles(t *testing.T, q *Queue, files map[string]File) {
	require.NoError(t, q.update(func(c *change) (err error) {
		for p, f := range files {
			err = errors.Join(err, c.put(p, &f))
		}
		return err
	}))
}

// TestFollow signals a change of a file to those who follow this file, and to nobody else.
func TestFollow(t *testing.T) {
	t.Parallel()
	w, _ := newWatcher(t, t.TempDir(), Then{})
	a, done := w.Queue.follow("a")
	again, doneToo := w.Queue.follow("a")
	defer doneToo()
	b, doneB := w.Queue.follow("b")
	defer doneB()
	file := map[string]File{"a": {State: Waiting, Version: one}}
	queueFiles(t, w.Queue, file)
	require.Len(t, a, 1)
	require.Len(t, again, 1)
	require.Empty(t, b)
	<-a
	done()
	queueFiles(t, w.Queue, file)
	require.Empty(t, a)
	require.Len(t, again, 1)
}

// TestTakeFails sends nothing of a batch that cannot be noted in the queue.
func TestTakeFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, root := newWatcher(t, dir, Then{})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o600))
	queueFiles(t, w.Queue, map[string]File{
		"a": {State: Waiting, Version: *look(root, "a"), Arrived: noon},
		"b": {State: Waiting, Version: two, Arrived: noon.Add(time.Second)}, // it has gone, which is noted with the time
	})
	batch, err := w.take(time.Date(10_001, 1, 1, 0, 0, 0, 0, time.UTC)) // JSON has no such year
	require.Error(t, err)
	require.Empty(t, batch)
}

// TestThenChanges compares what is there once more before files are removed for the first time.
func TestThenChanges(t *testing.T) {
	t.Parallel()
	w, _ := newWatcher(t, t.TempDir(), Then{})
	state := func(then Then) State {
		w.Then = then
		require.NoError(t, w.begin())
		_, files, err := w.Queue.List()
		require.NoError(t, err)
		require.Len(t, files, 1)
		return files[0].State
	}
	there := map[string]File{"a": {State: There, Version: one, There: noon}}
	queueFiles(t, w.Queue, there)
	require.Equal(t, There, state(Then{}))
	require.Equal(t, Waiting, state(Then{Delete: true}))
	queueFiles(t, w.Queue, there)
	require.Equal(t, There, state(Then{MoveTo: "x"}), "it was compared since")
}

// TestFirstSession asks the server before there is a file. It goes on asking while the server is away,
// and reports that once. A refusal ends the watcher, unless a session has ever succeeded.
func TestFirstSession(t *testing.T) {
	t.Parallel()
	away := &fxfer.Error{Kind: fxfer.KindUnreachable, Err: errors.New("away")}
	refused := &fxfer.Error{Kind: fxfer.KindTrust, Err: errors.New("no right")}
	for name, c := range map[string]struct {
		answers []error // of the sessions
		paused  bool
		want    error
		log     []string
	}{
		"at once":          {answers: []error{nil}, log: []string{"connected"}},
		"away":             {answers: []error{away, away, away, nil}, log: []string{"trying again", "connected"}},
		"refused":          {answers: []error{refused}, want: refused},
		"away and refused": {answers: []error{away, away, refused}, want: refused, log: []string{"trying again"}},
		"paused":           {paused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				w, _ := newWatcher(t, t.TempDir(), Then{})
				require.NoError(t, w.Queue.Pause(c.paused))
				w.Log = slog.New(slog.NewTextHandler(&log, nil))
				sessions := 0
				w.Send = func(_ context.Context, paths iter.Seq[string], _ func(string) bool, _ func(Result)) error {
					require.Empty(t, slices.Collect(paths))
					sessions++
					return c.answers[sessions-1]
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				require.ErrorIs(t, w.sendAll(ctx, make(chan struct{}), make(chan struct{}, 1)), c.want)
				require.Len(t, c.answers, sessions)
				var said []string
				for line := range strings.Lines(log.String()) {
					for _, text := range []string{"connected", "trying again"} {
						if strings.Contains(line, text) {
							said = append(said, text)
						}
					}
				}
				require.Equal(t, c.log, said)
				a, err := w.Queue.About()
				require.NoError(t, err)
				require.Equal(t, c.want == nil && !c.paused, a.Reached)
			})
		})
	}
}

// TestOverlap: sessions for files that somebody waits for begin while others run, up to a bound. A file
// is in one of them at a time, and after one has failed, none begins until all have ended.
func TestOverlap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w, root := newWatcher(t, dir, Then{})
		w.urgent = newUrgent()
		running := map[string]chan error{} // sessions by their files
		var mu sync.Mutex                  // guards running
		w.Send = func(ctx context.Context, paths iter.Seq[string], _ func(string) bool, result func(Result)) error {
			all := slices.Collect(paths)
			end := make(chan error)
			mu.Lock()
			running[strings.Join(all, " ")] = end
			mu.Unlock()
			var err error
			select {
			case err = <-end:
			case <-ctx.Done():
			}
			for _, p := range all {
				result(Result{Path: p})
			}
			mu.Lock()
			defer mu.Unlock()
			delete(running, strings.Join(all, " "))
			return err
		}
		sessions := func() []string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Sorted(maps.Keys(running))
		}
		end := func(files string, err error) {
			mu.Lock()
			c := running[files]
			mu.Unlock()
			c <- err
			synctest.Wait()
		}
		wake := make(chan struct{}, 1)
		arrive := func(urgent bool, files ...string) {
			for _, p := range files {
				require.NoError(t, os.WriteFile(filepath.Join(dir, p), nil, 0o600))
				if urgent {
					t.Cleanup(w.urgent.add(p))
				}
				queueFiles(t, w.Queue, map[string]File{p: {State: Waiting, Version: *look(root, p), Arrived: time.Now()}})
			}
			wake <- struct{}{}
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		over := make(chan error, 1)
		arrive(false, "a", "b")
		go func() { over <- w.sendAll(ctx, wake, make(chan struct{}, 1)) }()
		require.Equal(t, []string{"a b"}, sessions())
		arrive(false, "c")
		require.Equal(t, []string{"a b"}, sessions(), "nobody waits for c")
		arrive(true, "d", "e")
		arrive(true, "f")
		arrive(true, "g")
		require.Equal(t, []string{"a b", "d e", "f", "g"}, sessions())
		arrive(true, "h")
		require.Len(t, sessions(), maxSessions)
		end("f", nil)
		require.Equal(t, []string{"a b", "d e", "g", "h"}, sessions())

		require.NoError(t, os.WriteFile(filepath.Join(dir, "d"), []byte("new"), 0o600))
		end("h", nil)
		arrive(true, "d")
		require.Equal(t, []string{"a b", "d e", "g"}, sessions(), "d is under way")
		end("g", errors.New("the line is away"))
		arrive(true, "i")
		require.Equal(t, []string{"a b", "d e"}, sessions(), "a session has failed")
		end("a b", nil)
		end("d e", nil)
		require.Empty(t, sessions())
		time.Sleep(time.Minute)
		require.Equal(t, []string{"c d g i"}, sessions(), "all in one")
		end("c d g i", nil)

		arrive(true, "j")
		arrive(false, "k", "l")
		require.Equal(t, []string{"j"}, sessions(), "nobody waits for k")
		time.Sleep(maxPatience + 2*retryAfter(0))
		require.Equal(t, []string{"j", "k l"}, sessions(), "k has waited for long, and somebody always waits for j")
		arrive(false, "m")
		arrive(true, "n")
		time.Sleep(maxPatience + 2*retryAfter(0))
		require.Equal(t, []string{"j", "k l", "n"}, sessions(), "k is under way")
		cancel()
		require.NoError(t, <-over)
	})
}

// sendTwo sends the files a and b, and returns what the queue knows of them afterwards.
func sendTwo(t *testing.T, send func(paths iter.Seq[string], result func(Result)) error) (a, b File) {
	dir := t.TempDir()
	w, root := newWatcher(t, dir, Then{})
	batch, files := map[string]Version{}, map[string]File{}
	for _, p := range []string{"a", "b"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, p), nil, 0o600))
		batch[p] = *look(root, p)
		files[p] = File{State: Sending, Version: batch[p]}
	}
	queueFiles(t, w.Queue, files)
	w.Send = func(_ context.Context, paths iter.Seq[string], _ func(string) bool, result func(Result)) error {
		return send(paths, result)
	}
	_ = w.sendBatch(t.Context(), batch, make(chan struct{}, 1))
	_, list, err := w.Queue.List()
	require.NoError(t, err)
	return list[0].File, list[1].File
}

// TestSecondSession counts no result of a session before the last one.
func TestSecondSession(t *testing.T) {
	t.Parallel()
	a, b := sendTwo(t, func(paths iter.Seq[string], result func(Result)) error {
		for p := range paths {
			result(Result{Path: p})
		}
		for p := range paths { // the line was away, and a is left out now
			if p == "b" {
				result(Result{Path: p})
			}
		}
		return nil
	})
	require.Equal(t, Arriving, a.State)
	require.Equal(t, There, b.State)
}

// TestFailedSession takes no file for there after a session that failed: the server may lose it.
func TestFailedSession(t *testing.T) {
	t.Parallel()
	a, b := sendTwo(t, func(paths iter.Seq[string], result func(Result)) error {
		for p := range paths {
			if p == "a" {
				result(Result{Path: p})
			} else {
				result(Result{Path: p, Err: errors.New("permission denied")})
			}
		}
		return errors.New("the line is away")
	})
	require.Equal(t, Waiting, a.State)
	require.Empty(t, a.Error)
	require.Equal(t, Waiting, b.State)
	require.Equal(t, "permission denied", b.Error)
}

// TestAlone lets two watchers of a folder run if neither removes files.
func TestAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ first, second, refused bool }{
		{}, {first: true, refused: true}, {second: true, refused: true},
	} {
		home, dir := t.TempDir(), t.TempDir()
		watcher := func(url string, removes bool) *Watcher {
			w, _ := newWatcher(t, dir, Then{Delete: removes})
			w.Queue, w.URL = OpenQueue(home, dir, url), url
			require.NoError(t, w.begin())
			return w
		}
		first, second := watcher("one", c.first), watcher("two", c.second)
		unlock, err := first.Queue.lock(time.Second)
		require.NoError(t, err)
		if err = second.checkAlone(); c.refused {
			require.ErrorIs(t, err, ErrOther)
		} else {
			require.NoError(t, err)
		}
		unlock()
		require.NoError(t, second.checkAlone(), "the first one does not run")
	}
}

// TestLongPath leaves out a path that the queue cannot hold, and scans the rest.
func TestLongPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, root := newWatcher(t, dir, Then{})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o600))
	at := root
	for range maxPath/200 + 1 {
		name := strings.Repeat("d", 200)
		require.NoError(t, at.Mkdir(name, 0o700))
		below, err := at.OpenRoot(name)
		require.NoError(t, err)
		t.Cleanup(func() { _ = below.Close() })
		at = below
	}
	_, err := w.scan(noon, make(chan struct{}, 1), nil)
	require.NoError(t, err)
	f, err := scan(root, nil, "")
	require.NoError(t, err)
	require.Len(t, f.errs, 1)
	require.ErrorContains(t, f.errs[0], "the path has more than")
	require.Contains(t, f.files, "a")
}

// TestOwn leaves out what fxfer itself makes, in any case of letters, and snapshots.
func TestOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, root := newWatcher(t, dir, Then{})
	require.NoError(t, os.Mkdir(filepath.Join(dir, ".FXFER-snapshots"), 0o700))
	for _, p := range []string{"2026-11-23T091502Z", "beside"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, p), 0o700))
	}
	for _, p := range []string{".fxfer", ".fxfer-a", ".FXFER-b", ".FXFER-snapshots/c", "2026-11-23T091502Z/d", "beside/e"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.FromSlash(p)), nil, 0o600))
	}
	f, err := scan(root, nil, "")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{".fxfer", "beside/e"}, slices.Collect(maps.Keys(f.files)))
}

// TestRest: a large folder is scanned seldom, and one whose scan was held up once as often as before.
func TestRest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ took, before, want time.Duration }{
		{time.Millisecond, time.Millisecond, gatherFor},
		{time.Minute, 0, gatherFor}, // the first one
		{time.Minute, 20 * time.Millisecond, 200 * time.Millisecond},
		{20 * time.Millisecond, time.Minute, 200 * time.Millisecond},
		{3 * time.Second, 2 * time.Second, 20 * time.Second},
	} {
		require.Equal(t, c.want, restAfter(c.took, c.before))
	}
}
