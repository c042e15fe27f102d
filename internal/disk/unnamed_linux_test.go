package disk

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A small file in a folder that the tree made has no name until the batch is committed, and nothing
// else of it is in the folder meanwhile.
func TestPutUnnamed(t *testing.T) {
	tree, dir := openTree(t)
	other, err := Open(dir)
	require.NoError(t, err)
	defer other.Close()
	require.NoError(t, tree.Mkdir("new", 0o755))
	in := filepath.Join(dir, "new")
	empty := func() {
		t.Helper()
		entries, err := os.ReadDir(in)
		require.NoError(t, err)
		require.Empty(t, entries)
	}
	commit := func(s *Staged) error {
		batch := NewBatch(tree, TargetOptions{})
		batch.Add(s)
		return batch.Commit()[0]
	}
	put := func() *Staged { return stage(t, tree, "new/file", 10, TargetOptions{}) }

	s := put()
	if s.nameless == nil {
		t.Skip("this file system has no files without names")
	}
	empty()
	for _, tree := range []*Tree{tree, other} {
		_, err := tree.Put(testMeta("new/file", 1), []byte{1}, TargetOptions{})
		require.ErrorIs(t, err, ErrBusy)
		_, err = tree.Partial(testMeta("new/file", 10*testBlock), testBlock, TargetOptions{})
		require.ErrorIs(t, err, ErrBusy)
		empty()
	}
	require.NoError(t, s.Discard())
	require.ErrorIs(t, commit(s), os.ErrClosed)
	empty()

	require.NoError(t, commit(put()))
	checkContent(t, filepath.Join(in, "file"), 10)
	require.NoError(t, os.WriteFile(filepath.Join(in, "file"), []byte("somebody else's"), 0o600))
	require.NoError(t, commit(put()), "it replaces a file")
	checkContent(t, filepath.Join(in, "file"), 10)
	require.NoError(t, os.Remove(filepath.Join(in, "file")))

	require.NoError(t, os.Mkdir(filepath.Join(in, "file"), 0o755))
	s = put()
	require.ErrorIs(t, commit(s), ErrExists)
	require.NoError(t, os.Remove(filepath.Join(in, "file")))
	require.NoError(t, commit(s), "once more, with the folder out of the way")
	checkContent(t, filepath.Join(in, "file"), 10)
	require.NoError(t, os.Remove(filepath.Join(in, "file")))

	early, err := other.Put(testMeta("new/file", 1), []byte{1}, TargetOptions{})
	require.NoError(t, err)
	require.Nil(t, early.nameless, "another tree made the folder")
	_, err = tree.Put(testMeta("new/file", 1), []byte{1}, TargetOptions{})
	require.ErrorIs(t, err, ErrBusy)
	require.NoError(t, early.Discard())
	empty()

	s = put()
	require.NotNil(t, s.nameless)
	require.NoError(t, os.RemoveAll(in))
	require.ErrorIs(t, commit(s), os.ErrNotExist)
	require.NoError(t, os.Mkdir(in, 0o755))
	require.NoError(t, commit(s), "another folder is in its place")
	checkContent(t, filepath.Join(in, "file"), 10)
	require.NotContains(t, writing.targets, s.target.hash)
}

// A file that was large a moment ago left a partial file.
func TestPutOverPartial(t *testing.T) {
	tree, dir := openTree(t)
	require.NoError(t, tree.Mkdir("new", 0o755))
	p := openPartial(t, tree, testMeta("new/file", 10*testBlock), TargetOptions{})
	_, err := tree.Put(testMeta("new/file", 1), []byte{1}, TargetOptions{})
	require.ErrorIs(t, err, ErrBusy)
	put(t, p, 0)
	require.NoError(t, p.Close())
	require.NotEmpty(t, leftovers(t, filepath.Join(dir, "new")))
	batch := NewBatch(tree, TargetOptions{})
	batch.Add(stage(t, tree, "new/file", 10, TargetOptions{}))
	require.Equal(t, []error{nil}, batch.Commit())
	checkContent(t, filepath.Join(dir, "new/file"), 10)
	require.Empty(t, leftovers(t, filepath.Join(dir, "new")))
}

// The tree knows that it made a folder, and whether it opened a Partial there, when it opens the folder
// once more.
func TestPutUnnamedLater(t *testing.T) {
	tree, _ := openTree(t)
	require.NoError(t, tree.Mkdir("new", 0o755))
	s := stage(t, tree, "new/first", 10, TargetOptions{})
	if s.nameless == nil {
		t.Skip("this file system has no files without names")
	}
	require.NoError(t, s.Discard())
	p := openPartial(t, tree, testMeta("new/large", 10*testBlock), TargetOptions{})
	put(t, p, 0)
	require.NoError(t, p.Close())
	tree.folders.forgetBelow("new")
	s = stage(t, tree, "new/large", 10, TargetOptions{})
	require.Nil(t, s.nameless, "it has a partial file")
	require.NoError(t, s.Discard())
	s = stage(t, tree, "new/other", 10, TargetOptions{})
	require.NotNil(t, s.nameless)
	require.NoError(t, s.Discard())
}

// Some systems give open files names by their paths in /proc only, and some not at all.
func TestLinkHow(t *testing.T) {
	before := linkHow.Load()
	t.Cleanup(func() { linkHow.Store(before) })
	for _, how := range []int32{linkUnknown, linkByPath, linkNever} {
		linkHow.Store(how)
		tree, dir := openTree(t)
		require.NoError(t, tree.Mkdir("new", 0o755))
		batch := NewBatch(tree, TargetOptions{})
		batch.Add(stage(t, tree, "new/file", 10, TargetOptions{}))
		require.Equal(t, []error{nil}, batch.Commit())
		checkContent(t, filepath.Join(dir, "new/file"), 10)
		require.Empty(t, leftovers(t, filepath.Join(dir, "new")))
	}
}

// A thread with credentials of its own, as Landlock gives each one, may not name the descriptor of
// another thread's file: the path in /proc works there.
func TestLinkByAnotherThread(t *testing.T) {
	before := linkHow.Load()
	t.Cleanup(func() { linkHow.Store(before) })
	tree, dir := openTree(t)
	require.NoError(t, tree.Mkdir("new", 0o755))
	batch := NewBatch(tree, TargetOptions{})
	batch.Add(stage(t, tree, "new/file", 10, TargetOptions{}))
	linkHow.Store(linkByDescriptor)
	committed := make(chan []error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			committed <- []error{err}
			return
		}
		committed <- batch.Commit()
	}()
	require.Equal(t, []error{nil}, <-committed)
	checkContent(t, filepath.Join(dir, "new/file"), 10)
}
