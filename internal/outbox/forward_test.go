package outbox

import (
	"crypto/ed25519"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// newForwarding returns the forwarding of a share with the file a, to a server that is not there, and
// what changes it.
func newForwarding(t *testing.T) (all *Forwards, f Forward) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o600))
	to, err := fxfer.ParseURL("fxfer://127.0.0.1:1/inbox")
	require.NoError(t, err)
	all = NewForwards(fxfer.Options{Home: t.TempDir()}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	t.Cleanup(all.Close)
	return all, Forward{Share: "s", Dir: dir, URL: to, Settle: time.Hour, ConfirmWithin: time.Hour}
}

// newWaited returns the forwarding of a share with the file a, for which somebody may wait, with a
// watcher that has begun and does not run, and a handle of the share's folder.
func newWaited(t *testing.T) (x *forwarding, w *Watcher, root *os.Root) {
	all, f := newForwarding(t)
	x = &forwarding{Forward: f, queue: OpenQueue(all.opt.Home, f.Dir, "url"), urgent: newUrgent()}
	w, root = newWatcher(t, f.Dir, Then{})
	w.Queue, w.urgent, w.Settle = x.queue, x.urgent, f.Settle
	require.NoError(t, w.begin())
	return x, w, root
}

// TestSuccessor asks for a file while a reload replaces what sends it on: the successor confirms it.
// Once all is closed, nothing is confirmed.
func TestSuccessor(t *testing.T) {
	t.Parallel()
	all, f := newForwarding(t)
	all.Apply([]Forward{f})
	old := all.of("s")
	type answer struct {
		state string
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		state, err := old.Confirm(t.Context(), "a")
		answers <- answer{state, err}
	}()
	f.RateLimit = 1e6
	all.Apply([]Forward{f})
	next := all.of("s")
	require.NotSame(t, old, next)
	select {
	case a := <-answers:
		require.Fail(t, "it did not wait", "%v", a)
	default:
	}
	root, err := os.OpenRoot(f.Dir)
	require.NoError(t, err)
	defer root.Close()
	queueFiles(t, next.queue, map[string]File{"a": {State: There, Version: *look(root, "a"), There: time.Now()}})
	require.Equal(t, answer{state: "there"}, <-answers)

	require.NoError(t, os.WriteFile(filepath.Join(f.Dir, "b"), nil, 0o600))
	all.Close()
	state, err := all.Of("s").Confirm(t.Context(), "b")
	require.NoError(t, err)
	require.NotEqual(t, string(There), state)
	require.NotEmpty(t, state)
}

// TestTakeover lets no client find a share without what sends it on, while the predecessor ends.
func TestTakeover(t *testing.T) {
	t.Parallel()
	all, f := newForwarding(t)
	old := &forwarding{Forward: f, stop: func() {}, ended: make(chan struct{})} // it ends late
	all.running["s"] = old
	f.RateLimit = 1e6
	applied := make(chan struct{})
	go func() {
		all.Apply([]Forward{f})
		close(applied)
	}()
	for all.of("s") == old {
		time.Sleep(time.Millisecond)
	}
	require.NotNil(t, all.Of("s"))
	select {
	case <-applied:
		require.Fail(t, "the predecessor has not ended")
	case <-all.of("s").ended:
		require.Fail(t, "it has not waited for its predecessor")
	default:
	}
	close(old.ended)
	<-applied
}

// TestNoScan lets a file that somebody waits for wait for its turn though no scan has found it, and
// sends it at once. A scan that is older than the file does not forget it.
func TestNoScan(t *testing.T) {
	t.Parallel()
	x, w, root := newWaited(t)
	early, err := scan(root, nil, "")
	require.NoError(t, err)
	delete(early.files, "a")

	confirmed := make(chan error, 1)
	go func() {
		state, _, err := x.confirm(t.Context(), "a", time.Now().Add(time.Hour))
		if err == nil && state != string(There) {
			err = errors.New(state)
		}
		confirmed <- err
	}()
	w.idle(t.Context(), nil, w.Queue.changed())
	require.NoError(t, x.queue.update(func(c *change) error {
		_, _, _, err := w.compare(c, root, early, time.Now())
		return err
	}))
	batch, err := w.take(time.Now())
	require.NoError(t, err)
	require.Equal(t, map[string]Version{"a": *look(root, "a")}, batch)
	require.NoError(t, w.store(batch, map[string]Result{"a": {Path: "a"}}, nil, false))
	require.NoError(t, <-confirmed)
}

