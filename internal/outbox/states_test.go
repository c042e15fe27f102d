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

// TestStatesOfSome: a user who may only write finds its own files however many others there are.
func TestStatesOfSome(t *testing.T) {
	t.Parallel()
	now := time.Now()
	x := &forwarding{queue: OpenQueue(t.TempDir(), "dir", "url")}
	queueFiles(t, x.queue, map[string]File{
		"a": {State: Waiting, Arrived: now}, "b": {State: There, Arrived: now, There: now}, "mine": {State: Sending, Arrived: now},
	})
	paths := func() (all []string) {
		files, err := x.StatesOf([]string{"b", "mine", "not in the queue"})
		require.NoError(t, err)
		for _, f := range files {
			all = append(all, f.State+" "+f.Path)
		}
		return all
	}
	require.Equal(t, []string{"sending mine", "there b"}, paths())
	x.states, x.cut, x.until = x.states[:1], true, now.Add(time.Hour) // as with too many files before
	require.Equal(t, "a", x.states[0].Path)
	require.Equal(t, []string{"sending mine", "there b"}, paths())
}
