package outbox

import (
	"io"
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
		want               map[string]string
	}{
		"nobody":            {want: map[string]string{}},
		"open":              {open: true, want: map[string]string{"sub/a": "old"}},
		"written":           {open: true, write: true, want: map[string]string{"sub/a": "oldnew"}},
		"written, replaced": {open: true, write: true, taken: true, want: map[string]string{"sub/a": "other", "sub/a.2": "oldnew"}},
		"replaced":          {taken: true, want: map[string]string{"sub/a": "other"}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.open && !c.write && !leases {
				t.Skip("the system does not say who has a file open")
			}
			dir := t.TempDir()
			at := filepath.Join(dir, "sub", "a")
			require.NoError(t, os.Mkdir(filepath.Dir(at), 0o700))
			require.NoError(t, os.WriteFile(at, []byte("old"), 0o600))
			w := &Watcher{
				Queue: OpenQueue(t.TempDir(), dir, "url"), Dir: dir, Then: Then{Delete: true},
				Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
			}
			require.NoError(t, w.begin())
			root, err := os.OpenRoot(dir)
			require.NoError(t, err)
			defer root.Close()
			f, err := os.OpenFile(at, os.O_WRONLY|os.O_APPEND, 0)
			require.NoError(t, err)
			defer f.Close()
			if !c.open {
				require.NoError(t, f.Close())
			}
			require.NoError(t, w.setAside(root, "sub/a", *look(root, "sub/a")))
			require.NoFileExists(t, at)
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
