package disk

import (
	"bytes"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/blockset"
)

const (
	rangedSize   = 9*testBlock + 5
	rangedBlocks = 10
)

func openRange(t *testing.T, dir string, m Meta, start, count int64) *PartialRange {
	t.Helper()
	tree, err := Open(dir) // sessions have trees of their own
	require.NoError(t, err)
	t.Cleanup(func() { tree.Close() })
	r, err := tree.PartialRange(m, testBlock, start, count, TargetOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// putRange writes and marks blocks of a range.
func putRange(t *testing.T, r *PartialRange, blocks ...int64) {
	t.Helper()
	for _, block := range blocks {
		b, cv := blockOf(block, blockLength(block, rangedSize, testBlock))
		_, err := r.WriteAt(b, block*testBlock)
		require.NoError(t, err)
		require.NoError(t, r.Mark(block, cv))
	}
}

func finishRange(t *testing.T, r *PartialRange, all bool) {
	t.Helper()
	got, err := r.Finish(t.Context())
	require.NoError(t, err)
	require.Equal(t, all, got)
}

// recordedIn returns the blocks that a range has of before, whose digests must be right.
func recordedIn(t *testing.T, r *PartialRange) (blocks []int64) {
	t.Helper()
	require.NoError(t, r.Recorded(func(block int64, cv [32]byte) error {
		_, want := blockOf(block, blockLength(block, rangedSize, testBlock))
		require.Equal(t, want, cv)
		blocks = append(blocks, block)
		return nil
	}))
	return blocks
}

func requireRanged(t *testing.T, dir string) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(dir, "file"))
	require.NoError(t, err)
	require.Len(t, got, rangedSize)
	for block := range int64(rangedBlocks) {
		want, _ := blockOf(block, blockLength(block, rangedSize, testBlock))
		require.True(t, bytes.Equal(want, got[block*testBlock:][:len(want)]), "block %d", block)
	}
	require.Empty(t, leftovers(t, dir))
}

// stageRanged gives a target whose ranges are complete its name.
func stageRanged(t *testing.T, dir string, r *PartialRange, m Meta) {
	t.Helper()
	staged, err := r.Stage(m)
	require.NoError(t, err)
	batch := NewBatch(r.tree, TargetOptions{})
	batch.Add(staged)
	require.NoError(t, batch.Commit()[0])
	requireRanged(t, dir)
}

// TestRanges: ranges of one target are written at the same time, closed and opened again, also by
// another process, and the last one makes the file.
func TestRanges(t *testing.T) {
	dir, m := t.TempDir(), testMeta("file", rangedSize)
	a, b := openRange(t, dir, m, 0, 4), openRange(t, dir, m, 8, 2)
	require.True(t, a.Fresh())
	putRange(t, b, 9, 8)
	putRange(t, a, 2, 0)
	finishRange(t, b, false)
	require.False(t, a.Fresh())
	require.Len(t, leftovers(t, dir), 2, "one partial file and its checkpoint")

	require.NoError(t, a.Close()) // while b has the file open
	require.NoError(t, a.Close())
	a = openRange(t, dir, m, 0, 4)
	require.Equal(t, []Extent{{0, 1}, {2, 1}}, a.Have())
	require.Equal(t, []int64{2, 0}, recordedIn(t, a))
	putRange(t, a, 1)
	require.NoError(t, b.Close())
	require.NoError(t, a.Close()) // the last one
	a = openRange(t, dir, m, 0, 4)
	require.Equal(t, []Extent{{0, 3}}, a.Have())
	require.ElementsMatch(t, []int64{0, 1, 2}, recordedIn(t, a))
	_, err := a.Finish(t.Context())
	require.ErrorIs(t, err, ErrIncomplete)
	_, err = a.Stage(m)
	require.ErrorIs(t, err, ErrIncomplete)
	putRange(t, a, 3)
	finishRange(t, a, false)
	_, err = a.Stage(m)
	require.ErrorIs(t, err, ErrIncomplete)

	again := openRange(t, dir, m, 8, 2)
	own, all := again.Complete()
	require.True(t, own)
	require.False(t, all)
	require.Empty(t, again.Have(), "nothing is to be read again")
	require.NoError(t, again.Close())
	again = openRange(t, dir, m, 8, 1) // a part of what is complete
	own, _ = again.Complete()
	require.True(t, own)

	c := openRange(t, dir, m, 4, 4)
	putRange(t, c, 4, 5, 6, 7)
	finishRange(t, c, true)
	last := openRange(t, dir, m, 9, 1)
	own, all = last.Complete()
	require.True(t, own && all)
	stageRanged(t, dir, c, m)
	for _, r := range []*PartialRange{a, again, last} {
		_, err = r.Stage(m)
		require.ErrorIs(t, err, fs.ErrClosed, "it has its name")
	}
	_, err = a.WriteAt([]byte("x"), 0)
	require.ErrorIs(t, err, fs.ErrClosed)
}

