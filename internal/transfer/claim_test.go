package transfer

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/blockset"
	"github.com/fxfer/fxfer/internal/wire"
)

// TestBatches: a stream claims few small files at first, and then no more than it has carried, so that
// what others wait for does not leave behind what nobody needs yet.
func TestBatches(t *testing.T) {
	t.Parallel()
	const size, files = 4000, 3000
	var counts counters
	c := newClaims(&counts, NewClock(), 0, false)
	for i := range files {
		e := newSending(&Item{Entry: wire.Entry{Kind: wire.File, Path: fmt.Sprint(i), Size: size, BlockLog: wire.MinBlockLog}}, 0)
		e.measure(&counts)
		c.need(e, e.notNeeded(blockset.Set{}))
	}
	var st *sendStream
	require.True(t, c.addStream(1, nil, func(s *sendStream) { st = s }))
	most, all := 0, 0
	for most < batchBytes/(size+wire.BlockHeaderLen) {
		c.mu.Lock()
		batch := c.claimSmallLocked(st, nil)
		c.mu.Unlock()
		require.Equal(t, max(firstBatch, min(all*size, batchBytes))/(size+wire.BlockHeaderLen), len(batch))
		most, all = max(most, len(batch)), all+len(batch)
		for _, e := range batch {
			_, _, err := c.written(e, 0, c.now())
			require.NoError(t, err)
		}
	}
	require.Less(t, all, files)
}
