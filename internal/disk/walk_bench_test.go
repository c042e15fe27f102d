package disk

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// benchTree makes 100,000 files in 1000 folders of two levels.
func benchTree(b *testing.B) (tree *Tree, files []string) {
	b.Helper()
	dir := b.TempDir()
	for i := range 1000 {
		folder := fmt.Sprintf("%d/folder-%d", i/100, i)
		require.NoError(b, os.MkdirAll(filepath.Join(dir, folder), 0o755))
		for j := range 100 {
			path := fmt.Sprintf("%s/file-%d", folder, j)
			require.NoError(b, os.WriteFile(filepath.Join(dir, path), nil, 0o600))
			files = append(files, path)
		}
	}
	tree, err := Open(dir)
	require.NoError(b, err)
	b.Cleanup(func() { tree.Close() })
	return tree, files
}

func BenchmarkWalk(b *testing.B) {
	tree, _ := benchTree(b)
	for name, opt := range map[string]WalkOptions{"plain": {}, "xattrs": {Xattrs: true}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			entries := 0
			for b.Loop() {
				err := tree.Walk(b.Context(), ".", opt, func(Meta) error {
					entries++
					return nil
				}, func(_ string, err error) { b.Error(err) })
				require.NoError(b, err)
			}
			b.ReportMetric(float64(entries)/b.Elapsed().Seconds(), "entries/s")
		})
	}
}

func BenchmarkStat(b *testing.B) {
	tree, files := benchTree(b)
	i := 0
	for b.Loop() {
		_, err := tree.Stat(files[i%len(files)])
		require.NoError(b, err)
		i++
	}
}

func BenchmarkOpenCompareClose(b *testing.B) {
	tree, files := benchTree(b)
	i := 0
	for b.Loop() {
		source, err := tree.OpenFile(files[i%len(files)])
		require.NoError(b, err)
		require.NoError(b, source.Unchanged())
		require.NoError(b, source.Close())
		i++
	}
}
