package digest

import (
	"testing"

	"github.com/stretchr/testify/require"
	"lukechampine.com/blake3"
)

// TestTree proves that the nodes of blocks combine to the standard digest of the file, in whatever
// order they are added.
func TestTree(t *testing.T) {
	rng, source := random(t)
	const blockSize = 64 << 10
	sizes := []int{
		0, 1, 1023, 1024, 1025, 16384, 16385, blockSize - 1, blockSize, blockSize + 1, 2 * blockSize,
		3*blockSize - 7, 4 * blockSize, 7*blockSize + 1025, 8 * blockSize,
	}
	for range 30 {
		sizes = append(sizes, rng.IntN(40*blockSize))
	}
	for _, size := range sizes {
		data := make([]byte, size)
		_, _ = source.Read(data)
		blocks := (size + blockSize - 1) / blockSize
		var tree Tree
		var h Hasher
		for n, i := range rng.Perm(blocks) {
			h.Reset(int64(i * blockSize))
			pieces(&h, data[i*blockSize:min(size, (i+1)*blockSize)], 1+rng.IntN(3), 1+rng.IntN(3))
			require.False(t, tree.Has(int64(i)))
			require.True(t, tree.Add(int64(i), h.Sum()))
			require.False(t, tree.Add(int64(i), h.Sum()))
			require.True(t, tree.Has(int64(i)))
			require.EqualValues(t, n+1, tree.Count())
			_, ok := tree.Root(int64(blocks))
			require.Equal(t, n == blocks-1, ok)
		}
		got, ok := tree.Root(int64(blocks))
		require.True(t, ok)
		require.Equal(t, blake3.Sum256(data), got, "size %d", size)
	}
}

// TestTreeRuns proves that AddRun does what as many Adds would.
func TestTreeRuns(t *testing.T) {
	rng, _ := random(t)
	n := node([]byte("alike"), 0)
	for range 100 {
		var one, other Tree
		start, count := rng.Int64N(50), rng.Int64N(50)
		blocks := start + count
		for b := range blocks {
			one.Add(b, n)
		}
		for _, b := range rng.Perm(int(start)) {
			other.Add(int64(b), n)
		}
		other.AddRun(start, count, n)
		want, _ := one.Root(blocks)
		got, ok := other.Root(blocks)
		require.True(t, ok)
		require.Equal(t, want, got, "%d blocks from %d on", count, start)
	}
}
