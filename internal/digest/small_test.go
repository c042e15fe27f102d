package digest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"lukechampine.com/blake3"
)

// checkSmall digests as many files of these sizes, in order, as have room. All rooms are full of other bytes
// before.
func checkSmall(t *testing.T, s *Small, source *rand.ChaCha8, vector bool, sizes ...int) {
	t.Helper()
	_, _ = source.Read(s.rooms[:])
	var want [SmallFiles][32]byte
	n := 0
	for _, size := range sizes {
		room := s.Room(size)
		if room == nil {
			break
		}
		require.Len(t, room, size)
		_, _ = source.Read(room)
		want[n] = blake3.Sum256(room)
		n++
	}
	require.Positive(t, n)
	kept := s.rooms
	var sums [SmallFiles][32]byte
	s.sum(&sums, vector)
	require.Equal(t, want, sums, sizes[:n])
	require.True(t, bytes.Equal(kept[:], s.rooms[:]))
}

// TestSmall digests files of every size, beside others of every number and size.
func TestSmall(t *testing.T) {
	rng, source := random(t)
	eachPath(t, func(t *testing.T, vector bool) {
		var s Small
		for size := range MaxSmall + 1 {
			checkSmall(t, &s, source, vector, size)
			same, others := make([]int, SmallFiles), make([]int, 1+rng.IntN(SmallFiles))
			for i := range same {
				same[i] = size
			}
			for i := range others {
				others[i] = rng.IntN(MaxSmall >> rng.IntN(6))
			}
			others[rng.IntN(len(others))] = size
			checkSmall(t, &s, source, vector, same...)
			checkSmall(t, &s, source, vector, others...)
		}
		for n := range SmallFiles {
			checkSmall(t, &s, source, vector, make([]int, n+1)...)
		}
	})
}

// TestSmallRooms counts the files that fit beside each other.
func TestSmallRooms(t *testing.T) {
	for _, c := range []struct{ size, files int }{
		{0, 16}, {1, 16}, {1024, 16}, {1025, 8}, {2048, 8}, {2049, 4}, {4096, 4}, {4097, 2}, {MaxSmall, 2},
	} {
		var s Small
		n := 0
		for s.Room(c.size) != nil {
			n++
		}
		require.Equal(t, c.files, n, c.size)
	}
}

// TestSmallPays: with vectors of 32 bytes, 8 chunks take as long as the longest of them, and a little longer than that
// alone.
func TestSmallPays(t *testing.T) {
	defer func(before bool) { wideVectors = before }(wideVectors)
	for _, c := range []struct {
		sizes []int
		pays  bool
	}{
		{[]int{1024}, false},
		{[]int{1024, 1024}, true},
		{[]int{100, 100}, true},
		{[]int{1024, 64, 64}, false},
		{[]int{1024, 64, 64, 64, 64}, true},
		{[]int{3000}, true},
		{[]int{0}, false},
		{nil, false},
	} {
		var s Small
		for _, size := range c.sizes {
			require.NotNil(t, s.Room(size))
		}
		wideVectors = false
		require.Equal(t, c.pays, s.lanes.pays(s.next), c.sizes)
		wideVectors = true
		require.True(t, s.lanes.pays(s.next))
	}
}

func TestSmallNoAllocation(t *testing.T) {
	eachPath(t, func(t *testing.T, vector bool) {
		s := new(Small)
		var sums [SmallFiles][32]byte
		require.Zero(t, testing.AllocsPerRun(10, func() {
			for i := 0; s.Room(1000*i%MaxSmall) != nil; i++ {
			}
			s.sum(&sums, vector)
		}))
	})
}

func FuzzSmall(f *testing.F) {
	f.Add([]byte("seed"), []byte{0, 0})
	f.Add([]byte{}, []byte{0, 1, 0, 64, 0, 65, 3, 255, 4, 0, 12, 1})
	f.Fuzz(func(t *testing.T, seed, sizes []byte) {
		var key [32]byte
		copy(key[:], seed)
		all := []int{len(seed) % (MaxSmall + 1)}
		for ; len(sizes) > 1; sizes = sizes[2:] {
			all = append(all, (int(sizes[0])<<8|int(sizes[1]))%(MaxSmall+1))
		}
		eachPath(t, func(t *testing.T, vector bool) {
			checkSmall(t, new(Small), rand.NewChaCha8(key), vector, all...)
		})
	})
}

func BenchmarkSmall(b *testing.B) {
	eachPath(b, func(b *testing.B, vector bool) {
		for _, size := range []int{1 << 10, 2 << 10, 3000, 4 << 10, 8 << 10} {
			for _, n := range []int{1, 2, 4, 16} {
				if n*size > GroupSize {
					continue
				}
				b.Run(fmt.Sprintf("%dx%d", n, size), func(b *testing.B) {
					var s Small
					var sums [SmallFiles][32]byte
					b.SetBytes(int64(n * size))
					for b.Loop() {
						for range n {
							s.Room(size)
						}
						s.sum(&sums, vector)
					}
				})
			}
		}
	})
}
