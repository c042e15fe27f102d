package digest

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestReadsNoFurther hashes pieces beside memory that cannot be read.
func TestReadsNoFurther(t *testing.T) {
	page := unix.Getpagesize()
	const room = 2 * GroupSize
	data, err := unix.Mmap(-1, 0, page+room+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(data)) }()
	require.NoError(t, unix.Mprotect(data[:page], unix.PROT_NONE))
	require.NoError(t, unix.Mprotect(data[page+room:], unix.PROT_NONE))
	eachPath(t, func(t *testing.T, vector bool) {
		var h Hasher
		for _, size := range []int{1, 1024, 1025, 9000, GroupSize, GroupSize + 1025, room} {
			for _, from := range []int{page, page + room - size} {
				h.reset(0, vector)
				h.Write(data[from : from+size])
				require.Equal(t, node(make([]byte, size), 0), h.Sum())
			}
		}
	})
}
