package disk

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stage puts a file of one block with the content from blockOf.
func stage(t *testing.T, tree *Tree, path string, size int64, opt TargetOptions) *Staged {
	t.Helper()
	content, _ := blockOf(0, int(size))
	s, err := tree.Put(testMeta(path, size), content, opt)
	require.NoError(t, err)
	return s
}

func TestPutAndBatch(t *testing.T) {
	for _, opt := range []TargetOptions{{}, {Sync: SyncFile}, {Sync: SyncNone}} {
		t.Run(fmt.Sprint(opt.Sync), func(t *testing.T) {
			tree, dir := openTree(t)
			require.NoError(t, tree.Mkdir("a/b", 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "a/old"), []byte("old"), 0o600))
			paths := []string{"x", "a/b/x", "a/b/y", "a/old", "z"}
			batch := NewBatch(tree, opt)
			for i, path := range paths {
				batch.Add(stage(t, tree, path, int64(i*700), opt))
			}
			p, err := tree.Partial(testMeta("large", 5*testBlock+1), testBlock, opt)
			require.NoError(t, err)
			for block := range int64(6) {
				put(t, p, block)
			}
			s, err := p.Stage(testMeta("large", 5*testBlock+1))
			require.NoError(t, err)
			require.ErrorIs(t, p.Commit(testMeta("large", 5*testBlock+1)), os.ErrClosed)
			require.NoError(t, p.Abort(), "it is no longer the Partial's")
			batch.Add(s)
			got, err := os.ReadFile(filepath.Join(dir, "a/old"))
			require.NoError(t, err)
			require.Equal(t, "old", string(got), "not before Commit")
			require.NoFileExists(t, filepath.Join(dir, "x"))
			require.Len(t, leftovers(t, dir), 4)

			require.Equal(t, make([]error, 6), batch.Commit())
			require.NoError(t, tree.SyncAll())
			require.Empty(t, batch.Commit(), "all were taken")
			for i, path := range paths {
				checkContent(t, filepath.Join(dir, path), int64(i*700))
				m, err := tree.Stat(path)
				require.NoError(t, err)
				require.True(t, m.ModTime.Equal(someTime), "%v", m.ModTime)
				if os.PathSeparator == '/' {
					require.EqualValues(t, 0o640, m.Mode)
				}
			}
			checkContent(t, filepath.Join(dir, "large"), 5*testBlock+1)
			for _, folder := range []string{".", "a", "a/b"} {
				require.Empty(t, leftovers(t, filepath.Join(dir, folder)))
			}
			require.NoError(t, s.Discard())
			require.FileExists(t, filepath.Join(dir, "large"))
		})
	}
}

func TestPutRefuses(t *testing.T) {
	tree, dir := openTree(t)
	_, err := tree.Put(testMeta("x", 3), make([]byte, 4), TargetOptions{})
	require.Error(t, err)
	for path, want := range map[string]error{
		".": ErrExists, "../x": ErrPath, "none/x": os.ErrNotExist, reservedName("x") + partialSuffix: ErrPath,
	} {
		_, err = tree.Put(testMeta(path, 1), []byte{1}, TargetOptions{})
		require.ErrorIs(t, err, want, path)
	}
	require.Empty(t, leftovers(t, dir))
}

func TestStagedIsBusy(t *testing.T) {
	tree, dir := openTree(t)
	other, err := Open(dir)
	require.NoError(t, err)
	defer other.Close()
	s := stage(t, tree, "file", 10, TargetOptions{})
	for _, in := range []*Tree{tree, other} {
		_, err := in.Put(testMeta("file", 1), []byte{1}, TargetOptions{})
		require.ErrorIs(t, err, ErrBusy)
		_, err = in.Partial(testMeta("file", 10*testBlock), testBlock, TargetOptions{})
		require.ErrorIs(t, err, ErrBusy)
	}
	_, err = other.Sweep(t.Context(), ".", -1)
	require.NoError(t, err)
	require.Len(t, leftovers(t, dir), 1, "its old time doesn't count")
	require.NoError(t, s.Discard())
	require.NoError(t, s.Discard())
	require.Empty(t, leftovers(t, dir))
	batch := NewBatch(tree, TargetOptions{})
	batch.Add(s)
	require.ErrorIs(t, batch.Commit()[0], os.ErrClosed)
}

