package outbox

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAside lets a program keep a file open while the watcher removes it.
func TestAside(t *testing.T) {
	t.Parallel()
	leases := hasLeases(t)
	for name, c := range map[string]struct {
		open, write, taken bool // the program: keeps it open, writes to it, makes a new file of that name
		unnoticed          bool // writes to it and sets its time back
		keep               bool // the watcher was started again without Then
		want               map[string]string
	}{
		"keep":              {keep: true, want: map[string]string{"sub/a": "old"}},
		"nobody":            {want: map[string]string{}},
		"open":              {open: true, want: map[string]string{"sub/a": "old"}},
		"written":           {open: true, write: true, want: map[string]string{"sub/a": "oldnew"}},
		"written, replaced": {open: true, write: true, taken: true, want: map[string]string{"sub/a": "other", "sub/a.2": "oldnew"}},
		"unnoticed":         {open: true, unnoticed: true, want: map[string]string{"sub/a": "new"}},
		"replaced":          {taken: true, want: map[string]string{"sub/a": "other"}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.open && !c.write && !leases {
				t.Skip("the system does not say who has a file open, or when it changed")
			}
			dir := t.TempDir()
			at := filepath.Join(dir, "sub", "a")
			require.NoError(t, os.Mkdir(filepath.Dir(at), 0o700))
			require.NoError(t, os.WriteFile(at, []byte("old"), 0o600))
			w, root := newWatcher(t, dir, Then{Delete: true})
			f, err := os.OpenFile(at, os.O_WRONLY|os.O_APPEND, 0)
			require.NoError(t, err)
			defer f.Close()
			if !c.open {
				require.NoError(t, f.Close())
			}
			require.NoError(t, w.noteAndSetAside(root, "sub/a", note{Version: *look(root, "sub/a")}))
			require.NoFileExists(t, at)
			if c.keep {
				w.Then = Then{}
				require.NoError(t, w.begin())
			}
			if c.write {
				_, err := f.WriteString("new")
				require.NoError(t, err)
			}
			if c.taken {
				require.NoError(t, os.WriteFile(at, []byte("other"), 0o600))
			}
			now := time.Now()
			left, err := w.finishAside(root, now)
			require.NoError(t, err)
			require.Equal(t, 1, left, "it waits for a second")
			if c.unnoticed {
				aside := filepath.Join(dir, asideName, "sub", "a")
				info, err := os.Stat(aside)
				require.NoError(t, err)
				require.NoError(t, f.Truncate(0))
				_, err = f.WriteString("new")
				require.NoError(t, errors.Join(err, f.Close()))
				for v := versionOf(info); versionOf(info) == v; { // until the clock of the file system has moved on
					require.NoError(t, os.Chtimes(aside, info.ModTime(), info.ModTime()))
					info, err = os.Stat(aside)
					require.NoError(t, err)
				}
			}
			left, err = w.finishAside(root, now.Add(asideFor))
			require.NoError(t, err)
			require.Zero(t, left)
			got := map[string]string{}
			found, err := scan(root, nil, "")
			require.NoError(t, err)
			for p := range found.files {
				content, err := os.ReadFile(filepath.Join(dir, p))
				require.NoError(t, err)
				got[p] = string(content)
			}
			require.Equal(t, c.want, got)
			require.NoDirExists(t, filepath.Join(dir, asideName))
		})
	}
}

// newWatcher returns a watcher of dir that has begun, and a handle of dir.
func newWatcher(t *testing.T, dir string, then Then) (*Watcher, *os.Root) {
	w := &Watcher{
		Queue: OpenQueue(t.TempDir(), dir, "url"), Dir: dir, URL: "url", Then: then,
		Log:  slog.New(slog.NewTextHandler(io.Discard, nil)),
		Send: func(context.Context, iter.Seq[string], func(string) bool, func(Result)) error { return nil },
	}
	require.NoError(t, w.begin())
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = root.Close() })
	return w, root
}

// newThere is newWatcher of a folder with the file a, which is there since noon. at is its path.
func newThere(t *testing.T, then Then) (w *Watcher, root *os.Root, at string) {
	dir := t.TempDir()
	at = filepath.Join(dir, "a")
	require.NoError(t, os.WriteFile(at, nil, 0o600))
	w, root = newWatcher(t, dir, then)
	queueFiles(t, w.Queue, map[string]File{"a": {State: There, Version: *look(root, "a"), There: noon}})
	return w, root, at
}

// noteAndSetAside does what a scan does with a file that is there.
func (w *Watcher) noteAndSetAside(root *os.Root, p string, n note) error {
	err := w.Queue.update(func(c *change) error { return c.write(asideBucket, p, n) })
	return errors.Join(err, setAside(root, p, n.Version))
}

