package disk

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// In a folder that the tree has just made there is nothing, and nobody looks. Elsewhere StatTarget
// sees what StatXattrs sees.
func TestStatTarget(t *testing.T) {
	tree, dir := openTree(t)
	missing := func(path string) {
		t.Helper()
		_, err := tree.StatTarget(path)
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	there := func(path string) {
		t.Helper()
		m, err := tree.StatTarget(path)
		require.NoError(t, err)
		require.Equal(t, path, m.Path)
	}
	other := func(path string) {
		t.Helper()
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(path)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, path), nil, 0o600))
	}
	other("old/file")
	require.NoError(t, tree.Mkdir("old", 0o755))
	there("old/file")
	missing("old/none")

	require.NoError(t, tree.Mkdir("new", 0o755))
	there("new")
	missing("new/file")
	other("new/file")
	missing("new/file")
	m, err := tree.StatXattrs("new/file")
	require.NoError(t, err)
	require.Equal(t, File, m.Kind)
	f, err := tree.openFolder("new")
	require.NoError(t, err)
	f.release()
	require.NoError(t, tree.Mkdir("new", 0o755))
	missing("new/file")
	tree.folders.started = tree.folders.started.Add(-folderEmpty)
	there("new/file")

	require.NoError(t, tree.Mkdir("filled", 0o755))
	missing("filled/a")
	batch := NewBatch(tree, TargetOptions{})
	batch.Add(stage(t, tree, "filled/a", 10, TargetOptions{}))
	require.Equal(t, []error{nil}, batch.Commit())
	there("filled/a")

	require.NoError(t, tree.Mkdir("late", 0o755))
	other("late/file")
	tree.folders.started = tree.folders.started.Add(-folderEmpty - 1)
	there("late/file")

	require.NoError(t, tree.Mkdir("again", 0o755))
	missing("again/file")
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "again")))
	other("again/file")
	tree.folders.changed()
	there("again/file")
}