// TestRangesKeepApart: a session writes in its range only, in no range that another one has or that is
// complete, and not together with a session that has another source or all of the file.
func TestRangesKeepApart(t *testing.T) {
	dir, m := t.TempDir(), testMeta("file", rangedSize)
	tree, err := Open(dir)
	require.NoError(t, err)
	defer tree.Close()
	for _, x := range [][2]int64{{-1, 1}, {0, 0}, {0, -1}, {0, 11}, {10, 1}, {1 << 62, 1 << 62}} {
		_, err := tree.PartialRange(m, testBlock, x[0], x[1], TargetOptions{})
		require.Error(t, err, x)
	}
	_, err = tree.PartialRange(testMeta("small", CheckpointFrom), testBlock, 0, 1, TargetOptions{})
	require.Error(t, err)
	_, err = tree.PartialRange(testMeta("stream", -1), testBlock, 0, 1, TargetOptions{})
	require.Error(t, err)
	require.Empty(t, leftovers(t, dir))

	r := openRange(t, dir, m, 2, 4)
	putRange(t, r, 3)
	for _, x := range [][2]int64{{0, 3}, {2, 4}, {3, 1}, {5, 5}} {
		_, err := tree.PartialRange(m, testBlock, x[0], x[1], TargetOptions{})
		require.ErrorIs(t, err, ErrBusy, x)
	}
	_, err = tree.Partial(m, testBlock, TargetOptions{})
	require.ErrorIs(t, err, ErrBusy)
	for name, other := range map[string]func(*Meta){
		"size":  func(m *Meta) { m.Size++; m.ID.Size++ },
		"time":  func(m *Meta) { m.ID.ModTime++ },
		"inode": func(m *Meta) { m.ID.Ino++ },
		"holes": func(m *Meta) { m.Holes = true },
	} {
		changed := m
		other(&changed)
		_, err := tree.PartialRange(changed, testBlock, 6, 4, TargetOptions{})
		require.ErrorIs(t, err, ErrBusy, name)
	}
	_, err = tree.PartialRange(m, testBlock/2, 12, 4, TargetOptions{})
	require.ErrorIs(t, err, ErrBusy)

	for _, x := range [][2]int64{{2*testBlock - 1, 1}, {0, 1}, {-1, 1}, {6 * testBlock, 1}, {6*testBlock - 1, 2}, {1 << 62, 1}} {
		n, err := r.WriteAt(make([]byte, x[1]), x[0])
		require.Error(t, err, x)
		require.Zero(t, n)
	}
	for _, block := range []int64{-1, 1, 6, 1 << 62} {
		require.Error(t, r.Mark(block, [32]byte{}))
		require.Error(t, r.Drop(block))
		require.Error(t, r.Skip(block, 1))
	}
	putRange(t, r, 2, 4, 5)
	finishRange(t, r, false)
	require.NoError(t, r.Close())
	r = openRange(t, dir, m, 2, 4)
	_, err = r.WriteAt([]byte("x"), 3*testBlock)
	require.Error(t, err, "it is complete")
	require.Error(t, r.Mark(3, [32]byte{}))
	require.NoError(t, r.Close())

	m.ID.ModTime++ // the source changed
	r = openRange(t, dir, m, 0, 4)
	require.True(t, r.Fresh(), "nothing of the old one counts")
	require.NoError(t, r.Close())
	require.Empty(t, leftovers(t, dir))
}

