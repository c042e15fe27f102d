package digest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"lukechampine.com/blake3"
)

// checkSmall digests files, which have rooms full of other bytes.
func checkSmall(t *testing.T, s *Small, source *rand.ChaCha8, wide bool, sizes ...int) {
	t.Helper()
	_, _ = source.Read(s.rooms[:])
	for i := range s.lengths {
		s.lengths[i] = uint32(source.Uint64() % (MaxSmall + 1))
	}
	want := make([][32]byte, len(sizes))
	for i, size := range sizes {
		room := s.Room(i, size)
		require.Len(t, room, size)
		_, _ = source.Read(room)
		want[i] = blake3.Sum256(room)
	}
	kept := s.rooms
	var sums [SmallFiles][32]byte
	s.sum(&sums, len(sizes), wide)
	require.Equal(t, want, sums[:len(sizes)], sizes)
	require.True(t, bytes.Equal(kept[:], s.rooms[:]))
	for _, rest := range sums[len(sizes):] {
		require.Zero(t, rest)
	}
}

// TestSmall digests files of every size, beside others of every number and size.
func TestSmall(t *testing.T) {
	rng, source := random(t)
	eachPath(t, func(t *testing.T, wide bool) {
		var s Small
		for size := range MaxSmall + 1 {
			checkSmall(t, &s, source, wide, size)
			same, others := make([]int, SmallFiles), make([]int, 1+rng.IntN(SmallFiles))
			for i := range same {
				same[i] = size
			}
			for i := range others {
				others[i] = rng.IntN(MaxSmall + 1)
			}
			others[rng.IntN(len(others))] = size
			checkSmall(t, &s, source, wide, same...)
			checkSmall(t, &s, source, wide, others...)
		}
		for n := range SmallFiles + 1 {
			checkSmall(t, &s, source, wide, make([]int, n)...)
		}
	})
}

func TestSmallNoAllocation(t *testing.T) {
	eachPath(t, func(t *testing.T, wide bool) {
		s := new(Small)
		var sums [SmallFiles][32]byte
		require.Zero(t, testing.AllocsPerRun(10, func() {
			for i := range SmallFiles {
				s.Room(i, 100*i%MaxSmall)
			}
			s.sum(&sums, SmallFiles, wide)
		}))
	})
}

func FuzzSmall(f *testing.F) {
	f.Add([]byte("seed"), []byte{0, 0})
	f.Add([]byte{}, []byte{0, 1, 0, 64, 0, 65, 3, 255, 4, 0})
	f.Fuzz(func(t *testing.T, seed, sizes []byte) {
		var key [32]byte
		copy(key[:], seed)
		var all []int
		for ; len(sizes) > 1 && len(all) < SmallFiles; sizes = sizes[2:] {
			all = append(all, (int(sizes[0])<<8|int(sizes[1]))%(MaxSmall+1))
		}
		eachPath(t, func(t *testing.T, wide bool) {
			checkSmall(t, new(Small), rand.NewChaCha8(key), wide, all...)
		})
	})
}

func BenchmarkSmall(b *testing.B) {
	for _, n := range []int{1, 2, 3, 4, 16} {
		for _, wide := range []bool{false, true} {
			if wide && !haveVector {
				continue
			}
			b.Run(fmt.Sprintf("%dfiles/vector=%t", n, wide), func(b *testing.B) {
				var s Small
				for i := range n {
					s.Room(i, MaxSmall)
				}
				var sums [SmallFiles][32]byte
				b.SetBytes(int64(n * MaxSmall))
				for b.Loop() {
					s.sum(&sums, n, wide)
				}
			})
		}
	}
}
