package disk

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A unit leaves when all of it was sent, in whatever pieces and order, and each unit once.
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
		sent := map[int64]int64{}
		left := map[int64]bool{}
		b := behind{size: size, sent: map[int64]int64{}, drop: func(off, n int64) {
			require.Zero(rt, off%behindUnit)
			require.Equal(rt, int64(behindUnit), n)
			require.False(rt, left[off/behindUnit])
			left[off/behindUnit] = true
		}}
		for _, p := range pieces {
			b.add(p.Off, p.Len)
			for at := p.Off; at < p.Off+p.Len; {
				next := min(p.Off+p.Len, (at/behindUnit+1)*behindUnit)
				sent[at/behindUnit] += next - at
				at = next
			}
			for unit, n := range sent {
				require.Equal(rt, n == min(behindUnit, size-unit*behindUnit), left[unit], "unit %d", unit)
			}
		}
		require.Empty(rt, b.sent)
	})
}

// The units of a sparse file never become complete. They leave all the same, but for the last ones, and
// cost no more memory than these. A file may be as large as a size can say.
func TestBehindSparse(t *testing.T) {
	var left []int64
	b := behind{size: math.MaxInt64, sent: map[int64]int64{}, drop: func(off, _ int64) { left = append(left, off/behindUnit) }}
	const units = 3 * behindMost
	for unit := range int64(units) {
		b.add(unit*behindUnit+5, 1<<20)
	}
	require.Len(t, b.sent, behindMost)
	require.Len(t, left, units-behindMost)
	require.True(t, slices.IsSorted(left))
	b.add(math.MaxInt64-10, 10)
	require.Len(t, left, units-behindMost+1)
}

// A large file that is sent leaves the page cache, but not what was only read, and not if others use
// the file. It is on the disk of /var/tmp if there is one: what is in memory cannot leave.
func TestLeave(t *testing.T) {
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
	if _, err := os.ReadFile(dir + "/large"); err != nil || cached() == 0 {
		t.Skip("files do not enter the page cache here: ", err)
	}
	if dropCache(file, 0, size); cached() > 0 {
		t.Skip("files do not leave the page cache here")
	}
	tree, err := Open(dir)
	require.NoError(t, err)
	defer tree.Close()
	// read returns how much is in the page cache before and after the file is closed.
	read := func(send bool) (before, after int64) {
		s, err := tree.OpenFile("large")
		require.NoError(t, err)
		s.Leave()
		got := make([]byte, size)
		var readers sync.WaitGroup
		for reader := range 4 {
			readers.Go(func() {
				for off := reader << 18; off < size; off += 4 << 18 {
					n, err := s.ReadAt(got[off:min(off+1<<18, size)], int64(off))
					if err != nil {
						t.Error(err)
					}
					if send {
						s.Sent(int64(off), int64(n))
					}
				}
			})
		}
		readers.Wait()
		require.Equal(t, want, got)
		before = cached()
		require.NoError(t, s.Close())
		return before, cached()
	}
	before, after := read(true)
	require.LessOrEqual(t, before, int64(behindUnit), "what was sent is still there")
	require.Zero(t, after)
	before, after = read(false)
	require.GreaterOrEqual(t, before, int64(size-behindUnit), "it may be read again")
	require.Zero(t, after)
	_, err = os.ReadFile(dir + "/large")
	require.NoError(t, err)
	_, after = read(true)
	require.GreaterOrEqual(t, after, int64(size-behindUnit), "it was there for others")
}
