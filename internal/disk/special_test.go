package disk

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLink(t *testing.T) {
	tree, dir := openTree(t)
	fill(t, dir, "a/file", "b/other", "a/"+reservedName("new")+hardSuffix)
	require.NoError(t, tree.Link("a/file", "b/other"))
	require.NoError(t, tree.Link("a/file", "b/other"), "is so already")
	require.NoError(t, tree.Link("a/file", "a/new"))
	for _, path := range []string{"b/other", "a/new"} {
		is, err := os.Stat(filepath.Join(dir, path))
		require.NoError(t, err)
		want, err := os.Stat(filepath.Join(dir, "a/file"))
		require.NoError(t, err)
		require.True(t, os.SameFile(want, is))
	}
	require.NoError(t, os.Symlink("../../outside", filepath.Join(dir, "a/link")))
	if os.PathSeparator == '/' {
		require.NoError(t, tree.Link("a/link", "b/link"))
		m, err := tree.Stat("b/link")
		require.NoError(t, err)
		require.Equal(t, "../../outside", m.Link, "itself, not what it leads to")
	}
	require.ErrorIs(t, tree.Link("none", "x"), os.ErrNotExist)
	require.ErrorIs(t, tree.Link("a/file", "b"), ErrExists)
	require.ErrorIs(t, tree.Link("a/file", "."), ErrExists)
	require.ErrorIs(t, tree.Link("a/file", "none/x"), os.ErrNotExist)
	require.ErrorIs(t, tree.Link("a/file", "a/link/x"), ErrNotFolder)
	require.Error(t, tree.Link("a", "x"))
	require.NoFileExists(t, filepath.Join(dir, "x"))
	for _, folder := range []string{".", "a", "b"} {
		require.Empty(t, leftovers(t, filepath.Join(dir, folder)))
	}
}

// An equal symlink stays, so its other names remain its own.
func TestEqualSymlinkStays(t *testing.T) {
	tree, _ := openTree(t)
	m := Meta{Path: "link", Link: "x", ModTime: someTime}
	require.NoError(t, tree.Symlink(m, TargetOptions{}))
	first, err := tree.Stat("link")
	require.NoError(t, err)
	require.NoError(t, tree.Symlink(m, TargetOptions{}))
	second, err := tree.Stat("link")
	require.NoError(t, err)
	require.Equal(t, first, second)
}

// Several writers use one name: each succeeds, and one of them is the last.
func TestConcurrentSymlinks(t *testing.T) {
	tree, dir := openTree(t)
	fill(t, dir, "file")
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 100 {
				err := tree.Symlink(Meta{Path: "entry", Link: string(rune('a' + i)), ModTime: someTime}, TargetOptions{})
				if i == 3 {
					err = tree.Link("file", "entry")
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	require.Empty(t, leftovers(t, dir))
	_, err := tree.Stat("entry")
	require.NoError(t, err)
}
