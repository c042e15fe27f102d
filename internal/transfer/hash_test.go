package transfer

import (
	"math/rand/v2"
	"testing"

	"github.com/fxfer/fxfer/internal/digest"
	"github.com/stretchr/testify/require"
	"lukechampine.com/blake3"
)

// TestHashTree proves that block digests, added in any order, combine to the standard digest of the file.
func TestHashTree(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	const blockSize = 64 << 10
	sizes := []int{0, 1, 1023, 1024, 1025, 16384, 16385, blockSize - 1, blockSize, blockSize + 1, 2 * blockSize, 3*blockSize - 7, 4 * blockSize, 7*blockSize + 1025, 8 * blockSize}
	for range 30 {
		sizes = append(sizes, rng.IntN(40*blockSize))
	}
	for _, size := range sizes {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		blocks := (size + blockSize - 1) / blockSize
		var tree hashTree
		var h digest.Hasher
		for n, i := range rng.Perm(blocks) {
			block := data[i*blockSize : min(size, (i+1)*blockSize) : min(size, (i+1)*blockSize)]
			h.Reset(int64(i * blockSize))
			for len(block) > 0 {
				k := min(len(block), (1+rng.IntN(3))*digest.GroupSize)
				h.Write(block[:k:k])
				block = block[k:]
			}
			require.False(t, tree.has(int64(i)))
			require.True(t, tree.add(int64(i), h.Sum()))
			require.False(t, tree.add(int64(i), h.Sum()))
			require.True(t, tree.has(int64(i)))
			_, ok := tree.root(int64(blocks))
			require.Equal(t, n == blocks-1, ok)
		}
		got, ok := tree.root(int64(blocks))
		require.True(t, ok)
		require.Equal(t, blake3.Sum256(data), got, "size %d", size)
	}
}

func BenchmarkBlockHash(b *testing.B) {
	buf := make([]byte, 1<<20)
	b.SetBytes(1 << 20)
	var h digest.Hasher
	for b.Loop() {
		h.Reset(0)
		h.Write(buf)
		_ = h.Sum()
	}
}
