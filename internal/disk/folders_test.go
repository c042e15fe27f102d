package disk

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFolderReplaced(t *testing.T) {
	if os.PathSeparator != '/' {
		t.Skip("open folders can't be renamed")
	}
	for name, c := range map[string]struct {
		replace func(t *testing.T, dir string)
		err     error // of the entry that was there
	}{
		"renamed": {func(t *testing.T, dir string) {
			require.NoError(t, os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "z")))
		}, fs.ErrNotExist},
		"removed": {func(t *testing.T, dir string) {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "a/b")))
		}, fs.ErrNotExist},
		"made anew": {func(t *testing.T, dir string) {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "a")))
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o755))
		}, fs.ErrNotExist},
		"file instead": {func(t *testing.T, dir string) {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "a/b")))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "a/b"), nil, 0o600))
		}, ErrNotFolder},
		"reached through a symlink": {func(t *testing.T, dir string) {
			require.NoError(t, os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "z")))
			require.NoError(t, os.Symlink("z", filepath.Join(dir, "a")))
		}, ErrNotFolder},
		"reached outside": {func(t *testing.T, dir string) {
			outside := filepath.Join(t.TempDir(), "z")
			require.NoError(t, os.Rename(filepath.Join(dir, "a"), outside))
			require.NoError(t, os.Symlink(outside, filepath.Join(dir, "a")))
		}, ErrNotFolder},
	} {
		t.Run(name, func(t *testing.T) {
			tree, dir := openTree(t)
			require.NoError(t, tree.Mkdir("a/b", 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "a/b/file"), nil, 0o600))
			_, err := tree.Stat("a/b/file")
			require.NoError(t, err)
			c.replace(t, dir)
			tree.folders.changed() // as later
			_, err = tree.Stat("a/b/file")
			require.ErrorIs(t, err, c.err)
			_, err = tree.OpenFile("a/b/file")
			require.ErrorIs(t, err, c.err)
			if c.err == ErrNotFolder { //nolint:errorlint // a field of the table
				return
			}
			require.NoError(t, tree.Mkdir("a/b", 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "a/b/file"), []byte("new"), 0o600))
			m, err := tree.Stat("a/b/file")
			require.NoError(t, err)
			require.EqualValues(t, 3, m.Size)
		})
	}
}

// The folder is replaced between its lookup and its use.
func TestWithFolderTriesAgain(t *testing.T) {
	tree, dir := openTree(t)
	folder := filepath.Join(dir, "a", "b")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	calls := 0
	look := func(root *os.Root) error {
		calls++
		_, err := root.Lstat("file")
		return err
	}
	require.ErrorIs(t, tree.withFolder("a/b", look), fs.ErrNotExist)
	require.Equal(t, 1, calls, "it is in place, so the file is missing")

	if os.PathSeparator != '/' {
		return
	}
	calls = 0
	require.NoError(t, tree.withFolder("a/b", func(root *os.Root) error {
		if calls == 0 {
			require.NoError(t, os.RemoveAll(filepath.Dir(folder)))
			require.NoError(t, os.MkdirAll(folder, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(folder, "file"), nil, 0o600))
		}
		return look(root)
	}))
	require.Equal(t, 2, calls)

	calls = 0
	require.ErrorIs(t, tree.withFolder("a/b", func(root *os.Root) error {
		require.NoError(t, os.RemoveAll(folder))
		return look(root)
	}), fs.ErrNotExist)
	require.Equal(t, 1, calls, "there is nothing to try again with")
	require.ErrorIs(t, tree.withFolder("../a", look), ErrPath)
}

