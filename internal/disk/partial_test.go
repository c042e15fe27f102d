package disk

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const testBlock = 1 << 20

func testMeta(path string, size int64) Meta {
	return Meta{Path: path, Kind: File, Size: size, Mode: 0o640, ModTime: someTime,
		ID: Identity{Size: size, ModTime: 42, Ino: 7, Dev: 1}}
}

func openPartial(t *testing.T, tree *Tree, m Meta, opt TargetOptions) *Partial {
	t.Helper()
	p, err := tree.Partial(m, testBlock, opt)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func TestCommit(t *testing.T) {
	for _, size := range []int64{0, 1, testBlock - 1, testBlock, testBlock + 1, 2 * testBlock, 10*testBlock + 5} {
		for _, opt := range []TargetOptions{{Sync: SyncNone}, {Sync: SyncFile}, {}} {
			t.Run(fmt.Sprint(size, opt), func(t *testing.T) {
				tree, dir := openTree(t)
				require.NoError(t, tree.Mkdir("sub", 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(dir, "sub/file"), []byte("old"), 0o600))
				m := testMeta("sub/file", size)
				p := openPartial(t, tree, m, opt)
				require.Empty(t, p.Have())
				want := make([]byte, 0, size)
				for block := range p.blocks(size) {
					b, _ := blockOf(block, blockLength(block, size, testBlock))
					want = append(want, b...)
					put(t, p, block)
				}
				got, err := os.ReadFile(filepath.Join(dir, "sub/file"))
				require.NoError(t, err)
				require.Equal(t, "old", string(got), "not before Commit")
				require.NoError(t, p.Commit(m))
				got, err = os.ReadFile(filepath.Join(dir, "sub/file"))
				require.NoError(t, err)
				require.True(t, bytes.Equal(want, got))
				after, err := tree.Stat("sub/file")
				require.NoError(t, err)
				require.True(t, after.ModTime.Equal(someTime), "%v", after.ModTime)
				if os.PathSeparator == '/' {
					require.EqualValues(t, 0o640, after.Mode)
				}
				require.Empty(t, leftovers(t, filepath.Join(dir, "sub")))
			})
		}
	}
}

func TestStream(t *testing.T) {
	tree, dir := openTree(t)
	m := testMeta("stream", -1)
	p := openPartial(t, tree, m, TargetOptions{Sync: SyncNone})
	put2 := func(block int64, n int) {
		b, cv := blockOf(block, n)
		_, err := p.WriteAt(b, block*testBlock)
		require.NoError(t, err)
		require.NoError(t, p.Mark(block, cv))
	}
	put2(0, testBlock)
	put2(2, 10)
	m.Size = 2*testBlock + 10
	require.ErrorIs(t, p.Commit(m), ErrIncomplete)
	short := m
	short.Size = 2 * testBlock
	require.ErrorIs(t, p.Commit(short), ErrIncomplete, "as many blocks, but others")
	put2(1, testBlock)
	require.NoError(t, p.Checkpoint(t.Context()))
	require.Equal(t, m.Size, p.Durable())
	long := m
	long.Size += 5
	require.ErrorIs(t, p.Commit(long), ErrIncomplete)
	require.NoError(t, p.Commit(m))
	info, err := os.Stat(filepath.Join(dir, "stream"))
	require.NoError(t, err)
	require.Equal(t, m.Size, info.Size())

	// A stream cannot be resumed, so a broken one leaves nothing.
	p = openPartial(t, tree, testMeta("other", -1), TargetOptions{Sync: SyncNone})
	put2(0, testBlock)
	require.NoError(t, p.Close())
	require.Empty(t, leftovers(t, dir))
	_, err = tree.Stat("other")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestTruncate(t *testing.T) {
	tree, dir := openTree(t)
	m := testMeta("stream", -1)
	p := openPartial(t, tree, m, TargetOptions{Sync: SyncNone})
	write := func(text string, off int64) {
		_, err := p.WriteAt([]byte(text), off)
		require.NoError(t, err)
	}
	write("begin, and more", 0)
	write("more", 2*testBlock)
	require.Error(t, p.Truncate(-1))
	require.NoError(t, p.Truncate(5))
	write("end", 20)
	require.NoError(t, p.Mark(0, [32]byte{}))
	m.Size = 23
	require.NoError(t, p.Commit(m))
	require.ErrorIs(t, p.Truncate(0), os.ErrClosed)
	got, err := os.ReadFile(filepath.Join(dir, "stream"))
	require.NoError(t, err)
	require.Equal(t, "begin"+string(make([]byte, 15))+"end", string(got))
	sized := openPartial(t, tree, testMeta("sized", testBlock), TargetOptions{Sync: SyncNone})
	require.Error(t, sized.Truncate(1))
}

func TestGuard(t *testing.T) {
	tree, dir := openTree(t)
	const size = 5*testBlock + 10
	m := testMeta("file", size)
	p := openPartial(t, tree, m, TargetOptions{Sync: SyncNone})
	for _, c := range []struct{ off, n int64 }{{-1, 1}, {size, 1}, {size - 1, 2}, {math.MaxInt64, 1}, {0, size + 1}} {
		_, err := p.WriteAt(make([]byte, c.n), c.off)
		require.Error(t, err, c)
	}
	require.Error(t, p.Mark(-1, [32]byte{}))
	require.Error(t, p.Mark(6, [32]byte{}))
	info, err := p.file.Stat()
	require.NoError(t, err)
	require.Zero(t, info.Size(), "preallocation doesn't show")

	require.ErrorIs(t, p.Commit(m), ErrIncomplete)
	for block := range int64(6) {
		put(t, p, block)
	}
	require.NoError(t, p.Drop(2))
	require.ErrorIs(t, p.Commit(m), ErrIncomplete)
	put(t, p, 2)
	wrong := m
	wrong.Size--
	require.Error(t, p.Commit(wrong))
	require.NoError(t, p.Commit(m))

	_, err = p.WriteAt([]byte{1}, 0)
	require.ErrorIs(t, err, os.ErrClosed)
	_, err = p.ReadAt(make([]byte, 1), 0)
	require.ErrorIs(t, err, os.ErrClosed)
	require.ErrorIs(t, p.Mark(0, [32]byte{}), os.ErrClosed)
	require.ErrorIs(t, p.Checkpoint(t.Context()), os.ErrClosed)
	require.ErrorIs(t, p.Commit(m), os.ErrClosed)
	require.NoError(t, p.Abort())
	require.NoError(t, p.Close())
	require.FileExists(t, filepath.Join(dir, "file"))

	_, err = tree.Partial(testMeta(".", 1), testBlock, TargetOptions{Sync: SyncNone})
	require.ErrorIs(t, err, ErrExists)
	_, err = tree.Partial(testMeta("none/file", 1), testBlock, TargetOptions{Sync: SyncNone})
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = tree.Partial(testMeta("file", 1), 0, TargetOptions{Sync: SyncNone})
	require.Error(t, err)
}

func TestFolderInTheWay(t *testing.T) {
	tree, dir := openTree(t)
	require.NoError(t, tree.Mkdir("early", 0o755))
	_, err := tree.Partial(testMeta("early", 10), testBlock, TargetOptions{Sync: SyncNone})
	require.ErrorIs(t, err, ErrExists)

	m := testMeta("late", 10)
	p := openPartial(t, tree, m, TargetOptions{Sync: SyncNone})
	put(t, p, 0)
	require.NoError(t, tree.Mkdir("late", 0o755))
	require.ErrorIs(t, p.Commit(m), ErrExists)
	require.NoError(t, os.Remove(filepath.Join(dir, "late")))
	require.NoError(t, p.Commit(m), "still open after the error")
}

// In virtual time no checkpoint falls due meanwhile, however busy the machine is.
func TestResume(t *testing.T) { synctest.Test(t, testResume) }

func testResume(t *testing.T) {
	tree, dir := openTree(t)
	const size = 9*testBlock + 100
	m := testMeta("file", size)
	p := openPartial(t, tree, m, TargetOptions{Sync: SyncNone})
	for _, block := range []int64{0, 1, 5, 9, 4} {
		put(t, p, block)
	}
	require.NoError(t, p.Drop(1))
	require.NoError(t, p.Checkpoint(t.Context()))
	require.EqualValues(t, 3*testBlock+100, p.Durable())
	put(t, p, 1) // again, with other blocks between
	put(t, p, 2)
	require.NoError(t, p.Drop(5))
	require.NoError(t, p.Close())
	require.Len(t, leftovers(t, dir), 2)

	m.ID.Dev++ // as after another mount of the source
	p = openPartial(t, tree, m, TargetOptions{Sync: SyncNone})
	if bootID() == ([32]byte{}) {
		require.EqualValues(t, 4*testBlock+100, p.Durable(), "Close made a checkpoint")
	} else {
		require.EqualValues(t, 3*testBlock+100, p.Durable())
	}
	require.Equal(t, []Extent{{0, 3}, {4, 1}, {9, 1}}, p.Have())
	digests := map[int64][32]byte{}
	require.NoError(t, p.Recorded(func(block int64, cv [32]byte) error {
		require.NotContains(t, digests, block)
		b := make([]byte, blockLength(block, size, testBlock))
		_, err := p.ReadAt(b, block*testBlock)
		require.NoError(t, err)
		want, wantCV := blockOf(block, len(b))
		require.True(t, bytes.Equal(want, b))
		require.Equal(t, wantCV, cv)
		digests[block] = cv
		return nil
	}))
	require.Len(t, digests, 5)
	stop := errors.New("stop")
	require.ErrorIs(t, p.Recorded(func(int64, [32]byte) error { return stop }), stop)
	require.NoError(t, p.Checkpoint(t.Context()))
	require.EqualValues(t, 4*testBlock+100, p.Durable(), "of the earlier run, too")
	for _, block := range []int64{3, 5, 6, 7, 8} {
		put(t, p, block)
	}
	require.Equal(t, []Extent{{0, 3}, {4, 1}, {9, 1}}, p.Have(), "of the earlier run")
	require.NoError(t, p.Commit(m))
	checkContent(t, filepath.Join(dir, "file"), size)
	require.Empty(t, leftovers(t, dir))
}

func checkContent(t *testing.T, path string, size int64) {
	t.Helper()
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.EqualValues(t, size, len(got))
	for block := int64(0); block*testBlock < size; block++ {
		want, _ := blockOf(block, blockLength(block, size, testBlock))
		require.True(t, bytes.Equal(want, got[block*testBlock:][:len(want)]), "block %d", block)
	}
}

func TestOtherLeftoverIsDiscarded(t *testing.T) {
	const size = 5 * testBlock
	for name, alter := range map[string]func(m *Meta, blockSize *int, dir string){
		"time":       func(m *Meta, _ *int, _ string) { m.ID.ModTime++ },
		"file":       func(m *Meta, _ *int, _ string) { m.ID.Ino++ },
		"size":       func(m *Meta, _ *int, _ string) { m.Size++ },
		"block size": func(_ *Meta, blockSize *int, _ string) { *blockSize *= 2 },
		"stream":     func(m *Meta, _ *int, _ string) { m.Size = -1 },
		"small":      func(m *Meta, _ *int, _ string) { m.Size = 5 },
		"partial gone": func(m *Meta, _ *int, dir string) {
			_ = os.Remove(filepath.Join(dir, reservedName(m.Path)+partialSuffix))
		},
		"checkpoint gone": func(m *Meta, _ *int, dir string) {
			_ = os.Remove(filepath.Join(dir, reservedName(m.Path)+checkpointSuffix))
		},
		"partial is a symlink": func(m *Meta, _ *int, dir string) {
			name := filepath.Join(dir, reservedName(m.Path)+partialSuffix)
			_ = errors.Join(os.Remove(name), os.Symlink("elsewhere", name))
		},
		"other target's": func(m *Meta, _ *int, dir string) {
			for _, suffix := range []string{partialSuffix, checkpointSuffix} {
				_ = os.Rename(filepath.Join(dir, reservedName(m.Path)+suffix), filepath.Join(dir, reservedName("x")+suffix))
			}
			m.Path = "x"
		},
	} {
		t.Run(name, func(t *testing.T) {
			tree, dir := openTree(t)
			m, blockSize := testMeta("file", size), testBlock
			p := openPartial(t, tree, m, TargetOptions{Sync: SyncNone})
			put(t, p, 0)
			require.NoError(t, p.Checkpoint(t.Context()))
			require.NoError(t, p.Close())
			alter(&m, &blockSize, dir)
			p, err := tree.Partial(m, blockSize, TargetOptions{Sync: SyncNone})
			require.NoError(t, err)
			require.Empty(t, p.Have())
			require.Zero(t, p.Durable())
			require.NoError(t, p.Recorded(func(int64, [32]byte) error { return errors.New("recorded") }))
			info, err := p.file.Stat()
			require.NoError(t, err)
			require.Zero(t, info.Size())
			require.NoError(t, p.Abort())
			require.Empty(t, leftovers(t, dir))
			require.NoFileExists(t, filepath.Join(dir, "elsewhere"))
		})
	}
}

// If the partial file is too short for a block, the block was not written.
func TestShortPartial(t *testing.T) {
	tree, dir := openTree(t)
	const size = 5*testBlock + 10
	p := openPartial(t, tree, testMeta("file", size), TargetOptions{Sync: SyncNone})
	for block := range int64(6) {
		put(t, p, block)
	}
	require.NoError(t, p.Close())
	for _, c := range []struct {
		size int64
		have []Extent
	}{{size, []Extent{{0, 6}}}, {size - 1, []Extent{{0, 5}}}, {2*testBlock - 1, []Extent{{0, 1}}}, {0, nil}} {
		require.NoError(t, os.Truncate(filepath.Join(dir, reservedName("file")+partialSuffix), c.size))
		p := openPartial(t, tree, testMeta("file", size), TargetOptions{Sync: SyncNone})
		require.ElementsMatch(t, c.have, p.Have())
		n := int64(0)
		require.NoError(t, p.Recorded(func(int64, [32]byte) error { n++; return nil }))
		want := int64(0)
		for _, x := range c.have {
			want += x.Count
		}
		require.Equal(t, want, n)
		require.NoError(t, p.Close())
	}
}

func TestCloseWithNothingDone(t *testing.T) {
	tree, dir := openTree(t)
	for _, size := range []int64{5, 5 * testBlock} {
		p := openPartial(t, tree, testMeta("file", size), TargetOptions{Sync: SyncNone})
		require.NoError(t, p.Close())
		require.Empty(t, leftovers(t, dir))
	}
}

func TestFailedSyncIsSticky(t *testing.T) {
	tree, _ := openTree(t)
	m := testMeta("file", 8*testBlock)
	p := openPartial(t, tree, m, TargetOptions{Sync: SyncNone})
	put(t, p, 0)
	put(t, p, 1)
	require.NoError(t, p.Checkpoint(t.Context()))
	put(t, p, 2)
	require.Error(t, p.fail(errors.New("sync failed"))) // as the keeper does
	require.ErrorContains(t, p.fail(errors.New("another")), "sync failed")
	require.ErrorContains(t, p.Mark(3, [32]byte{}), "sync")
	require.ErrorContains(t, p.Checkpoint(t.Context()), "sync")
	require.ErrorContains(t, p.Commit(m), "sync")
	require.ErrorContains(t, p.Close(), "sync")

	p = openPartial(t, tree, m, TargetOptions{Sync: SyncNone})
	require.Equal(t, []Extent{{0, 2}}, p.Have(), "cut back to what is on the medium")
}

func TestBusy(t *testing.T) {
	tree, dir := openTree(t)
	for _, size := range []int64{10, 10 * testBlock, -1} {
		m := testMeta("file", size)
		p := openPartial(t, tree, m, TargetOptions{Sync: SyncNone})
		_, err := tree.Partial(m, testBlock, TargetOptions{Sync: SyncNone})
		require.ErrorIs(t, err, ErrBusy)
		other, err := Open(dir)
		require.NoError(t, err)
		_, err = other.Partial(m, testBlock, TargetOptions{Sync: SyncNone})
		require.ErrorIs(t, err, ErrBusy)
		require.NoError(t, other.Close())
		require.NoError(t, p.Abort())
	}
}

func TestBusyAcrossProcesses(t *testing.T) {
	tree, dir := openTree(t)
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"=busy", "DIR="+dir)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	in, err := child.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	defer in.Close()
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "open\n", line)
	m := testMeta("file", 10*testBlock)
	_, err = tree.Partial(m, testBlock, TargetOptions{Sync: SyncNone})
	require.ErrorIs(t, err, ErrBusy)
	require.NoError(t, child.Process.Kill())
	require.Error(t, child.Wait())
	p := openPartial(t, tree, m, TargetOptions{Sync: SyncNone})
	require.NoError(t, p.Abort())
}