// Leftovers of a killed process are overwritten, with everything that belongs to them.
func TestPutOverLeftover(t *testing.T) {
	tree, dir := openTree(t)
	p := openPartial(t, tree, testMeta("file", 5*testBlock), TargetOptions{})
	put(t, p, 0)
	require.NoError(t, p.Close())
	require.Len(t, leftovers(t, dir), 2)
	batch := NewBatch(tree, TargetOptions{})
	batch.Add(stage(t, tree, "file", 10, TargetOptions{}))
	require.Equal(t, []error{nil}, batch.Commit())
	checkContent(t, filepath.Join(dir, "file"), 10)
	require.Empty(t, leftovers(t, dir))
}

// An empty leftover may belong to a process that has made it and not locked it yet. That process
// must notice that it lost the file.
func TestEmptyLeftoverIsNotWritten(t *testing.T) {
	tree, dir := openTree(t)
	name := filepath.Join(dir, reservedName("file")+partialSuffix)
	for _, take := range []func() *Staged{
		func() *Staged { return stage(t, tree, "file", 10, TargetOptions{}) },
		func() *Staged {
			p := openPartial(t, tree, testMeta("file", 10), TargetOptions{})
			put(t, p, 0)
			s, err := p.Stage(testMeta("file", 10))
			require.NoError(t, err)
			return s
		},
	} {
		early, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		require.NoError(t, err)
		t.Cleanup(func() { _ = early.Close() })
		s := take()
		batch := NewBatch(tree, TargetOptions{})
		batch.Add(s)
		require.Equal(t, []error{nil}, batch.Commit())
		checkContent(t, filepath.Join(dir, "file"), 10)
		info, err := early.Stat()
		require.NoError(t, err)
		require.Zero(t, info.Size())
		require.NoError(t, os.Remove(filepath.Join(dir, "file")))
		_, err = s.ReadAt(make([]byte, 1), 0)
		require.ErrorIs(t, err, os.ErrClosed)
	}
}

// Many writers write one file, and Sweep runs. Each writer that gets no error has written it, and
// the file is whole at all times.
func TestManyWritersOfOneFile(t *testing.T) {
	dir := t.TempDir()
	content := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, i%200+1) }
	whole := func() {
		got, err := os.ReadFile(filepath.Join(dir, "file"))
		if err == nil && (len(got) == 0 || !bytes.Equal(got, content(len(got)-1)) && !bytes.Equal(got, content(len(got)+199))) {
			t.Errorf("%d bytes: %v", len(got), got)
		}
	}
	var writers sync.WaitGroup
	var named, busy atomic.Int64
	for worker := range 4 {
		tree, err := Open(dir)
		require.NoError(t, err)
		t.Cleanup(func() { _ = tree.Close() })
		writers.Go(func() {
			batch := NewBatch(tree, TargetOptions{Sync: SyncNone})
			for i := range 400 {
				i := (i*4 + worker) % 256
				s, err := tree.Put(testMeta("file", int64(len(content(i)))), content(i), TargetOptions{Sync: SyncNone})
				switch {
				case errors.Is(err, ErrBusy):
					busy.Add(1)
				case err != nil:
					t.Error(err)
				case i%8 == 0:
					if err := s.Discard(); err != nil {
						t.Error(err)
					}
				default:
					batch.Add(s)
					if err := batch.Commit()[0]; err != nil {
						t.Error(err)
					}
					named.Add(1)
				}
				whole()
				if i%16 == 1 {
					if _, err := tree.Sweep(t.Context(), ".", -time.Hour); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	writers.Wait()
	whole()
	t.Logf("%d named, %d busy", named.Load(), busy.Load())
	require.Positive(t, named.Load())
	require.Empty(t, leftovers(t, dir))
}

func TestBatchWithErrors(t *testing.T) {
	tree, dir := openTree(t)
	require.NoError(t, tree.Mkdir("gone", 0o755))
	require.NoError(t, tree.Mkdir("taken/x", 0o755))
	opt := TargetOptions{}
	staged := []*Staged{
		stage(t, tree, "a", 1, opt), stage(t, tree, "gone/b", 1, opt), stage(t, tree, "gone/c", 1, opt),
		stage(t, tree, "taken", 9, opt), stage(t, tree, "stolen", 1, opt), stage(t, tree, "z", 1, opt),
	}
	batch := NewBatch(tree, opt)
	for _, s := range staged {
		batch.Add(s)
	}
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "gone")))
	require.NoError(t, os.Remove(filepath.Join(dir, reservedName("stolen")+partialSuffix)))
	require.NoError(t, os.WriteFile(filepath.Join(dir, reservedName("stolen")+partialSuffix), []byte("other"), 0o600))
	errs := batch.Commit()
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], os.ErrNotExist)
	require.ErrorIs(t, errs[2], os.ErrNotExist)
	require.ErrorIs(t, errs[3], ErrExists)
	require.ErrorIs(t, errs[4], os.ErrNotExist)
	require.NoError(t, errs[5])
	require.NoFileExists(t, filepath.Join(dir, "stolen"))

	require.NoError(t, tree.Remove("taken", ""))
	batch.Add(staged[3])
	require.Equal(t, []error{nil}, batch.Commit(), "once more, with the folder out of the way")
	checkContent(t, filepath.Join(dir, "taken"), 9)
	for _, s := range staged {
		if s != staged[1] && s != staged[2] {
			require.NoError(t, s.Discard())
		}
	}
	require.ErrorIs(t, staged[1].Discard(), os.ErrNotExist)
	require.ErrorIs(t, staged[2].Discard(), os.ErrNotExist)
}

