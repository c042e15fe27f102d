package client

import (
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/session"
)

// TestWithin: a source is in the folders that may be read, whatever its symlinks say.
func TestWithin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"mine/sub", "outside"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o700))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine", "f"), nil, 0o600))
	for link, to := range map[string]string{"linked": "mine", "mine/in": "sub", "mine/out": "../outside"} {
		require.NoError(t, os.Symlink(to, filepath.Join(dir, link)))
	}
	for _, c := range []struct{ source, path, as string }{
		{"mine", ".", "mine"},
		{"mine/", ".", ""},
		{"mine/sub", "sub", "sub"},
		{"mine/sub/", ".", ""},
		{"mine/f", "f", "f"},
		{"mine/in/", ".", ""},
		{"mine/in", "in", "in"},
		{"mine/out", "out", "out"}, // it is sent as a link
		{"linked", ".", "linked"},
		{"linked/sub", "sub", "sub"},
		{"mine/out/", "", ""},
		{"outside", "", ""},
		{"outside/", "", ""},
		{".", "", ""},
		{"mine/sub/../../outside/", "", ""},
	} {
		for _, within := range []string{"mine", "linked"} {
			r, err := openSource(dir+"/"+c.source, []string{dir + "/none", filepath.Join(dir, within)})
			if c.path == "" {
				require.Equal(t, session.KindUsage, session.KindOf(err), "%s: %v", c.source, err)
				continue
			}
			require.NoError(t, err, c.source)
			require.Equal(t, c.path, r.Path, c.source)
			require.Equal(t, c.as, r.As, c.source)
			require.NoError(t, r.Tree.Close())
		}
	}
}

// TestMissingWithin: what is missing in the folders that may be read is an error of the disk. Elsewhere, what is
// missing and what is there look the same.
func TestMissingWithin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"mine/sub", "outside/there"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o700))
	}
	for link, to := range map[string]string{"mine/out": "../outside", "mine/lost": "../outside/none"} {
		require.NoError(t, os.Symlink(to, filepath.Join(dir, link)))
	}
	within := []string{dir + "/mine", dir + "/away"}
	for source, want := range map[string]session.Kind{
		"mine/none": session.KindLocalDisk, "mine/none/x/": session.KindLocalDisk, "mine/sub/none": session.KindLocalDisk,
		"away": session.KindLocalDisk, "away/x/": session.KindLocalDisk, // it is not mounted
		"outside/there": session.KindUsage, "outside/none": session.KindUsage, "outside/none/x/": session.KindUsage, "none": session.KindUsage,
		"mine/out/there": session.KindUsage, "mine/out/none": session.KindUsage, "mine/out/none/": session.KindUsage,
		"mine/lost/": session.KindUsage, "mine/lost/x": session.KindUsage, "mine/../none": session.KindUsage,
	} {
		_, err := openSource(dir+"/"+source, within)
		require.Equal(t, want, session.KindOf(err), "%s: %v", source, err)
		if want == session.KindUsage {
			require.EqualError(t, err, "this host may not read "+dir+"/"+source)
		}
	}
}

// TestWithinRace: somebody exchanges a folder for a symlink to another place, while it is opened.
func TestWithinRace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mine, source := filepath.Join(dir, "mine"), filepath.Join(dir, "mine", "d")
	for _, name := range []string{"mine/d", "outside"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o700))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "outside", "secret"), nil, 0o600))
	require.NoError(t, os.Symlink(filepath.Join(dir, "outside"), filepath.Join(mine, "link")))
	var over atomic.Bool
	done := make(chan error)
	go func() {
		var err error
		for err == nil && !over.Load() {
			for _, move := range [][2]string{{"d", "away"}, {"link", "d"}, {"d", "link"}, {"away", "d"}} {
				if err == nil {
					err = os.Rename(filepath.Join(mine, move[0]), filepath.Join(mine, move[1]))
				}
			}
		}
		done <- err
	}()
	opened := 0
	for opened < 3000 {
		r, err := openSource(source+"/", []string{mine})
		if err != nil {
			runtime.Gosched()
			continue
		}
		opened++
		_, err = r.Tree.Stat("secret")
		require.NoError(t, r.Tree.Close())
		if err == nil {
			over.Store(true)
			require.NoError(t, <-done)
			t.Fatal("a folder outside was opened")
		}
	}
	over.Store(true)
	require.NoError(t, <-done)
}