func busyChild() {
	tree, err := Open(os.Getenv("DIR"))
	if err == nil {
		_, err = tree.Partial(testMeta("file", 10*testBlock), testBlock, TargetOptions{Sync: SyncNone})
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// Many writers write many targets, some abort, and all want one of the targets.
func TestConcurrentPartials(t *testing.T) {
	tree, dir := openTree(t)
	files := 20
	if testing.Short() {
		files = 8
	}
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range files {
				name := fmt.Sprintf("f%d-%d", worker, i)
				if i%4 == 0 {
					name = "shared"
				}
				size := int64(i*300_000 + 1)
				m := testMeta(name, size)
				p, err := tree.Partial(m, testBlock, TargetOptions{Sync: SyncNone})
				if name == "shared" && errors.Is(err, ErrBusy) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				var writers sync.WaitGroup
				for block := range p.blocks(size) {
					writers.Go(func() {
						b, cv := blockOf(block, blockLength(block, size, testBlock))
						if _, err := p.WriteAt(b, block*testBlock); err != nil {
							t.Error(err)
						}
						if err := p.Mark(block, cv); err != nil {
							t.Error(err)
						}
					})
				}
				writers.Wait()
				end := func() error { return p.Commit(m) }
				if i%3 == 0 {
					end = p.Abort
				}
				if err := end(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Empty(t, leftovers(t, dir))
	last := files - 1
	checkContent(t, filepath.Join(dir, fmt.Sprintf("f3-%d", last)), int64(last*300_000+1))
}

// After any sequence of marks, drops, syncs and reopening, Have returns the finished blocks.
func TestResumeAgainstSet(t *testing.T) {
	tree, _ := openTree(t)
	const blocks = 30
	m := testMeta("file", blocks*testBlock)
	rapid.Check(t, func(t *rapid.T) {
		p, err := tree.Partial(m, testBlock, TargetOptions{Sync: SyncNone})
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Abort()) }()
		_, err = p.WriteAt([]byte{1}, m.Size-1)
		require.NoError(t, err)
		done := map[int64]byte{}
		n := byte(0)
		t.Repeat(map[string]func(*rapid.T){
			"mark": func(t *rapid.T) {
				b := rapid.Int64Range(0, blocks-1).Draw(t, "block")
				n++
				require.NoError(t, p.Mark(b, [32]byte{n}))
				done[b] = n
			},
			"drop": func(t *rapid.T) {
				b := rapid.Int64Range(0, blocks-1).Draw(t, "block")
				require.NoError(t, p.Drop(b))
				delete(done, b)
			},
			"reopen": func(t *rapid.T) {
				if len(done) == 0 {
					return // Close would remove it
				}
				if rapid.Bool().Draw(t, "synced") {
					require.NoError(t, p.Checkpoint(context.Background()))
				}
				require.NoError(t, p.Close())
				p, err = tree.Partial(m, testBlock, TargetOptions{Sync: SyncNone})
				require.NoError(t, err)
				require.EqualValues(t, len(done), p.earlier.have.Count())
				got := map[int64]byte{}
				require.NoError(t, p.Recorded(func(block int64, cv [32]byte) error {
					got[block] = cv[0]
					return nil
				}))
				require.Equal(t, done, got)
			},
		})
	})
}
