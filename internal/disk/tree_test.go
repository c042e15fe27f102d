package disk

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var someTime = time.Date(2021, 3, 4, 5, 6, 7, 123456700, time.UTC)

func TestMkdirAndMetadata(t *testing.T) {
	tree, dir := openTree(t)
	require.NoError(t, tree.Mkdir("a/b/c", 0o500))
	require.NoError(t, tree.Mkdir("a/b/c", 0o500), "existing folder")
	require.NoError(t, tree.Mkdir(".", 0o700))
	m, err := tree.Stat("a/b/c")
	require.NoError(t, err)
	require.Equal(t, Dir, m.Kind)
	require.EqualValues(t, 0o700, m.Mode&0o700, "open during the transfer")

	require.NoError(t, tree.Apply(Meta{Path: "a/b/c", Kind: Dir, Mode: 0o550, ModTime: someTime}, TargetOptions{}))
	m, err = tree.Stat("a/b/c")
	require.NoError(t, err)
	require.True(t, m.ModTime.Equal(someTime), "%v", m.ModTime)
	if os.PathSeparator == '/' {
		require.EqualValues(t, 0o550, m.Mode)
		require.NoError(t, tree.Mkdir("a/b/c", 0o500))
		m, err = tree.Stat("a/b/c")
		require.NoError(t, err)
		require.EqualValues(t, 0o750, m.Mode, "opened again")
	}
	require.NoError(t, tree.Apply(Meta{Path: ".", Kind: Dir, Mode: 0o750, ModTime: someTime}, TargetOptions{}))
	m, err = tree.Stat(".")
	require.NoError(t, err)
	require.Equal(t, ".", m.Path)
	require.True(t, m.ModTime.Equal(someTime))

	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	require.ErrorIs(t, tree.Mkdir("file", 0o755), ErrExists)
	require.ErrorIs(t, tree.Mkdir("file/x", 0o755), ErrNotFolder)
	require.ErrorIs(t, tree.Mkdir("../x", 0o755), ErrPath)
}

func TestSymlinksAreNeverFollowed(t *testing.T) {
	tree, dir := openTree(t)
	require.NoError(t, tree.Mkdir("real/sub", 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "real/file"), []byte("x"), 0o600))
	require.NoError(t, tree.Symlink(Meta{Path: "inside", Link: "real", ModTime: someTime}, TargetOptions{}))
	require.NoError(t, tree.Symlink(Meta{Path: "outside", Link: t.TempDir()}, TargetOptions{}))
	require.NoError(t, tree.Symlink(Meta{Path: "filelink", Link: "real/file"}, TargetOptions{}))

	for _, link := range []string{"inside", "outside"} {
		_, err := tree.Stat(link + "/file")
		require.ErrorIs(t, err, ErrNotFolder)
		_, err = tree.OpenFile(link + "/file")
		require.ErrorIs(t, err, ErrNotFolder)
		_, err = tree.Partial(Meta{Path: link + "/new", Size: 1}, 1024, TargetOptions{Sync: SyncNone})
		require.ErrorIs(t, err, ErrNotFolder)
		require.ErrorIs(t, tree.Mkdir(link, 0o755), ErrExists)
		require.ErrorIs(t, tree.Mkdir(link+"/new", 0o755), ErrNotFolder)
		require.ErrorIs(t, tree.Symlink(Meta{Path: link + "/new", Link: "x"}, TargetOptions{}), ErrNotFolder)
		require.ErrorIs(t, tree.Apply(Meta{Path: link, Kind: Dir, Mode: 0o700}, TargetOptions{}), ErrExists)
	}
	_, err := tree.OpenFile("filelink")
	require.ErrorIs(t, err, ErrUnsupportedKind)
	entries, err := os.ReadDir(filepath.Join(dir, "real"))
	require.NoError(t, err)
	require.Len(t, entries, 2)
}

func TestSymlinkReplaces(t *testing.T) {
	tree, dir := openTree(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "entry"), []byte("file"), 0o600))
	require.NoError(t, tree.Symlink(Meta{Path: "entry", Link: "first"}, TargetOptions{}))
	require.NoError(t, tree.Symlink(Meta{Path: "entry", Link: "../any/where", ModTime: someTime}, TargetOptions{}))
	m, err := tree.Stat("entry")
	require.NoError(t, err)
	require.Equal(t, Symlink, m.Kind)
	require.Equal(t, "../any/where", m.Link)
	if os.PathSeparator == '/' {
		require.True(t, m.ModTime.Equal(someTime), "%v", m.ModTime)
	}
	require.NoError(t, tree.Mkdir("folder", 0o755))
	require.ErrorIs(t, tree.Symlink(Meta{Path: "folder", Link: "x"}, TargetOptions{}), ErrExists)
	require.ErrorIs(t, tree.Symlink(Meta{Path: ".", Link: "x"}, TargetOptions{}), ErrExists)
	require.Empty(t, leftovers(t, dir))
}