// TestMarkers removes and moves files with their markers. A marker that changed meanwhile stays, and
// a file that has the name at the target stays.
func TestMarkers(t *testing.T) {
	t.Parallel()
	for _, moves := range []bool{false, true} {
		for _, changed := range []bool{false, true} {
			dir, to := t.TempDir(), t.TempDir()
			then := Then{Delete: true}
			if moves {
				then = Then{MoveTo: to}
			}
			w, root := newWatcher(t, dir, then)
			w.Marker = ".done"
			for _, p := range []string{filepath.Join(dir, "a"), filepath.Join(dir, "a.done"), filepath.Join(to, "a")} {
				require.NoError(t, os.WriteFile(p, []byte("old"), 0o600))
			}
			require.NoError(t, w.noteAndSetAside(root, "a", note{*look(root, "a"), look(root, "a.done")}))
			if changed {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "a.done"), []byte("longer"), 0o600))
			}
			now := time.Now()
			for _, at := range []time.Time{now, now.Add(asideFor)} {
				_, err := w.finishAside(root, at)
				require.NoError(t, err)
			}
			here, there := []string{}, []string{"a"}
			if changed {
				here = append(here, "a.done")
			}
			if moves {
				there = append(there, "a.2")
			}
			if moves && !changed {
				there = append(there, "a.2.done")
			}
			require.ElementsMatch(t, here, names(t, dir), "moves %v, changed %v", moves, changed)
			require.ElementsMatch(t, there, names(t, to), "moves %v, changed %v", moves, changed)
		}
	}
}

func names(t *testing.T, dir string) (all []string) {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// TestKept tries a file that cannot be moved again, later each time, and a new version at once.
func TestKept(t *testing.T) {
	t.Parallel()
	w, _ := newWatcher(t, t.TempDir(), Then{Delete: true})
	require.False(t, w.isKept("a", one, noon))
	w.keep("a", one, noon)
	require.True(t, w.isKept("a", two, noon), "it was put back: only its change time is another one")
	require.False(t, w.isKept("a", one, noon.Add(retryAfter(1))))
	w.keep("a", two, noon)
	require.True(t, w.isKept("a", one, noon.Add(retryAfter(1))))
	require.False(t, w.isKept("a", Version{Size: 2}, noon))
	require.False(t, w.isKept("a", one, noon), "forgotten")
}

// TestCheckMoveTo takes no folder that leads into the watched one.
func TestCheckMoveTo(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	dir, to, link := filepath.Join(base, "dir"), filepath.Join(base, "to"), filepath.Join(base, "link")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o700))
	require.NoError(t, os.Mkdir(to, 0o700))
	require.NoError(t, CheckMoveTo(dir, to))
	require.Empty(t, names(t, to))
	require.Equal(t, []string{"sub"}, names(t, dir))
	require.Error(t, CheckMoveTo(dir, dir))
	require.Error(t, CheckMoveTo(dir, filepath.Join(dir, "sub")))
	require.Error(t, CheckMoveTo(dir, filepath.Join(base, "missing")))
	if err := os.Symlink(filepath.Join(dir, "sub"), link); err != nil {
		t.Skip(err)
	}
	require.ErrorContains(t, CheckMoveTo(dir, link), "inside")
	require.True(t, IsInside(link, filepath.Join(dir, "sub")))
}

// TestLinger leaves a file in its place for a while after it is there.
func TestLinger(t *testing.T) {
	t.Parallel()
	w, _, at := newThere(t, Then{Delete: true})
	w.linger = 5 * time.Second
	again, err := w.scan(noon.Add(2*time.Second), make(chan struct{}, 1), nil)
	require.NoError(t, err)
	require.Equal(t, 3*time.Second, again)
	require.FileExists(t, at)
	_, err = w.scan(noon.Add(5*time.Second), make(chan struct{}, 1), nil)
	require.NoError(t, err)
	require.NoFileExists(t, at)
}

// TestMoveOut moves no file through a symlink out of the folder that it goes to.
func TestMoveOut(t *testing.T) {
	t.Parallel()
	dir, to, outside := t.TempDir(), t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(to, "sub")); err != nil {
		t.Skip(err)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o600))
	w, root := newWatcher(t, dir, Then{MoveTo: to})
	for _, p := range []string{"sub/a", "sub/deep/a"} {
		_, err := w.moveOut(root, "a", p)
		require.Error(t, err)
	}
	require.Empty(t, names(t, outside))
	require.FileExists(t, filepath.Join(dir, "a"))
	moved, err := w.moveOut(root, "a", "new/a")
	require.NoError(t, err)
	require.Equal(t, "new/a", moved)
}

// TestEmptyAside leaves nothing aside when the watcher ends.
func TestEmptyAside(t *testing.T) {
	t.Parallel()
	w, root, _ := newThere(t, Then{Delete: true})
	w.Settle = time.Hour
	ctx, end := context.WithCancel(t.Context())
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	require.Eventually(t, func() bool { return look(root, "a") == nil }, time.Minute, time.Millisecond)
	end()
	require.NoError(t, <-ended)
	require.Empty(t, names(t, w.Dir))
}