// TestConfirmReplaced tells who waits that somebody has changed or removed the file, or dropped it.
func TestConfirmReplaced(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(at string, q *Queue) error{
		"changed": func(at string, _ *Queue) error { return os.WriteFile(at, []byte("other"), 0o600) },
		"removed": func(at string, _ *Queue) error { return os.Remove(at) },
		"dropped": func(_ string, q *Queue) error { // by another process
			_, err := (&Queue{path: q.path}).Drop("a")
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			x, _, _ := newWaited(t)
			failed := make(chan error, 1)
			go func() {
				<-x.urgent.queued
				failed <- change(filepath.Join(x.Dir, "a"), x.queue)
			}()
			state, _, err := x.confirm(t.Context(), "a", time.Now().Add(time.Hour))
			require.NoError(t, <-failed)
			if what == "dropped" {
				require.NoError(t, err)
				require.Equal(t, dropped, state)
			} else {
				require.ErrorIs(t, err, fs.ErrNotExist)
			}
		})
	}
}

// TestFinds agrees with what a scan sends.
func TestFinds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, root := newWatcher(t, dir, Then{})
	paths := []string{"a", "d/b", ".fxfer-c", "d/.fxfer-d/e", "2026-11-23T091502Z/f", "s/2026-11-23T091502Z/g", "s/h", "s/.FXFER-snapshots/i"}
	for _, p := range paths {
		at := filepath.Join(dir, filepath.FromSlash(p))
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o700))
		require.NoError(t, os.WriteFile(at, nil, 0o600))
	}
	f, err := scan(root, nil, "")
	require.NoError(t, err)
	for _, p := range paths {
		_, sent := f.files[p]
		require.Equal(t, sent, finds(root, p), p)
	}
	require.False(t, finds(root, "missing"))
	require.False(t, finds(root, "/a"))
}

// TestExcludes: one folder is sent on to several places, unless files are removed, and once to each.
func TestExcludes(t *testing.T) {
	t.Parallel()
	dir, other := t.TempDir(), t.TempDir()
	forward := func(dir, url string, then Then) Forward {
		u, err := fxfer.ParseURL(url)
		require.NoError(t, err)
		return Forward{Dir: dir, URL: u, Then: then}
	}
	x := forward(dir, "fxfer://nas/x", Then{})
	for _, c := range []struct {
		with Forward
		want bool
	}{
		{forward(dir, "fxfer://nas/x/", Then{}), true}, {forward(dir, "fxfer://nas/y", Then{}), false},
		{forward(dir, "fxfer://nas/y", Then{Delete: true}), true},
		{forward(other, "fxfer://nas/x", Then{Delete: true}), false},
		{forward(filepath.Dir(dir), "fxfer://nas/x", Then{Delete: true}), false},
	} {
		require.Equal(t, c.want, x.Excludes(c.with), c.with)
		require.Equal(t, c.want, c.with.Excludes(x), c.with)
	}
}

// TestCheckOther sends nothing on to a server with the same key, however that is known.
func TestCheckOther(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	store, err := identity.OpenStore(home)
	require.NoError(t, err)
	key, err := store.Key()
	require.NoError(t, err)
	own := identity.PinOfPrivate(key)
	other := identity.PinOf(make(ed25519.PublicKey, ed25519.PublicKeySize))
	require.NoError(t, store.AddKnownServer("self:7070", own))
	require.NoError(t, store.AddKnownServer("nas:7070", other))
	for _, c := range []struct {
		url     string
		pin     identity.Pin
		refused bool
	}{
		{url: "fxfer://nas:7070/a"}, {url: "fxfer://self:7070/a", refused: true}, {url: "fxfer://new/a"},
		{url: "fxfer://nas:7070/a", pin: own, refused: true}, {url: "fxfer://self:7070/a", pin: other},
	} {
		u, err := fxfer.ParseURL(c.url)
		require.NoError(t, err)
		if err = checkOther(fxfer.Options{Home: home, Pin: string(c.pin)}, u); c.refused {
			require.ErrorContains(t, err, "has the key of this one", c.url)
		} else {
			require.NoError(t, err, c.url)
		}
	}
}
