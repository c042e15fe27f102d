package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/session/sessiontest"
	"github.com/stretchr/testify/require"
)

// writeFunc is an io.Writer.
type writeFunc func([]byte) (int, error)

func (f writeFunc) Write(p []byte) (int, error) { return f(p) }

// TestGetTo: one file goes to a writer, whole and checked, and nothing stays on the disk.
func TestGetTo(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	t.Setenv("TMP", temporary) // of Windows
	s := serve(t, identity.Read)
	defer s.stop()
	data := sessiontest.RandomFile(t, filepath.Join(s.dir, "f"), 5<<20+17)
	require.NoError(t, os.Chmod(filepath.Join(s.dir, "f"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "empty"), nil, 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(s.dir, "folder", "sub"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "folder", "a"), []byte("a"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "folder", "b"), []byte("b"), 0o600))
	sparse, err := os.Create(filepath.Join(s.dir, "sparse"))
	require.NoError(t, err)
	require.NoError(t, sparse.Truncate(3<<20))
	require.NoError(t, sparse.Close())
	c := newClient(t, t.TempDir(), Options{})
	_, err = c.List(t.Context(), s.invited(t))
	require.NoError(t, err)

	for name, want := range map[string][]byte{"f": data, "empty": nil, "sparse": make([]byte, 3<<20)} {
		var got bytes.Buffer
		progress := 0
		w := writeFunc(func(p []byte) (int, error) {
			if left, _ := os.ReadDir(temporary); runtime.GOOS != "windows" {
				require.Empty(t, left, "SIGPIPE may end the process now")
			}
			return got.Write(p)
		})
		report, err := c.GetTo(t.Context(), s.plain(t, name), w, Transfer{Progress: func(session.Progress) {
			progress++
			copies, _ := filepath.Glob(filepath.Join(temporary, "*", fileName))
			for _, at := range copies {
				info, err := os.Stat(at)
				require.NoError(t, err)
				if runtime.GOOS != "windows" {
					require.Equal(t, fs.FileMode(0o600), info.Mode(), "it is nobody else's")
				}
			}
		}})
		require.NoError(t, err, name)
		require.True(t, bytes.Equal(want, got.Bytes()), name)
		require.Equal(t, int64(1), report.Sent)
		require.Positive(t, progress)
	}

	fails := func(ctx context.Context, path string, w io.Writer) error {
		report, err := c.GetTo(ctx, s.plain(t, path), w, Transfer{})
		require.Error(t, err, "%s: %+v", path, report)
		return err
	}
	nothing := writeFunc(func([]byte) (int, error) { t.Error("written"); return 0, errors.ErrUnsupported })
	require.Equal(t, session.KindNotFound, session.KindOf(fails(t.Context(), "none", nothing)))
	require.Equal(t, session.KindUsage, session.KindOf(fails(t.Context(), "folder", nothing)))
	require.Equal(t, session.KindUsage, session.KindOf(fails(t.Context(), "folder/sub", nothing)))
	require.Equal(t, session.KindUsage, session.KindOf(fails(t.Context(), "", nothing)))

	full := errors.New("full")
	report, err := c.GetTo(t.Context(), s.plain(t, "f"), writeFunc(func([]byte) (int, error) { return 0, full }), Transfer{})
	require.ErrorIs(t, err, full)
	require.Equal(t, []int64{0, 1}, []int64{report.Sent, report.Failed})
	short := writeFunc(func(p []byte) (int, error) { return len(p) - 1, nil })
	require.ErrorIs(t, fails(t.Context(), "f", short), io.ErrShortWrite)
	ctx, cancel := context.WithCancel(t.Context())
	err = fails(ctx, "f", writeFunc(func(p []byte) (int, error) { cancel(); return len(p), nil }))
	require.Equal(t, session.KindInterrupted, session.KindOf(err))
	require.ErrorIs(t, err, context.Canceled)

	left, err := os.ReadDir(temporary)
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestGetToSymlink: a link at the server does not make GetTo read a file of this host.
func TestGetToSymlink(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Read)
	defer s.stop()
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("secret"), 0o600))
	if err := os.Symlink(secret, filepath.Join(s.dir, "link")); err != nil {
		t.Skip(err)
	}
	var got bytes.Buffer
	u := s.invited(t)
	u.Path = "link"
	_, err := newClient(t, t.TempDir(), Options{}).GetTo(t.Context(), u, &got, Transfer{})
	require.Equal(t, session.KindUsage, session.KindOf(err), "%v", err)
	require.Empty(t, got.Bytes())
}