// TestRangesAsOne: a session that has all of the file goes on with what ranges left. What it finds
// damaged is complete no more.
func TestRangesAsOne(t *testing.T) {
	dir, m := t.TempDir(), testMeta("file", rangedSize)
	r := openRange(t, dir, m, 0, 8)
	putRange(t, r, 0, 1, 2, 3, 4, 5, 6, 7)
	finishRange(t, r, false)
	require.NoError(t, r.Close())
	tree, err := Open(dir)
	require.NoError(t, err)
	defer tree.Close()
	p := openPartial(t, tree, m, TargetOptions{})
	require.Equal(t, []Extent{{0, 8}}, p.Have())
	require.NoError(t, p.Drop(3))
	put(t, p, 9)
	require.NoError(t, p.Close())
	r = openRange(t, dir, m, 0, 8)
	own, _ := r.Complete()
	require.False(t, own)
	require.Equal(t, []Extent{{0, 3}, {4, 4}}, r.Have())
	require.NoError(t, r.Close())
	r = openRange(t, dir, m, 4, 4)
	own, _ = r.Complete()
	require.True(t, own)
	require.NoError(t, r.Close())
	p = openPartial(t, tree, m, TargetOptions{})
	put(t, p, 3)
	put(t, p, 8)
	require.NoError(t, p.Commit(m))
	requireRanged(t, dir)
}

// TestRangesWithHoles: a range of which nothing is written stays without data, and what a session wrote
// without marking it does not shine through.
func TestRangesWithHoles(t *testing.T) {
	dir, m := t.TempDir(), testMeta("file", rangedSize)
	m.Holes = true
	a, b := openRange(t, dir, m, 0, 4), openRange(t, dir, m, 4, 6)
	_, err := b.WriteAt([]byte("not marked"), 5*testBlock)
	require.NoError(t, err)
	require.NoError(t, b.Close())
	b = openRange(t, dir, m, 4, 6)
	require.NoError(t, b.Skip(4, 6))
	require.NoError(t, a.Skip(1, 3))
	putRange(t, a, 0)
	finishRange(t, a, false)
	require.NoError(t, a.Close())
	finishRange(t, b, true)
	require.NoError(t, b.Close())
	b = openRange(t, dir, m, 4, 6)
	own, all := b.Complete()
	require.True(t, own && all, "also the holes")
	staged, err := b.Stage(m)
	require.NoError(t, err)
	batch := NewBatch(b.tree, TargetOptions{})
	batch.Add(staged)
	require.NoError(t, batch.Commit()[0])
	want := make([]byte, rangedSize)
	block, _ := blockOf(0, testBlock)
	copy(want, block)
	got, err := os.ReadFile(filepath.Join(dir, "file"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))
	info, err := os.Stat(filepath.Join(dir, "file"))
	require.NoError(t, err)
	require.Less(t, allocated(info), int64(3*testBlock))
}

// putAll makes the target of ranges complete, and returns the range that does.
func putAll(t *testing.T, dir string, m Meta, all bool) *PartialRange {
	t.Helper()
	r := openRange(t, dir, m, 8, 2)
	putRange(t, r, 8, 9)
	finishRange(t, r, all)
	return r
}

