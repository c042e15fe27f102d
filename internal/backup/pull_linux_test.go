package backup

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// This host reads its snapshots again with low priority, as a server does.
func TestScrubIsIdle(t *testing.T) {
	t.Parallel()
	home, vault := t.TempDir(), filepath.Join(t.TempDir(), "series")
	dir, u := readable(t, home)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), []byte("a"), 0o600))
	client, err := fxfer.NewClient(fxfer.Options{Home: home})
	require.NoError(t, err)
	name := fxfer.SnapshotName(time.Now())
	_, err = client.Get(t.Context(), []fxfer.URL{u}, vault, fxfer.Transfer{Target: fxfer.Target{Snapshot: name}})
	require.NoError(t, err)
	var found []int
	sum, err := client.ScrubLocal(t.Context(), vault, name, fxfer.Verification{Progress: func(fxfer.Progress) {
		n, _ := unix.Getpriority(unix.PRIO_PROCESS, unix.Gettid())
		found = append(found, 20-n)
	}})
	require.NoError(t, err)
	require.EqualValues(t, 1, sum.Same)
	require.NotEmpty(t, found)
	require.Subset(t, []int{19}, found)
}
