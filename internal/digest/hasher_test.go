package digest

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"lukechampine.com/blake3"
	"lukechampine.com/blake3/guts"
)

// eachPath runs f with the fallback, and with vectors of 32 and of 64 bytes where this processor has them.
func eachPath[T interface {
	testing.TB
	Run(string, func(T)) bool
}](t T, f func(t T, vector bool)) {
	t.Run("fallback", func(t T) { f(t, false) })
	eachWidth(t, func(t T) { f(t, true) })
}

// eachWidth runs f with vectors of 32 and of 64 bytes.
func eachWidth[T interface {
	testing.TB
	Run(string, func(T)) bool
}](t T, f func(t T)) {
	for name, width := range map[string]struct{ have, wide bool }{"narrow": {haveNarrow, false}, "wide": {haveWide, true}} {
		t.Run(name, func(t T) {
			if !width.have {
				t.Skip("no such vectors")
			}
			defer func(before bool) { wideVectors = before }(wideVectors)
			wideVectors = width.wide
			f(t)
		})
	}
}

// random returns a source of random numbers and bytes whose seed the test prints.
func random(t *testing.T) (*rand.Rand, *rand.ChaCha8) {
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], rand.Uint64())
	t.Logf("seed %x", seed)
	source := rand.NewChaCha8(seed)
	return rand.New(source), source
}

// pieces writes p in pieces. Their sizes, in groups, are the given ones in turn.
func pieces(h *Hasher, p []byte, sizes ...int) {
	for i := 0; len(p) > 0; i++ {
		n := min(len(p), sizes[i%len(sizes)]*GroupSize)
		h.Write(p[:n:n])
		p = p[n:]
	}
}

// root returns the digest of a file whose top node is n.
func root(n guts.Node) (digest [32]byte) {
	n.Flags |= guts.FlagRoot
	for i, w := range guts.ChainingValue(n) {
		binary.LittleEndian.PutUint32(digest[4*i:], w)
	}
	return digest
}

// node is the definition of the tree, chunk by chunk.
func node(p []byte, counter uint64) guts.Node {
	if len(p) <= guts.ChunkSize {
		return guts.CompressChunk(p, &guts.IV, counter, 0)
	}
	chunks := uint64(len(p)-1) / guts.ChunkSize // the left subtree has the largest power of two of them
	left := uint64(1) << (bits.Len64(chunks) - 1)
	return parent(node(p[:left*guts.ChunkSize], counter), node(p[left*guts.ChunkSize:], counter+left))
}

func TestSizes(t *testing.T) {
	rng, source := random(t)
	data := make([]byte, MaxBlock+1024)
	_, _ = source.Read(data)
	sizes := []int{0, 1, 2}
	for chunks := 1; chunks <= 34; chunks++ {
		sizes = append(sizes, chunks*1024-1, chunks*1024, chunks*1024+1)
	}
	for groups := 1; groups <= 64; groups++ {
		sizes = append(sizes, groups*GroupSize-1, groups*GroupSize, groups*GroupSize+1, groups*GroupSize+1025, groups*GroupSize+2048)
	}
	for range 100 {
		sizes = append(sizes, rng.IntN(MaxBlock), rng.IntN(2*GroupSize))
	}
	eachPath(t, func(t *testing.T, vector bool) {
		var h Hasher
		for _, size := range sizes {
			if size > MaxBlock {
				continue
			}
			at := rng.IntN(1024)
			p := data[at : at+size : at+size]
			h.reset(0, vector)
			pieces(&h, p, 1+rng.IntN(9), 1+rng.IntN(4))
			n := h.Sum()
			require.Equal(t, blake3.Sum256(p), root(n), "%d bytes at %d", size, at)
			require.Equal(t, n, h.Sum())
		}
	})
}

func TestOffsets(t *testing.T) {
	rng, source := random(t)
	data := make([]byte, 64<<10)
	_, _ = source.Read(data)
	offsets := []int64{0, 64 << 10, 1 << 20}
	for chunks := 32; chunks <= 53; chunks++ { // the counter has two words, the offset 63 bits
		end := int64(1) << (chunks + 9)
		offsets = append(offsets, end-64<<10, end, end+64<<10, end+rng.Int64N(end)&^(64<<10-1))
	}
	offsets = append(offsets, 1<<62, 1<<63-64<<10)
	eachPath(t, func(t *testing.T, vector bool) {
		var h Hasher
		for _, off := range offsets {
			for _, size := range []int{700, 1024, 1025, 5<<10 + 3, GroupSize, GroupSize + 1, 3*GroupSize + 4000, 64 << 10} {
				h.reset(off, vector)
				pieces(&h, data[:size], 1)
				require.Equal(t, node(data[:size], uint64(off)/1024), h.Sum(), "%d bytes at %d", size, off)
			}
		}
	})
}

