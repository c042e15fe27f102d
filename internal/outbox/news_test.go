package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

func TestNewsOf(t *testing.T) {
	t.Parallel()
	there := File{State: There, Version: Version{Size: 7}, Digest: "d"}
	for _, c := range []struct {
		path string
		file File
		want News
	}{
		{"a", there, News{Event: EventThere, At: noon, Path: "a", Bytes: 7, Digest: "d"}},
		{"a\xff", there, News{Event: EventThere, At: noon, Path: "a\xff", Raw: []byte("a\xff"), Bytes: 7, Digest: "d"}},
		{"a", File{State: Waiting, Error: "no", Tries: 1}, News{Event: EventFailed, At: noon, Path: "a", Error: "no"}},
		{"a", File{State: Waiting, Error: "no", Tries: 2}, News{}},
		{"a", File{State: Arriving}, News{}},
	} {
		n, tell := newsOf(c.path, &c.file, noon)
		if require.Equal(t, c.want.Event != "", tell); tell {
			require.Equal(t, c.want, n)
		}
	}
}

// addNews lets news about these paths wait.
func addNews(t *testing.T, w *Watcher, at time.Time, paths ...string) (gaveWay bool) {
	require.NoError(t, w.Queue.update(func(c *change) (err error) {
		for _, p := range paths {
			if gaveWay, err = c.addNews(News{Event: EventThere, At: at, Path: p}); err != nil {
				return err
			}
		}
		return nil
	}))
	return gaveWay
}

// waiting returns the paths of the news that wait, from the one after a key on.
func waiting(t *testing.T, w *Watcher, after []byte) (all []numbered, paths []string) {
	all, err := w.Queue.news(after)
	require.NoError(t, err)
	for _, n := range all {
		paths = append(paths, n.Path)
	}
	return all, paths
}

// TestTellSome keeps what somebody refuses, and tells the others before it tries that again. It gives
// up what nobody wants to hear for a day.
func TestTellSome(t *testing.T) {
	t.Parallel()
	w, _ := newWatcher(t, t.TempDir(), Then{})
	var told []string
	refused := errors.New("no")
	w.Tell = func(_ context.Context, n News) error {
		if n.Path == "b" {
			return refused
		}
		told = append(told, n.Path)
		return nil
	}
	began := time.Now().Add(-newsFor - time.Second)
	addNews(t, w, began, "old")
	addNews(t, w, time.Now(), "a", "b", "c")
	all, _ := waiting(t, w, nil)
	done, err := w.tellSome(t.Context(), all, began)
	require.Equal(t, 2, done)
	require.ErrorIs(t, err, refused)
	require.Equal(t, []string{"a"}, told)
	all, paths := waiting(t, w, all[done].key)
	require.Equal(t, []string{"c"}, paths)
	done, err = w.tellSome(t.Context(), all, began)
	require.NoError(t, err)
	require.Equal(t, 1, done)
	_, paths = waiting(t, w, all[0].key)
	require.Equal(t, []string{"b"}, paths)

	require.NoError(t, w.begin())
	_, paths = waiting(t, w, nil)
	require.Equal(t, []string{"b"}, paths, "the next process tells it")
	w.Tell = nil
	require.NoError(t, w.begin())
	_, paths = waiting(t, w, nil)
	require.Equal(t, []string{"b"}, paths, "fxfer watch, while the server is stopped")
}

