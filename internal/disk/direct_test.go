package disk

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestDirectRate: where writes are slow, those that follow go through the page cache for a while. A
// single slow one has waited for something else.
func TestDirectRate(t *testing.T) {
	const block = 1 << 20
	for _, c := range []struct {
		took   time.Duration // by each of many writes
		once   time.Duration // by one in between
		cached bool
	}{
		{0, 0, false},
		{time.Millisecond, 0, false},
		{4 * time.Millisecond, 0, false},
		{6 * time.Millisecond, 0, true},
		{time.Second, 0, true},
		{time.Millisecond, 50 * time.Millisecond, false},
	} {
		var d directWriter
		for i := range 200 {
			if !d.may(block) {
				break
			}
			long := c.took
			if i == 100 && c.once > 0 {
				long = c.once
			}
			d.took(block, long)
		}
		through := 0
		for ; !d.may(block); through++ {
			require.Less(t, through*block, cachedAfter, "%+v", c)
		}
		require.Equal(t, c.cached, through > 0, "%+v", c)
	}
}

// TestPartialDirect writes a large file in pieces of all sizes, at offsets and from memory that suit a
// device and that do not, one over the other. Blocks of two sizes take the two ways. It is on the disk
// of /var/tmp if there is one: what is in memory has no way past the page cache.
func TestPartialDirect(t *testing.T) {
	for _, block := range []int{directBlock, directBlock / 16} {
		t.Run(fmt.Sprint(block), func(t *testing.T) { partialDirect(t, block) })
	}
}

func partialDirect(t *testing.T, block int) {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir, err := os.MkdirTemp("/var/tmp", "fxfer-direct-")
	if err != nil {
		dir = t.TempDir()
	}
	defer func() { require.NoError(t, os.RemoveAll(dir)) }()
	tree, err := Open(dir)
	require.NoError(t, err)
	defer tree.Close()
	const size = directFrom + 5000
	want := make([]byte, size)
	m := Meta{Path: "large", Kind: File, Size: size, Mode: 0o600}
	p, err := tree.Partial(m, block, TargetOptions{})
	require.NoError(t, err)
	if block < directBlock {
		require.Nil(t, p.direct)
	}
	t.Logf("past the page cache: %v", p.direct != nil)
	room := make([]byte, 2<<20) // its memory is as a device wants it
	write := func(off, n int64, skip int) {
		b := room[skip:][:min(n, size-off)]
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		copy(want[off:], b)
		got, err := p.WriteAt(b, off)
		require.NoError(t, err)
		require.Len(t, b, got)
	}
	// The end comes first, from another file: what is claimed before it must not cut it off.
	const tail = size - 3<<20
	for i := range want[tail:] {
		want[tail+i] = byte(i * 7)
	}
	require.NoError(t, os.WriteFile(dir+"/old", want, 0o600))
	old, err := tree.OpenFile("old")
	require.NoError(t, err)
	require.NoError(t, p.CopyFrom(old, tail, tail, size-tail))
	require.NoError(t, old.Close())
	for off := int64(0); off < tail; off += 1 << 20 {
		write(off, min(1<<20, tail-off), 0)
	}
	for range 40 {
		unit := int64([]int{1, 512, directUnit, directUnit}[random.IntN(4)])
		write(random.Int64N(size)/unit*unit, max(1, random.Int64N(1<<20)/unit*unit), []int{0, 0, 1, 512}[random.IntN(4)])
		got := make([]byte, 100_000)
		off := random.Int64N(size - int64(len(got)))
		_, err := p.ReadAt(got, off)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want[off:][:len(got)], got), "at %d", off)
	}
	for block := range p.blocks(size) {
		require.NoError(t, p.Mark(block, [32]byte{}))
	}
	require.NoError(t, p.Commit(m))
	file, err := os.Open(dir + "/large")
	require.NoError(t, err)
	defer file.Close()
	if cached, err := cachedBytes(file); err == nil && !p.inMemory {
		require.Less(t, cached, int64(size/16), "it stays in the page cache")
	}
	got, err := os.ReadFile(dir + "/large")
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got), "the content differs")
}
