package disk

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSweep(t *testing.T) {
	tree, dir := openTree(t)
	require.NoError(t, tree.Mkdir("sub", 0o755))
	age := func(name string, hours int) {
		then := time.Now().Add(-time.Duration(hours) * time.Hour)
		require.NoError(t, os.Chtimes(filepath.Join(dir, name), then, then))
	}
	leave := func(target string) (partial, checkpoint string) {
		p := openPartial(t, tree, testMeta(target, 5*testBlock), TargetOptions{Sync: SyncNone})
		put(t, p, 0)
		require.NoError(t, p.Close())
		base := filepath.Join(filepath.Dir(target), reservedName(filepath.Base(target)))
		return base + partialSuffix, base + checkpointSuffix
	}
	oldPartial, oldCheckpoint := leave("sub/old")
	age(oldPartial, 3)
	age(oldCheckpoint, 3)
	active, activeCheckpoint := leave("sub/active") // written lately, by its checkpoint
	age(active, 3)
	fresh, _ := leave("fresh")
	held, heldCheckpoint := leave("held")
	p := openPartial(t, tree, testMeta("held", 5*testBlock), TargetOptions{Sync: SyncNone})
	age(held, 3)
	age(heldCheckpoint, 3)
	lone := filepath.Join("sub", reservedName("lone")+checkpointSuffix)
	require.NoError(t, os.WriteFile(filepath.Join(dir, lone), nil, 0o600))
	age(lone, 3)
	foreign := reservedPrefix + "what"
	require.NoError(t, os.WriteFile(filepath.Join(dir, foreign), nil, 0o600))
	age(foreign, 3)

	removed, err := tree.Sweep(t.Context(), ".", 2*time.Hour)
	require.NoError(t, err)
	require.Equal(t, 2, removed)
	for _, name := range []string{oldPartial, oldCheckpoint, lone} {
		require.NoFileExists(t, filepath.Join(dir, name))
	}
	for _, name := range []string{active, activeCheckpoint, fresh, held, heldCheckpoint, foreign} {
		require.FileExists(t, filepath.Join(dir, name))
	}
	require.NoError(t, p.Close())
	removed, err = tree.Sweep(t.Context(), ".", -time.Hour)
	require.NoError(t, err)
	require.Equal(t, 3, removed)
	require.Equal(t, []string{filepath.Join(dir, foreign)}, leftovers(t, dir))
}