// TestToldOnce tells news once though the queue cannot be written for a while.
func TestToldOnce(t *testing.T) {
	t.Parallel()
	w, _ := newWatcher(t, t.TempDir(), Then{})
	var told []string
	w.Tell = func(_ context.Context, n News) error {
		told = append(told, n.Path)
		return nil
	}
	addNews(t, w, time.Now(), "a", "b")
	queue := w.Queue
	all, _ := waiting(t, w, nil)
	w.Queue = &Queue{path: filepath.Join(queue.path, "no folder", "queue")}
	for range 2 {
		done, err := w.tellSome(t.Context(), all, time.Now())
		require.Error(t, err)
		require.Zero(t, done)
	}
	w.Queue = queue
	addNews(t, w, time.Now(), "c")
	all, _ = waiting(t, w, nil)
	done, err := w.tellSome(t.Context(), all, time.Now())
	require.NoError(t, err)
	require.Equal(t, 3, done)
	require.Equal(t, []string{"a", "b", "c"}, told)
	require.Empty(t, w.told)
	_, paths := waiting(t, w, nil)
	require.Empty(t, paths)
}

// TestNoWebhook removes the news of a share that has no webhook any more.
func TestNoWebhook(t *testing.T) {
	t.Parallel()
	x, w, _ := newWaited(t)
	addNews(t, w, time.Now(), "a")
	ctx, end := context.WithCancel(t.Context())
	end()
	require.NoError(t, x.watch(ctx, fxfer.Options{Home: t.TempDir()}, w.Log))
	_, paths := waiting(t, w, nil)
	require.Empty(t, paths)
}

// TestIsOld gives up news for which there was a day, in which somebody tried to tell them.
func TestIsOld(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	for _, c := range []struct {
		at, began time.Duration // ago
		want      bool
	}{
		{25 * hour, 25 * hour, true},
		{hour, 100 * hour, false},
		{100 * hour, 0, false}, // the host was off
		{100 * hour, 25 * hour, true},
		{-100 * hour, 25 * hour, false}, // the clock was set back
	} {
		require.Equal(t, c.want, isOld(noon.Add(-c.at), noon.Add(-c.began), noon), "%+v", c)
	}
}

// TestNewsOfGone tells of a file that goes here while its session lasts, whether a scan has missed it or
// not, and of none that did not arrive.
func TestNewsOfGone(t *testing.T) {
	t.Parallel()
	w, root := newWatcher(t, t.TempDir(), Then{})
	w.Tell = func(context.Context, News) error { return nil }
	for _, p := range []string{"missed", "unseen", "changed", "failed"} {
		require.NoError(t, os.WriteFile(filepath.Join(w.Dir, p), []byte("page"), 0o600))
		queueFiles(t, w.Queue, map[string]File{p: {State: Waiting, Version: *look(root, p)}})
	}
	batch, err := w.take(time.Now())
	require.NoError(t, err)
	require.Len(t, batch, 4)
	w.Send = func(_ context.Context, _ iter.Seq[string], _ func(string) bool, result func(Result)) error {
		for p := range batch {
			r := Result{Path: p, Digest: "d"}
			if p == "failed" {
				r = Result{Path: p, Err: fs.ErrNotExist}
			}
			result(r)
		}
		require.NoError(t, root.Remove("missed"))
		require.NoError(t, root.Remove("failed"))
		require.NoError(t, os.WriteFile(filepath.Join(w.Dir, "changed"), []byte("other page"), 0o600))
		_, err := w.scan(time.Now(), make(chan struct{}, 1), nil)
		require.NoError(t, err)
		return root.Remove("unseen")
	}
	require.NoError(t, w.sendBatch(t.Context(), batch, make(chan struct{}, 1)))
	all, paths := waiting(t, w, nil)
	require.Equal(t, []string{"missed", "unseen"}, paths)
	for _, n := range all {
		require.Equal(t, News{Event: EventThere, At: n.At, Path: n.Path, Bytes: 4, Digest: "d"}, n.News)
	}
	_, files, err := w.Queue.List()
	require.NoError(t, err)
	require.Len(t, files, 1, "changed")
}

