package access

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/internal/wire"
)

// One process publishes a snapshot while another one records damage of a file that it shares: the
// damage is known of both, whoever is first. Each has a handle of its own for the same folder, and
// locks tell handles apart as they do processes.
func TestNoteWhilePublishing(t *testing.T) {
	t.Parallel()
	const first, second = "2026-01-01T000000Z", "2026-01-02T000000Z"
	dir := t.TempDir()
	open := func(at string) *Series {
		folder, err := Open(dir)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, folder.Close()) })
		scope := folder.Client(Request{Share: "data", Client: "me", Rights: identity.Read | identity.Write, Intent: wire.Store})
		t.Cleanup(func() { require.NoError(t, scope.Close()) })
		series, err := scope.AddTo(at, second, func(int64) (func(), error) { return func() {}, nil })
		require.NoError(t, err)
		return series
	}
	for i := range 30 {
		at := fmt.Sprint("web", i)
		one, other := open(at), open(at)
		begun, _, err := one.Fill(first)
		require.NoError(t, err)
		old := filepath.Join(dir, at, ".fxfer-"+first+".snap", "f")
		require.NoError(t, os.WriteFile(old, []byte("x"), 0o600))
		_, err = one.Publish(t.Context(), first, "", begun, false)
		require.NoError(t, err)
		filled, _, err := one.Fill(second)
		require.NoError(t, err)
		require.NoError(t, os.Link(filepath.Join(dir, at, first, "f"), filepath.Join(dir, at, ".fxfer-"+second+".snap", "f")))

		unlock, err := other.lockNotes(t.Context())
		require.NoError(t, err)
		ended, end := context.WithCancel(t.Context())
		end()
		_, err = one.Publish(ended, second, first, filled, false)
		require.ErrorIs(t, err, context.Canceled, "it waits")
		require.ErrorIs(t, one.NoteDamage(ended, first, snapshot.Damage{}), context.Canceled)
		unlock()

		var both sync.WaitGroup
		both.Go(func() { err = other.NoteDamage(t.Context(), first, snapshot.Damage{"f": "different"}) })
		_, failed := one.Publish(t.Context(), second, first, filled, false)
		both.Wait()
		require.NoError(t, failed)
		require.NoError(t, err)
		require.NoError(t, one.inState(func(state *os.Root) error {
			for _, name := range []string{first, second} {
				known, err := snapshot.ReadDamage(state, name)
				require.NoError(t, err)
				require.Equal(t, snapshot.Damage{"f": "different"}, known, name)
			}
			return nil
		}))
	}
}

// A series of which files may only be read gets no file, and its lock is free for whoever reads.
func TestNoteReadOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree, err := disk.Open(dir)
	require.NoError(t, err)
	defer tree.Close()
	series, err := tree.MakeSeries("web", "me")
	require.NoError(t, err)
	before, err := os.ReadDir(filepath.Join(dir, "web", ".fxfer-snapshots"))
	require.NoError(t, err)
	unlock, err := series.LockNotes(t.Context())
	require.NoError(t, err)
	owned, err := series.Owned("me")
	require.NoError(t, err)
	require.True(t, owned)
	unlock()
	after, err := os.ReadDir(filepath.Join(dir, "web", ".fxfer-snapshots"))
	require.NoError(t, err)
	require.Equal(t, len(before), len(after))
}
