package outbox

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestStatesOf lists more files than clients may see: those on their way have the room first.
func TestStatesOf(t *testing.T) {
	t.Parallel()
	now := time.Now()
	old := now.Add(-forgetAfter - time.Second)
	files := []Listing{
		{"forgotten", File{State: There, Arrived: old, There: old}},
		{"new", File{State: There, Arrived: old, There: now}},
		{"waits", File{State: Waiting, Arrived: old}},
	}
	var paths []string
	all, cut := statesOf(files, now)
	for _, f := range all {
		paths = append(paths, f.Path)
	}
	require.Equal(t, []string{"waits", "new"}, paths)
	require.False(t, cut)
	require.Equal(t, old, all[0].Since)
	require.Equal(t, now, all[1].Since)

	for i := range maxListed - 1 {
		files = append(files, Listing{fmt.Sprint("x", i), File{State: Arriving, Arrived: now}})
	}
	all, cut = statesOf(files, now)
	require.Len(t, all, maxListed)
	require.Equal(t, "waits", all[0].Path)
	for _, f := range all {
		require.NotEqual(t, "there", f.State)
	}
	require.True(t, cut, "new is left out")
	_, cut = statesOf(append(files[:1:1], files[2:]...), now)
	require.False(t, cut, "forgotten is not listed anyway")
}