// TestRangesReadAgain: what is there of complete ranges is read before the file gets its name, if the run
// was killed that wrote it or somebody has changed it since. What is damaged comes again.
func TestRangesReadAgain(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(t *testing.T, part, log string)
		unread    int64
		bad       []int64
	}{
		"nothing happens": {func(*testing.T, string, string) {}, 0, nil},
		"killed": {func(t *testing.T, _, log string) { // the last record lacks
			info, err := os.Stat(log)
			require.NoError(t, err)
			require.NoError(t, os.Truncate(log, info.Size()-recordSize))
		}, 8, nil},
		"damaged": {func(t *testing.T, part, _ string) {
			f, err := os.OpenFile(part, os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = f.WriteAt([]byte("damage"), 5*testBlock-3)
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}, 8, []int64{4, 5}},
		"damaged, and its time set": {func(t *testing.T, part, _ string) {
			info, err := os.Stat(part)
			require.NoError(t, err)
			f, err := os.OpenFile(part, os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = f.WriteAt([]byte("damage"), 0)
			require.NoError(t, err)
			require.NoError(t, f.Close())
			require.NoError(t, os.Chtimes(part, time.Time{}, info.ModTime()))
		}, 8, []int64{0}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, m := t.TempDir(), testMeta("file", rangedSize)
			a, b := openRange(t, dir, m, 0, 4), openRange(t, dir, m, 4, 4)
			putRange(t, a, 1, 0, 3, 2)
			putRange(t, b, 4, 5, 6, 7)
			finishRange(t, a, false)
			finishRange(t, b, false)
			require.Nil(t, a.Unread())
			require.NoError(t, a.Close())
			require.NoError(t, b.Close())
			reserved := filepath.Join(dir, reservedName("file"))
			c.meanwhile(t, reserved+partialSuffix, reserved+checkpointSuffix)
			last := putAll(t, dir, m, true)
			unread := last.Unread()
			if c.unread == 0 && runtime.GOOS == "linux" {
				require.Nil(t, unread)
				stageRanged(t, dir, last, m)
				return
			}
			require.EqualValues(t, 8, unread.Blocks.Count())
			_, err := last.Stage(m)
			require.ErrorIs(t, err, ErrIncomplete)
			var bad blockset.Set
			require.NoError(t, unread.Recorded(func(block int64, cv [32]byte) error {
				want, _ := blockOf(block, blockLength(block, rangedSize, testBlock))
				got := make([]byte, len(want))
				_, err := unread.ReadAt(got, block*testBlock)
				require.NoError(t, err)
				if !bytes.Equal(want, got) {
					bad.Add(block)
				}
				return nil
			}))
			require.Equal(t, c.bad, slices.Collect(bad.Blocks()))
			require.NoError(t, unread.Done(bad))
			require.Nil(t, last.Unread())
			if !bad.Empty() {
				_, err = last.Stage(m)
				require.ErrorIs(t, err, ErrIncomplete)
				r := openRange(t, dir, m, c.bad[0]&^3, 4)
				putRange(t, r, c.bad...)
				finishRange(t, r, true)
				last = r
			}
			stageRanged(t, dir, last, m)
		})
	}
}

// TestRangesOfTwoTrees: sessions reach the same target by different paths, for they have different shares,
// or a folder above was renamed meanwhile.
func TestRangesOfTwoTrees(t *testing.T) {
	dir := t.TempDir()
	sub := filepath.Join(dir, "old")
	require.NoError(t, os.Mkdir(sub, 0o755))
	a := openRange(t, dir, testMeta("old/file", rangedSize), 0, 8)
	putRange(t, a, 0, 1, 2, 3, 4, 5, 6, 7)
	finishRange(t, a, false)
	require.NoError(t, os.Rename(sub, filepath.Join(dir, "new")))
	sub = filepath.Join(dir, "new")
	stageRanged(t, sub, putAll(t, sub, testMeta("file", rangedSize), true), testMeta("file", rangedSize))
}

