package relay

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRoom: a window holds what the path takes and as much again, within what all may have together.
func TestRoom(t *testing.T) {
	t.Parallel()
	const mbit, alone = 1e6 / 8, allWindows
	for name, c := range map[string]struct {
		rate float64
		rtt  time.Duration
		most int
		want buffers
	}{
		"nothing is known":            {0, 0, alone, buffers{leastWindow, 2 * leastPiece, leastPiece}},
		"a long leg":                  {100 * mbit, 80 * time.Millisecond, alone, buffers{2_000_000, 2 * mostPiece, mostPiece}},
		"one of many streams":         {10 * mbit, 80 * time.Millisecond, allWindows / 33, buffers{200_000, 2 * 6250, 6250}},
		"a fast one of many":          {100 * mbit, 80 * time.Millisecond, allWindows / 33, buffers{allWindows / 33, 2 * mostPiece, mostPiece}},
		"more than there is room for": {100 * mbit, 80 * time.Millisecond, allWindows / 1000, buffers{leastWindow, allWindows / 1000, allWindows / 2000}},
		"within a building":           {1000 * mbit, 100 * time.Microsecond, alone, buffers{5_000_000, 2 * mostPiece, mostPiece}},
	} {
		require.Equal(t, c.want, buffersFor(c.rate, c.rtt, c.most), name)
	}
}
