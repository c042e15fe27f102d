//go:build linux

package fleet_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/fleet"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// TestFair gives one worker a large job, and then a small one and an urgent one. The small one does not
// wait for the large one, and the urgent one gets most of the worker's time.
func TestFair(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "none", short)
	for i := range 150 {
		require.NoError(t, os.WriteFile(filepath.Join(s.source(), fmt.Sprint(i)), []byte("mine"), 0o600))
	}
	require.NoError(t, os.Mkdir(filepath.Join(s.source(), "small"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(s.source(), "small", "file"), []byte("mine"), 0o600))

	large := s.submit(s.source()+"/", "/large", fleet.Options{ShardFiles: 1})
	s.until(large, func(j *fleet.Job) bool { return j.Done > 0 })
	m, err := fleet.Connect(t.Context(), s.queue)
	require.NoError(t, err)
	defer m.Close()
	beside := func(id string) (j, waits *fleet.Job) { // how far the large job is when another one has ended
		for began := time.Now(); time.Since(began) < longest; time.Sleep(20 * time.Millisecond) {
			jobs, err := m.Jobs(t.Context()) // both at the same time
			require.NoError(t, err)
			for _, x := range jobs {
				switch x.ID {
				case id:
					j = x
				case large:
					waits = x
				}
			}
			if j.State.Ended() {
				break
			}
		}
		require.Equal(t, fleet.Done, j.State, j.Reason)
		return j, waits
	}
	_, waits := beside(s.submit(filepath.Join(s.source(), "small"), "/small", fleet.Options{}))
	require.Less(t, waits.Done, waits.Shards/2)

	j, then := beside(s.submit(s.source()+"/", "/urgent", fleet.Options{ShardFiles: 3, Priority: fxfer.PriorityHigh}))
	require.Equal(t, fleet.Sending, then.State)
	require.Less(t, then.Done-waits.Done, j.Shards/2)
	t.Logf("the large job did %d shards beside the small one, and %d beside %d shards of the urgent one", waits.Done, then.Done-waits.Done, j.Shards)

	j, _ = s.wait(large)
	require.Equal(t, fleet.Done, j.State, j.Reason)
	for _, name := range []string{"large", "urgent"} {
		agree(t, s.source(), filepath.Join(s.dir, "files", name))
	}
}
