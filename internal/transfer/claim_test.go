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

// TestActiveStreams: of streams that may claim, those that were used go first, since a new one begins with a window
// that it does not pace. Then the lowest ids go first.
func TestActiveStreams(t *testing.T) {
	t.Parallel()
	s := sendStreams{live: make(map[uint64]*sendStream), active: 2}
	for id := range uint64(5) {
		s.live[id] = &sendStream{id: id}
	}
	claim := func() (ids []uint64) {
		for id := range uint64(5) {
			if !s.isParked(s.live[id]) {
				ids = append(ids, id)
			}
		}
		return ids
	}
	require.Equal(t, []uint64{0, 1}, claim())
	s.live[3].flying = 1
	require.Equal(t, []uint64{0, 3}, claim(), "it has begun already")
	s.live[2].carried = 1
	require.Equal(t, []uint64{2, 3}, claim())
	s.live[3].retired = true
	require.Equal(t, []uint64{0, 2}, claim())
	s.active = 4
	require.Equal(t, []uint64{0, 1, 2, 4}, claim())
	s.active = 0
	require.Equal(t, []uint64{0, 1, 2, 4}, claim())
}
