package disk

import (
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A unit leaves when all of it was read, in whatever pieces and order, and each unit once.
func TestBehind(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		size := rapid.Int64Range(behindFrom, 8*behindUnit).Draw(rt, "size")
		var pieces []Range
		for off := int64(0); off < size; {
			n := min(rapid.Int64Range(1, 3*behindUnit).Draw(rt, "piece"), size-off)
			pieces = append(pieces, Range{off, n})
			off += n
		}
		pieces = rapid.Permutation(pieces).Draw(rt, "order")
		read := map[int64]int64{}
		left := map[int64]bool{}
		b := behind{size: size, read: map[int64]int64{}, drop: func(off, n int64) {
			require.Zero(rt, off%behindUnit)
			require.Equal(rt, int64(behindUnit), n)
			require.False(rt, left[off/behindUnit])
			left[off/behindUnit] = true
		}}
		for _, p := range pieces {
			b.add(p.Off, int(p.Len))
			for at := p.Off; at < p.Off+p.Len; {
				next := min(p.Off+p.Len, (at/behindUnit+1)*behindUnit)
				read[at/behindUnit] += next - at
				at = next
			}
			for unit, n := range read {
				require.Equal(rt, n == min(behindUnit, size-unit*behindUnit), left[unit], "unit %d", unit)
			}
		}
		require.Empty(rt, b.read)
	})
}

// Whoever reads here and there in a large file costs no more memory for that.
func TestBehindBound(t *testing.T) {
	b := behind{size: 1 << 60, read: map[int64]int64{}, drop: func(int64, int64) {}}
	for unit := range int64(3 * behindMost) {
		b.add(unit*behindUnit, 1)
	}
	require.Len(t, b.read, behindMost)
}

// A large file that is read once leaves the page cache, but not if somebody else has brought it there.
// It is on the disk of /var/tmp if there is one: what is in memory cannot leave.
func TestReadOnce(t *testing.T) {
	dir, err := os.MkdirTemp("/var/tmp", "fxfer-behind-")
	if err != nil {
		dir = t.TempDir()
	}
	defer func() { require.NoError(t, os.RemoveAll(dir)) }()
	const size = 3*behindUnit + 5000
	want := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(want)
	require.NoError(t, os.WriteFile(dir+"/large", want, 0o600))
	file, err := os.OpenFile(dir+"/large", os.O_RDWR, 0)
	require.NoError(t, err)
	defer file.Close()
	require.NoError(t, file.Sync())
	cached := func() int64 {
		n, err := cachedBytes(file)
		if err != nil {
			t.Skip(err)
		}
		return n
	}
	if dropCache(file, 0, size); cached() > 0 {
		t.Skip("files do not leave the page cache here")
	}
	tree, err := Open(dir)
	require.NoError(t, err)
	defer tree.Close()
	read := func() {
		s, err := tree.OpenFile("large")
		require.NoError(t, err)
		defer s.Close()
		s.ReadOnce()
		got := make([]byte, size)
		var readers sync.WaitGroup
		for reader := range 4 {
			readers.Go(func() {
				for off := reader << 18; off < size; off += 4 << 18 {
					if _, err := s.ReadAt(got[off:min(off+1<<18, size)], int64(off)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		readers.Wait()
		require.Equal(t, want, got)
	}
	read()
	require.LessOrEqual(t, cached(), int64(behindUnit), "what was read is still there")
	_, err = os.ReadFile(dir + "/large")
	require.NoError(t, err)
	read()
	require.GreaterOrEqual(t, cached(), int64(size-behindUnit), "it was there for somebody else")
}
