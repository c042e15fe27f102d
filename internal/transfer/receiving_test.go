package transfer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/wire"
)

// TestSmallFileTwice: two streams may carry the same small file, when one of them is not known to be
// dead. The first that has all of it writes it, whichever began first, and so nothing waits for the other.
func TestSmallFileTwice(t *testing.T) {
	t.Parallel()
	e := &receiving{entry: wire.Entry{Kind: wire.File, Size: 3, BlockLog: wire.MinBlockLog}, blocks: 1, size: 3, short: -1}
	h := &wire.BlockHeader{Whole: true, Length: 3, Digest: [32]byte{1}}
	for range 2 {
		todo, err := e.admit(h)
		require.NoError(t, err)
		require.Equal(t, want, todo)
	}
	require.True(t, e.resolveWhole(h.Digest))
	require.False(t, e.resolveWhole(h.Digest))
	todo, err := e.admit(h)
	require.NoError(t, err)
	require.Equal(t, refuse, todo)
}