// Changes by others are noticed within folderFresh, and changes by the tree at once.
func TestFoldersStayFresh(t *testing.T) {
	if os.PathSeparator != '/' {
		t.Skip("open folders can't be renamed")
	}
	tree, dir := openTree(t)
	write := func(path, content string) {
		t.Helper()
		require.NoError(t, os.WriteFile(filepath.Join(dir, path), []byte(content), 0o600))
	}
	size := func(path string) int64 {
		t.Helper()
		m, err := tree.Stat(path)
		require.NoError(t, err)
		return m.Size
	}
	require.NoError(t, tree.Mkdir("a/b", 0o755))
	write("a/b/file", "old")
	require.EqualValues(t, 3, size("a/b/file"))
	f, fresh := tree.folders.get("a/b")
	defer f.release()
	since := f.checked
	require.True(t, fresh || tree.folders.now()-since >= int64(folderFresh))
	// It was checked later, so it expires later, but no sooner than before.
	tree.folders.confirm(f, since-1)
	require.Equal(t, since, f.checked)
	tree.folders.confirm(f, since-int64(folderFresh))
	require.False(t, tree.folders.fresh(tree.folders.now()-int64(folderFresh), tree.folders.now()))
	require.False(t, tree.folders.fresh(0, tree.folders.now()), "never checked")

	// A folder in one that was entered long ago is as uncertain as that one.
	tree.folders.forgetBelow("a/b")
	above, _ := tree.folders.get("a")
	defer above.release()
	tree.folders.mu.Lock()
	above.checked = 0
	tree.folders.mu.Unlock()
	below, err := tree.enter(above, "b")
	require.NoError(t, err)
	defer below.release()
	require.Zero(t, below.checked)

	// Here the tree itself moves one folder and makes another.
	require.EqualValues(t, 3, size("a/b/file"))
	require.NoError(t, tree.Remove("a", "backup"))
	_, err = tree.Stat("a/b/file")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.EqualValues(t, 3, size("backup/a/b/file"))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "backup/a/b")))
	require.NoError(t, tree.Mkdir("backup/a/b", 0o755))
	write("backup/a/b/file", "newer")
	require.EqualValues(t, 5, size("backup/a/b/file"))

	// Others replaced it from the top: a writer finds the new one.
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "backup")))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "backup/a/b"), 0o755))
	batch := NewBatch(tree, TargetOptions{})
	batch.Add(stage(t, tree, "backup/a/b/file", 10, TargetOptions{}))
	require.Equal(t, []error{nil}, batch.Commit())
	checkContent(t, filepath.Join(dir, "backup/a/b/file"), 10)
}

// TestFoldersOfAllTrees: many trees together keep few folders open, and leave some to one that comes
// later.
func TestFoldersOfAllTrees(t *testing.T) {
	t.Parallel()
	const limit, trees, wide = 2048, 40, 150
	pool := newFolderPool(limit)
	dir := t.TempDir()
	for i := range wide {
		require.NoError(t, os.Mkdir(filepath.Join(dir, fmt.Sprint(i)), 0o755))
	}
	visit := func() *Tree {
		tree, err := Open(dir)
		require.NoError(t, err)
		tree.folders.pool = pool
		for i := range wide {
			_, err := tree.Stat(fmt.Sprintf("%d/none", i))
			require.ErrorIs(t, err, fs.ErrNotExist)
		}
		return tree
	}
	alone := visit()
	require.Equal(t, limit/16/2, alone.folders.recent.Len(), "one tree leaves others as much")
	var all []*Tree
	for range trees {
		all = append(all, visit())
		require.GreaterOrEqual(t, all[len(all)-1].folders.recent.Len(), leastFolders)
	}
	require.LessOrEqual(t, pool.kept.Load(), int64(limit/16+trees*leastFolders))
	for _, tree := range append(all, alone) {
		require.NoError(t, tree.Close())
	}
	require.Zero(t, pool.kept.Load())
}