func TestWalk(t *testing.T) {
	tree, dir := openTree(t)
	for _, name := range []string{"b/z", "b/a", "a", "b-", "c/d/e"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o640))
	}
	require.NoError(t, tree.Symlink(Meta{Path: "link", Link: "b"}, TargetOptions{}))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b", reservedName("x")+partialSuffix), nil, 0o600))

	var seen []string
	visit := func(m Meta) error {
		seen = append(seen, m.Path)
		fromStat, err := tree.Stat(m.Path)
		require.NoError(t, err)
		fromStat.ModTime, m.ModTime = fromStat.ModTime.UTC(), m.ModTime.UTC()
		require.Equal(t, fromStat, m)
		return nil
	}
	failed := func(path string, err error) { t.Errorf("%s: %v", path, err) }
	require.NoError(t, tree.Walk(t.Context(), ".", WalkOptions{}, visit, failed))
	for i, path := range seen[1:] {
		require.Contains(t, seen[:i+1], filepath.ToSlash(filepath.Dir(path)), "a folder before what it holds")
	}
	slices.Sort(seen)
	require.Equal(t, []string{".", "a", "b", "b-", "b/a", "b/z", "c", "c/d", "c/d/e", "link"}, seen)

	seen = nil
	require.NoError(t, tree.Walk(t.Context(), "c/d", WalkOptions{}, visit, failed))
	require.Equal(t, []string{"c/d", "c/d/e"}, seen)
	seen = nil
	require.NoError(t, tree.Walk(t.Context(), "link", WalkOptions{}, visit, failed))
	require.Equal(t, []string{"link"}, seen)

	require.ErrorIs(t, tree.Walk(t.Context(), "none", WalkOptions{}, visit, failed), fs.ErrNotExist)
	require.ErrorIs(t, tree.Walk(t.Context(), "link/a", WalkOptions{}, visit, failed), ErrNotFolder)
	stop := errors.New("stop")
	require.ErrorIs(t, tree.Walk(t.Context(), ".", WalkOptions{}, func(Meta) error { return stop }, failed), stop)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, tree.Walk(ctx, ".", WalkOptions{}, visit, failed), context.Canceled)
}

func TestWalkReportsWhatVanishes(t *testing.T) {
	tree, dir := openTree(t)
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	var seen, missed []string
	var vanished string
	err := tree.Walk(t.Context(), ".", WalkOptions{}, func(m Meta) error {
		seen = append(seen, m.Path)
		if len(seen) == 2 { // "." and one of the files
			vanished = "b"
			if m.Path == "b" {
				vanished = "c"
			}
			return os.Remove(filepath.Join(dir, vanished))
		}
		return nil
	}, func(path string, err error) {
		missed = append(missed, path)
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.NotContains(t, err.Error(), dir)
	})
	require.NoError(t, err)
	require.Len(t, seen, 3)
	require.NotContains(t, seen, vanished)
	require.Equal(t, []string{vanished}, missed)
}

func TestSourceUnchanged(t *testing.T) {
	for name, alter := range map[string]func(path string) error{
		"appended": func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("y", 20)), 0o600) },
		"touched":  func(path string) error { return os.Chtimes(path, someTime, someTime) },
		"removed":  os.Remove,
		"moved": func(path string) error {
			return errors.Join(os.Rename(path, path+"2"), os.WriteFile(path, []byte("content"), 0o600))
		},
		"folder gone": func(path string) error { return os.Rename(filepath.Dir(path), filepath.Dir(path)+"2") },
	} {
		t.Run(name, func(t *testing.T) {
			tree, dir := openTree(t)
			path := filepath.Join(dir, "folder", "file")
			require.NoError(t, os.Mkdir(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, []byte("content"), 0o600))
			source, err := tree.OpenFile("folder/file")
			require.NoError(t, err)
			defer source.Close()
			m, err := tree.Stat("folder/file")
			require.NoError(t, err)
			require.Equal(t, m.ID, source.Identity())
			b := make([]byte, 4)
			_, err = source.ReadAt(b, 3)
			require.NoError(t, err)
			require.Equal(t, "tent", string(b))
			require.NoError(t, source.Unchanged())
			require.NoError(t, alter(path))
			tree.folders.changed() // as later
			require.ErrorIs(t, source.Unchanged(), ErrChanged)
		})
	}
}