// TestFile proves that the blocks' nodes are those of the file's tree.
func TestFile(t *testing.T) {
	rng, source := random(t)
	data := make([]byte, 4*MaxBlock)
	_, _ = source.Read(data)
	eachPath(t, func(t *testing.T, vector bool) {
		for block := GroupSize; block <= MaxBlock; block *= 2 {
			file := data[:4*block-rng.IntN(block)]
			var h Hasher
			var nodes [4]guts.Node
			for _, i := range rng.Perm(4) {
				h.reset(int64(i*block), vector)
				pieces(&h, file[i*block:min(len(file), (i+1)*block)], 8)
				nodes[i] = h.Sum()
			}
			top := parent(parent(nodes[0], nodes[1]), parent(nodes[2], nodes[3]))
			require.Equal(t, blake3.Sum256(file), root(top), "%d bytes in blocks of %d", len(file), block)
		}
	})
}

// TestReset proves that nothing of a block is left in the next one.
func TestReset(t *testing.T) {
	_, source := random(t)
	data := make([]byte, 7*GroupSize+3333)
	_, _ = source.Read(data)
	eachPath(t, func(t *testing.T, vector bool) {
		var h Hasher
		for _, size := range []int{len(data), 1, 0, 6 * GroupSize, 3000, 4 * GroupSize, GroupSize - 1, 2000} {
			h.reset(0, vector)
			h.Write(data[:size])
			require.Equal(t, blake3.Sum256(data[:size]), root(h.Sum()), "%d bytes", size)
		}
	})
}

// TestVectors checks the assembly lane by lane, and that it writes nothing but its result.
func TestVectors(t *testing.T) {
	eachWidth(t, func(t *testing.T) {
		rng, source := random(t)
		var data [GroupSize]byte
		_, _ = source.Read(data[:])
		var v [5]vector
		for i := range v {
			for j := range v[i] {
				for k := range v[i][j] {
					v[i][j][k] = rng.Uint32()
				}
			}
		}
		before, kept := v, slices.Clone(data[:])

		counter := rng.Uint64() &^ 15
		chunks(&v[2], &data, counter, groupChunks)
		for i := range groupChunks {
			chunk := guts.CompressChunk(data[i*1024:(i+1)*1024], &guts.IV, counter+uint64(i), 0)
			require.Equal(t, guts.ChainingValue(chunk), v[2].get(i))
		}
		require.Equal(t, kept, data[:])
		v[2] = before[2]
		require.Equal(t, before, v)

		parents(&v[2], &v[1], &v[3])
		for i := range groupChunks {
			from := &v[1+i/8*2]
			n := guts.ParentNode(from.get(2*i%16), from.get(2*i%16+1), &guts.IV, 0)
			require.Equal(t, guts.ChainingValue(n), v[2].get(i))
		}
		v[2] = before[2]
		require.Equal(t, before, v)

		if !wideVectors { // which parents calls with a vector of its own
			parents8(&v[2][0][halfGroup], &v[3])
			for i := range halfGroup {
				require.Equal(t, before[2].get(i), v[2].get(i))
				n := guts.ParentNode(v[3].get(2*i), v[3].get(2*i+1), &guts.IV, 0)
				require.Equal(t, guts.ChainingValue(n), v[2].get(halfGroup+i))
			}
			v[2] = before[2]
			require.Equal(t, before, v)
		}
	})
}

func TestNoAllocation(t *testing.T) {
	data := make([]byte, 5*GroupSize+5000)
	eachPath(t, func(t *testing.T, vector bool) {
		var h Hasher
		require.Zero(t, testing.AllocsPerRun(10, func() {
			h.reset(0, vector)
			h.Write(data)
			_ = h.Sum()
		}))
	})
}

func FuzzHasher(f *testing.F) {
	f.Add([]byte{1, 2, 3}, uint32(1), int64(0), uint8(0))
	f.Add([]byte{}, uint32(3*GroupSize+1025), int64(1)<<42, uint8(13))
	f.Add([]byte("seed"), uint32(MaxBlock), int64(3)<<20, uint8(64))
	f.Fuzz(func(t *testing.T, seed []byte, size uint32, off int64, align uint8) {
		var key [32]byte
		copy(key[:], seed)
		source := rand.NewChaCha8(key)
		room := make([]byte, int(align)+int(size%(MaxBlock+1)))
		_, _ = source.Read(room)
		data := room[align:]
		off &= 1<<63 - MaxBlock
		want := node(data, uint64(off)/1024)
		eachPath(t, func(t *testing.T, vector bool) {
			var h Hasher
			h.reset(off, vector)
			pieces(&h, data, 1+int(source.Uint64()%8), 1+int(source.Uint64()%8))
			require.Equal(t, want, h.Sum())
		})
	})
}

func BenchmarkHasher(b *testing.B) {
	eachPath(b, func(b *testing.B, vector bool) {
		for _, size := range []int{2 << 10, GroupSize, 128 << 10, MaxBlock} {
			b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
				p := make([]byte, 64+size)[64:]
				var h Hasher
				b.SetBytes(int64(size))
				for b.Loop() {
					h.reset(0, vector)
					h.Write(p)
					_ = h.Sum()
				}
			})
		}
	})
}