func TestFoldersAreBounded(t *testing.T) {
	tree, dir := openTree(t)
	tree.folders.pool = newFolderPool(OpenFiles()) // other trees of this process are not in it
	most := min(maxFolders, int(tree.folders.pool.most)/2)
	before := openDescriptors(t)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "held"), 0o755))
	held, err := tree.folder("held")
	require.NoError(t, err)
	_, err = held.dir()
	require.NoError(t, err)
	const n = maxFolders + 50
	for i := range n {
		path := fmt.Sprintf("%d/sub", i)
		require.NoError(t, tree.Mkdir(path, 0o755))
		_, err := tree.Stat(path + "/none")
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	require.Equal(t, most, tree.folders.recent.Len())
	require.Len(t, tree.folders.byPath, most)
	require.LessOrEqual(t, openDescriptors(t), before+2*most+3)
	require.NotContains(t, tree.folders.byPath, "held")
	_, err = held.root.Stat(".")
	require.NoError(t, err, "dropped, not closed")

	last := fmt.Sprint(n - 1)
	tree.folders.forgetBelow(last)
	require.NotContains(t, tree.folders.byPath, last)
	require.NotContains(t, tree.folders.byPath, last+"/sub")
	require.Contains(t, tree.folders.byPath, fmt.Sprint(n-2)+"/sub")

	require.NoError(t, tree.Close())
	require.NoError(t, tree.Close())
	_, err = held.root.Stat(".")
	require.NoError(t, err)
	held.release()
	_, err = held.root.Stat(".")
	require.ErrorIs(t, err, os.ErrClosed)
	require.LessOrEqual(t, openDescriptors(t), before)
	_, err = tree.Stat("1")
	require.ErrorIs(t, err, os.ErrClosed)
	_, err = tree.Stat(last + "/sub")
	require.ErrorIs(t, err, os.ErrClosed)
}

func TestIdleFoldersAreClosed(t *testing.T) {
	tree, _ := openTree(t)
	require.NoError(t, tree.Mkdir("idle/sub", 0o755))
	require.NoError(t, tree.Mkdir("used/sub", 0o755))
	for _, path := range []string{"idle/sub/x", "used/sub/x"} {
		_, err := tree.Stat(path)
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	before := openDescriptors(t)
	require.Len(t, tree.folders.byPath, 4)
	tree.folders.dropIdle()
	require.Len(t, tree.folders.byPath, 4)
	_, err := tree.Stat("used/sub/x")
	require.ErrorIs(t, err, fs.ErrNotExist)
	tree.folders.dropIdle()
	require.Len(t, tree.folders.byPath, 1)
	require.Contains(t, tree.folders.byPath, "used/sub")
	tree.folders.dropIdle()
	require.Empty(t, tree.folders.byPath)
	require.LessOrEqual(t, openDescriptors(t), before)
}

// openDescriptors counts the descriptors of this process, 0 where that is unknown.
func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Logf("counting descriptors: %v", err)
	}
	return len(entries)
}

func TestFoldersConcurrently(t *testing.T) {
	if os.PathSeparator != '/' {
		t.Skip("open folders can't be renamed")
	}
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	tree, dir := openTree(t)
	const folders = maxFolders + 20
	content := func(i int) string { return fmt.Sprint("content of ", i) }
	for i := range folders {
		require.NoError(t, tree.Mkdir(fmt.Sprintf("%d/x", i), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d/x/file", i)), []byte(content(i)), 0o600))
	}
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(seed), uint64(worker)))
			for range 2000 {
				i := random.IntN(folders)
				if worker == 0 { // two folders change places, or are away for a moment
					j := random.IntN(folders)
					a, b, away := filepath.Join(dir, fmt.Sprint(i)), filepath.Join(dir, fmt.Sprint(j)), filepath.Join(dir, "away")
					if i != j && os.Rename(a, away) == nil {
						_ = os.Rename(b, a)
						_ = os.Rename(a, b)
						_ = os.Rename(away, a)
					}
					continue
				}
				source, err := tree.OpenFile(fmt.Sprintf("%d/x/file", i))
				if err != nil {
					continue
				}
				b := make([]byte, 64)
				n, _ := source.ReadAt(b, 0)
				if got := string(b[:n]); len(got) < len("content of 0") {
					t.Errorf("read %q", got)
				}
				_ = source.Unchanged()
				_ = source.Close()
			}
		})
	}
	wg.Wait()
	tree.folders.changed() // an exchange within folderFresh may go unnoticed otherwise
	for i := range folders {
		source, err := tree.OpenFile(fmt.Sprintf("%d/x/file", i))
		require.NoError(t, err)
		b := make([]byte, len(content(i)))
		_, err = source.ReadAt(b, 0)
		require.NoError(t, err)
		require.Equal(t, content(i), string(b), "each is back in its place")
		require.NoError(t, source.Unchanged())
		require.NoError(t, source.Close())
	}
}
