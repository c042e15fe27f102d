package disk

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkWrite lets 8 goroutines write one file in blocks of 1 MiB, and commits it with Sync.
// Choose a folder on the medium in question with TMPDIR. Checkpoints and write-back matter from
// -benchtime 2048x on.
func BenchmarkWrite(b *testing.B) {
	const block = 1 << 20
	tree, err := Open(b.TempDir())
	require.NoError(b, err)
	defer tree.Close()
	m := testMeta("file", int64(b.N)*block)
	buffers := make([][]byte, 8)
	for i := range buffers {
		buffers[i] = make([]byte, block)
		for j := range buffers[i] {
			buffers[i][j] = byte(i + j*j)
		}
	}
	b.SetBytes(block)
	b.ResetTimer()
	p, err := tree.Partial(m, block, TargetOptions{Sync: SyncFile})
	require.NoError(b, err)
	var next atomic.Int64
	var writers sync.WaitGroup
	for _, buffer := range buffers {
		writers.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= int64(b.N) {
					return
				}
				if _, err := p.WriteAt(buffer, i*block); err != nil {
					b.Error(err)
				}
				if err := p.Mark(i, [32]byte{byte(i)}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	writers.Wait()
	require.NoError(b, p.Commit(m))
}

// BenchmarkSmallFiles commits files of 4 KiB, without Sync, in a deep folder.
func BenchmarkSmallFiles(b *testing.B) {
	tree, err := Open(b.TempDir())
	require.NoError(b, err)
	defer tree.Close()
	require.NoError(b, tree.Mkdir("some/where/deep", 0o755))
	content := make([]byte, 4096)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		m := testMeta(fmt.Sprintf("some/where/deep/%d", i), int64(len(content)))
		p, err := tree.Partial(m, 1<<20, TargetOptions{Sync: SyncNone})
		if err == nil {
			_, err = p.WriteAt(content, 0)
		}
		if err == nil {
			err = p.Commit(m)
		}
		require.NoError(b, err)
	}
}

// BenchmarkPut lets one goroutine write files of 1 KiB, a thousand to a folder, and name them in
// batches. Choose a folder on the medium in question with TMPDIR, and -benchtime 100000x.
func BenchmarkPut(b *testing.B) {
	for name, opt := range map[string]TargetOptions{
		"batch": {}, "none": {Sync: SyncNone}, "all": {Owner: true, Xattrs: true},
	} {
		b.Run(name, func(b *testing.B) {
			tree, err := Open(b.TempDir())
			require.NoError(b, err)
			defer tree.Close()
			content := make([]byte, 1024)
			batch := NewBatch(tree, opt)
			commit := func() {
				for _, err := range batch.Commit() {
					require.NoError(b, err)
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if i%1000 == 0 {
					require.NoError(b, tree.Mkdir(fmt.Sprintf("some/folder%d", i/1000), 0o755))
				}
				m := testMeta(fmt.Sprintf("some/folder%d/file%d", i/1000, i), int64(len(content)))
				s, err := tree.Put(m, content, opt)
				if err != nil {
					b.Fatal(err)
				}
				if batch.Add(s); i%batch.Most() == batch.Most()-1 {
					commit()
				}
			}
			commit()
			require.NoError(b, tree.SyncAll())
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "files/s")
		})
	}
}