// TestMaxNews gives up the oldest news if there are too many.
func TestMaxNews(t *testing.T) {
	t.Parallel()
	w, _ := newWatcher(t, t.TempDir(), Then{})
	require.False(t, addNews(t, w, noon, "first", "second"))
	require.NoError(t, w.Queue.update(func(c *change) error {
		c.made = true
		return c.tx.Bucket(newsBucket).SetSequence(maxNews)
	}))
	require.True(t, addNews(t, w, noon, "third"))
	_, paths := waiting(t, w, nil)
	require.Equal(t, []string{"second", "third"}, paths)
}

// TestWebhook sends files while the webhook fails and hangs. When it is back, it hears of all, though it
// refuses to hear of the first.
func TestWebhook(t *testing.T) {
	t.Parallel()
	type message struct {
		News
		Share string `json:"share"`
		Text  string `json:"text"`
	}
	heard, hangs, release := make(chan message, 100), make(chan struct{}), make(chan struct{})
	calls := 0
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // one call at a time
		var m message
		err := json.NewDecoder(r.Body).Decode(&m)
		switch calls++; {
		case calls == 1:
			http.Error(w, "", http.StatusServiceUnavailable)
		case calls == 2:
			close(hangs)
			<-release
			panic(http.ErrAbortHandler)
		case m.Path == "0": // it refuses this one for good
			http.Error(w, "", http.StatusBadRequest)
		case err != nil || r.Method != http.MethodPost || r.Header.Get("Authorization") != "Bearer token":
			http.Error(w, "", http.StatusBadRequest)
		default:
			heard <- m
		}
	}))
	defer hook.Close()
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("token\n"), 0o600))

	w, _ := newWatcher(t, t.TempDir(), Then{})
	w.Settle = MinSettle
	w.Tell = Webhook{URL: hook.URL, Secret: secret}.tell("scans", time.Hour)
	w.Send = func(_ context.Context, paths iter.Seq[string], _ func(string) bool, result func(Result)) error {
		for p := range paths {
			r := Result{Path: p, Digest: "d"}
			if p == "bad" {
				r = Result{Path: p, Err: errors.New("permission denied")}
			}
			result(r)
		}
		return nil
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	write := func(name string) { require.NoError(t, os.WriteFile(filepath.Join(w.Dir, name), []byte("page"), 0o600)) }
	for _, name := range []string{"0", "a", "bad"} {
		write(name)
	}
	<-hangs
	changed, done := w.Queue.follow("late")
	defer done()
	write("late")
	for f := (*File)(nil); f == nil || f.State != There; {
		<-changed // the webhook still hangs
		var err error
		f, err = w.Queue.file("late")
		require.NoError(t, err)
	}
	close(release)
	got := map[string]message{}
	for len(got) < 3 {
		m := <-heard
		got[m.Path] = m
	}
	for path, text := range map[string]string{"a": "is at its destination", "late": "is at its destination", "bad": "permission denied"} {
		m := got[path]
		require.Equal(t, "scans", m.Share)
		require.EqualValues(t, 4, m.Bytes)
		require.NotZero(t, m.At)
		require.Contains(t, m.Text, text)
		if path == "bad" {
			require.Equal(t, EventFailed, m.Event)
		} else {
			require.Equal(t, EventThere, m.Event)
			require.Equal(t, "d", m.Digest)
		}
	}
	end()
	require.NoError(t, <-ended)
}

// TestWebhookDeadline ends a call of a webhook that never answers, and does not send its secret if that
// cannot be read.
func TestWebhookDeadline(t *testing.T) {
	t.Parallel()
	calls := 0
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		calls++
		_, _ = io.Copy(io.Discard, r.Body) // only then does the server see the client leave
		<-r.Context().Done()
	}))
	err := Webhook{URL: hook.URL, Secret: filepath.Join(t.TempDir(), "missing")}.tell("s", time.Hour)(t.Context(), News{})
	require.ErrorIs(t, err, os.ErrNotExist)
	err = Webhook{URL: hook.URL}.tell("s", time.Second)(t.Context(), News{})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	hook.Close()
	require.LessOrEqual(t, calls, 1)
}
