package disk

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMakeDir(t *testing.T) {
	tree, dir := openTree(t)
	fill(t, dir, "file", "a/b")
	require.NoError(t, os.Symlink("a", filepath.Join(dir, "link")))
	require.NoError(t, os.Chmod(filepath.Join(dir, "a"), 0o500))
	for path, want := range map[string]error{
		"a": ErrExists, "file": ErrExists, "link": ErrExists, ".": ErrExists,
		"none/x": fs.ErrNotExist, "file/x": ErrNotFolder, "link/x": ErrNotFolder,
		"../x": ErrPath, "/x": ErrPath, ".fxfer-x": ErrPath, "": ErrPath,
	} {
		require.ErrorIs(t, tree.MakeDir(path, 0o755), want, path)
	}
	info, err := os.Stat(filepath.Join(dir, "a"))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o500), info.Mode().Perm(), "what exists stays as it is")
	require.NoError(t, tree.MakeDir("new", 0o755))
	require.NoError(t, tree.MakeDir("new/below", 0o755))
	require.DirExists(t, filepath.Join(dir, "new/below"))
}

func TestRemoveOne(t *testing.T) {
	tree, dir := openTree(t)
	outside := t.TempDir()
	fill(t, outside, "kept")
	fill(t, dir, "file", "full/x", "partial/"+reservedName("x")+partialSuffix)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "empty"), 0o755))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "link")))
	for path, want := range map[string]error{
		"full": ErrNotEmpty, "partial": ErrNotEmpty, "none": fs.ErrNotExist, ".": ErrPath,
		"link/kept": ErrNotFolder, "../kept": ErrPath, "file/x": ErrNotFolder,
	} {
		require.ErrorIs(t, tree.RemoveOne(path), want, path)
	}
	for _, path := range []string{"file", "empty", "link"} {
		require.NoError(t, tree.RemoveOne(path), path)
		require.ErrorIs(t, tree.RemoveOne(path), fs.ErrNotExist, path)
	}
	require.FileExists(t, filepath.Join(outside, "kept"))
}

func TestMove(t *testing.T) {
	tree, dir := openTree(t)
	outside := t.TempDir()
	fill(t, outside, "kept")
	fill(t, dir, "file", "other", "a/b/c", "d/x")
	require.NoError(t, os.Link(filepath.Join(dir, "file"), filepath.Join(dir, "same")))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "link")))
	before := listing(t, dir)
	for _, c := range []struct {
		path, to string
		replace  bool
		want     error
	}{
		{"file", "other", false, ErrExists}, {"file", "file", true, ErrExists}, {"file", "same", true, ErrExists},
		{"file", "a", true, ErrExists}, {"a", "file", true, ErrExists}, {"a", "d", true, ErrExists},
		{"a", "a/b/x", false, ErrPath}, {"a", "a", false, ErrExists}, {".", "x", false, ErrPath}, {"a", ".", true, ErrPath},
		{"none", "x", false, fs.ErrNotExist}, {"file", "none/x", false, fs.ErrNotExist},
		{"file", "link/x", false, ErrNotFolder}, {"link/kept", "x", false, ErrNotFolder}, {"file", "other/x", false, ErrNotFolder},
		{"file", "../x", false, ErrPath}, {"../kept", "x", false, ErrPath}, {"file", ".fxfer-x", false, ErrPath}, {"file", "x/", false, ErrPath},
	} {
		require.ErrorIs(t, tree.Move(c.path, c.to, c.replace), c.want, "%+v", c)
	}
	require.Equal(t, before, listing(t, dir))

	require.NoError(t, tree.Mkdir("a/b/warm", 0o755), "folders are open when they move")
	require.NoError(t, tree.Move("a", "d/a", false))
	require.NoError(t, tree.Move("d/a/b/c", "moved", false))
	require.NoError(t, tree.Move("moved", "other", true))
	require.NoError(t, tree.Move("link", "d/link", false), "the link itself")
	_, err := tree.Stat("a/b/warm")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Equal(t, []string{"d", "d/a", "d/a/b", "d/a/b/warm", "d/link", "d/x=d/x", "file=file", "other=a/b/c", "same=file"}, listing(t, dir))
	require.FileExists(t, filepath.Join(outside, "kept"))
}