// A large file that a batch could not name is resumed at its end.
func TestDiscardKeepsCheckpoint(t *testing.T) {
	tree, dir := openTree(t)
	m := testMeta("file", 5*testBlock)
	p := openPartial(t, tree, m, TargetOptions{})
	for block := range int64(5) {
		put(t, p, block)
	}
	s, err := p.Stage(m)
	require.NoError(t, err)
	require.NoError(t, s.Discard())
	require.Len(t, leftovers(t, dir), 2)
	p = openPartial(t, tree, m, TargetOptions{})
	require.Equal(t, []Extent{{0, 5}}, p.Have())
	require.NoError(t, p.Commit(m))
	checkContent(t, filepath.Join(dir, "file"), 5*testBlock)
}

func TestFailedSyncOfBatchIsSticky(t *testing.T) {
	tree, dir := openTree(t)
	s := stage(t, tree, "file", 10, TargetOptions{})
	s.fail(errors.New("sync failed"))
	batch := NewBatch(tree, TargetOptions{})
	batch.Add(s)
	require.ErrorContains(t, batch.Commit()[0], "sync failed")
	require.NoFileExists(t, filepath.Join(dir, "file"))
	require.NoError(t, s.Discard())
	require.Empty(t, leftovers(t, dir))
}

func TestStageIncomplete(t *testing.T) {
	tree, _ := openTree(t)
	m := testMeta("file", 2*testBlock)
	p := openPartial(t, tree, m, TargetOptions{})
	put(t, p, 1)
	_, err := p.Stage(m)
	require.ErrorIs(t, err, ErrIncomplete)
	put(t, p, 0)
	s, err := p.Stage(m)
	require.NoError(t, err, "still open after the error")
	require.NoError(t, s.Discard())
}

// Many goroutines put and add while others commit.
func TestConcurrentBatch(t *testing.T) {
	tree, dir := openTree(t)
	batch := NewBatch(tree, TargetOptions{})
	commit := func() {
		for _, err := range batch.Commit() {
			if err != nil {
				t.Error(err)
			}
		}
	}
	var writers sync.WaitGroup
	for worker := range 4 {
		writers.Go(func() {
			folder := fmt.Sprintf("folder%d", worker%2)
			if err := tree.Mkdir(folder, 0o755); err != nil {
				t.Error(err)
			}
			for i := range 200 {
				content, _ := blockOf(0, i)
				s, err := tree.Put(testMeta(fmt.Sprintf("%s/%d-%d", folder, worker, i), int64(i)), content, TargetOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				if batch.Add(s); i%50 == 49 {
					commit()
				}
			}
		})
	}
	writers.Wait()
	commit()
	for worker := range 4 {
		for i := range 200 {
			checkContent(t, filepath.Join(dir, fmt.Sprintf("folder%d/%d-%d", worker%2, worker, i)), int64(i))
		}
	}
}
