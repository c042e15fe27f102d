package vaesgcm

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// guarded returns size bytes, a multiple of the page size, before and behind which memory can be neither read nor
// written.
func guarded(t *testing.T, size int) []byte {
	page := unix.Getpagesize()
	data, err := unix.Mmap(-1, 0, page+size+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(data)) })
	require.NoError(t, unix.Mprotect(data[:page], unix.PROT_NONE))
	require.NoError(t, unix.Mprotect(data[page+size:], unix.PROT_NONE))
	return data[page : page+size]
}

// TestStaysInside has all buffers end, and start, where there is no memory.
func TestStaysInside(t *testing.T) {
	each(t, func(t *testing.T, wide bool) {
		_, source := random(t)
		vector, standard := both(t, wide, bytesFrom(source, 16))
		const room = 64 << 10
		from, to, other, small := guarded(t, room), guarded(t, room), guarded(t, room), guarded(t, room)
		side := func(p []byte, n int, end bool) []byte {
			if end {
				return p[room-n:]
			}
			return p[:n:n]
		}
		sizes := []int{4096, 8191, 16384, 16385, 40000}
		for n := range 140 {
			sizes = append(sizes, n)
		}
		for n := 960; n <= 1100; n++ {
			sizes = append(sizes, n, n+1024)
		}
		for i, n := range sizes {
			for _, end := range []bool{false, true} {
				plain := side(from, n, end)
				_, _ = source.Read(plain)
				nonce, additional := side(small, 12, end), side(other, i%40, end)
				want := standard.Seal(nil, nonce, plain, additional)
				sealed := vector.Seal(side(to, n+tagSize, end)[:0], nonce, plain, additional)
				require.Equal(t, want, sealed)
				opened, err := vector.Open(plain[:0], nonce, sealed, additional)
				require.NoError(t, err)
				require.Equal(t, want, vector.Seal(nil, nonce, opened, additional))
				opened, err = vector.Open(sealed[:0], nonce, sealed, additional)
				require.NoError(t, err)
				require.Equal(t, want, vector.Seal(opened[:0], nonce, opened, additional))
			}
		}
	})
}

// TestTooLong has messages for which there are not enough counters, in memory that nothing may touch.
func TestTooLong(t *testing.T) {
	each(t, func(t *testing.T, wide bool) {
		vector, _ := both(t, wide, make([]byte, 16))
		limit := uint64(maxPlain)
		data, err := unix.Mmap(-1, 0, int(limit)+2*tagSize, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
		if err != nil {
			t.Skip(err)
		}
		defer func() { require.NoError(t, unix.Munmap(data)) }()
		nonce := make([]byte, 12)
		require.PanicsWithValue(t, "vaesgcm: message too large", func() { vector.Seal(nil, nonce, data[:limit+1], nil) })
		_, err = vector.Open(nil, nonce, data[:limit+tagSize+1], nil)
		require.ErrorIs(t, err, errOpen)
	})
}
