package web

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRateDoors: a session at a door has the rate since the last view, and a new one since it began.
func TestRateDoors(t *testing.T) {
	t.Parallel()
	before := &view{At: 10_000, AtDoors: []atDoor{{ID: "a", Began: 1, Received: 1000, Sent: 7}, {ID: "gone", Received: 1e9}}}
	now := &view{At: 12_000, AtDoors: []atDoor{{ID: "a", Began: 1, Received: 3000, Sent: 7}, {ID: "new", Began: 11_500, Sent: 500}, {ID: "just now", Began: 12_000, Sent: 5}}}
	now.rateDoors(before)
	rates := func(v *view) (all [][2]int64) {
		for _, x := range v.AtDoors {
			all = append(all, [2]int64{x.In, x.Out})
		}
		return all
	}
	require.Equal(t, [][2]int64{{8000, 0}, {0, 8000}, {0, 0}}, rates(now))
	before.AtDoors[0].Began = 8000
	before.rateDoors(nil)
	require.Equal(t, [2]int64{4000, 28}, rates(before)[0])
}