// TestRangesAfterStage: a range that was open when the file got its name does not hold what is opened
// later, whichever is closed first.
func TestRangesAfterStage(t *testing.T) {
	dir, m := t.TempDir(), testMeta("file", rangedSize)
	for _, oldFirst := range []bool{true, false} {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "file")))
		last, old := openRange(t, dir, m, 8, 2), openRange(t, dir, m, 0, 8)
		putRange(t, last, 8, 9)
		finishRange(t, last, false)
		putRange(t, old, 0, 1, 2, 3, 4, 5, 6, 7)
		finishRange(t, old, true)
		stageRanged(t, dir, last, m)
		later := openRange(t, dir, m, 0, 4)
		require.NotEmpty(t, leftovers(t, dir))
		for _, r := range map[bool][]*PartialRange{true: {old, later}, false: {later, old}}[oldFirst] {
			require.NoError(t, r.Close())
		}
		require.Empty(t, leftovers(t, dir), "old first: %v", oldFirst)
	}
}

// TestUsageOfRanges counts what is there of a target while a range of it is open: only that range is
// what a session has claimed.
func TestUsageOfRanges(t *testing.T) {
	dir, m := t.TempDir(), testMeta("file", rangedSize)
	tree, err := Open(dir)
	require.NoError(t, err)
	defer tree.Close()
	requireUsage := func(want int64) {
		t.Helper()
		bytes, entries, err := tree.Usage(t.Context())
		require.NoError(t, err)
		require.Equal(t, []int64{want, min(want, 1)}, []int64{bytes, entries})
	}
	a, b := openRange(t, dir, m, 0, 4), openRange(t, dir, m, 4, 4)
	putRange(t, a, 0, 1, 2, 3)
	putRange(t, b, 4)
	requireUsage(0)
	finishRange(t, a, false)
	requireUsage(0)
	require.NoError(t, a.Close())
	requireUsage(4 * testBlock)
	last := putAll(t, dir, m, false)
	require.NoError(t, b.Close())
	requireUsage(5 * testBlock)
	b = openRange(t, dir, m, 4, 4)
	requireUsage(4 * testBlock)
	putRange(t, b, 5, 6, 7)
	finishRange(t, b, true)
	require.NoError(t, last.Close())
	requireUsage(rangedSize - 4*testBlock)
	staged, err := b.Stage(m)
	require.NoError(t, err)
	requireUsage(rangedSize - 4*testBlock)
	require.NoError(t, staged.Discard())
}

// TestForgetRange drops a range without a look at each of its blocks: one without data may be very large.
func TestForgetRange(t *testing.T) {
	dir, m := t.TempDir(), testMeta("file", 4<<40)
	m.Holes = true
	r := openRange(t, dir, m, 0, 2<<40/testBlock)
	putRange(t, r, 7)
	require.NoError(t, r.Skip(0, 7))
	require.NoError(t, r.Skip(8, 2<<40/testBlock-8))
	r.Forget(blockset.Of([]blockset.Run{{Start: 7, Count: 1}}))
	require.True(t, r.Fresh())
	_, err := r.Finish(t.Context())
	require.ErrorIs(t, err, ErrIncomplete)
	require.NoError(t, r.Close())
	require.Empty(t, leftovers(t, dir))
}

// TestRangesAtOnce: sessions come and go at random, and end with the file.
func TestRangesAtOnce(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	dir, m := t.TempDir(), testMeta("file", rangedSize)
	var sessions sync.WaitGroup
	for n := range int64(5) {
		sessions.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(n)))
			for {
				r := openRange(t, dir, m, 2*n, 2)
				todo := map[int64]bool{2 * n: true, 2*n + 1: true}
				for _, block := range recordedIn(t, r) {
					delete(todo, block)
				}
				for block := range todo {
					if random.IntN(2) == 0 {
						putRange(t, r, block)
						delete(todo, block)
					}
				}
				all, err := false, error(nil)
				if len(todo) == 0 {
					all, err = r.Finish(t.Context())
					require.NoError(t, err)
				}
				if all {
					stageRanged(t, dir, r, m)
				}
				require.NoError(t, r.Close())
				if len(todo) == 0 {
					return
				}
			}
		})
	}
	sessions.Wait()
	requireRanged(t, dir)
	require.Empty(t, sharing.targets)
}
