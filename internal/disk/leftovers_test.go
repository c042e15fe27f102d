package disk

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A leftover is named after its target, with how much of it is done. Listing changes nothing, not
// even what a process holds.
func TestLeftovers(t *testing.T) {
	tree, dir := openTree(t)
	require.NoError(t, tree.Mkdir("sub", 0o755))
	const size = 5*testBlock + 7
	p := openPartial(t, tree, testMeta("sub/old", size), TargetOptions{Sync: SyncNone})
	put(t, p, 0)
	put(t, p, 5) // the short one
	require.NoError(t, p.Close())
	held := openPartial(t, tree, testMeta("held", size), TargetOptions{Sync: SyncNone})
	defer func() { require.NoError(t, held.Abort()) }()
	put(t, held, 1)
	lone := reservedName("lone") + checkpointSuffix
	unknown := reservedName("small") + partialSuffix
	for _, name := range []string{lone, unknown, reservedPrefix + "foreign", "plain"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600))
	}
	// A checkpoint with another file's name is ignored.
	wrong := reservedName("wrong")
	require.NoError(t, os.WriteFile(filepath.Join(dir, wrong+partialSuffix), nil, 0o600))
	b, err := os.ReadFile(filepath.Join(dir, "sub", reservedName("old")+checkpointSuffix))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, wrong+checkpointSuffix), b, 0o600))

	found := map[string]Leftover{}
	list := func() {
		clear(found)
		require.NoError(t, tree.Leftovers(t.Context(), ".", func(l Leftover) error {
			require.WithinDuration(t, time.Now(), l.ModTime, time.Minute)
			l.ModTime, l.Allocated = time.Time{}, 0
			found[l.Path] = l
			return nil
		}))
	}
	list()
	want := map[string]Leftover{
		"sub/old":             {Path: "sub/old", Known: true, Size: size, Done: testBlock + 7},
		"held":                {Path: "held", Known: true, Size: size, Done: testBlock},
		lone:                  {Path: lone, Size: -1},
		unknown:               {Path: unknown, Size: -1},
		wrong + partialSuffix: {Path: wrong + partialSuffix, Size: -1},
	}
	require.Equal(t, want, found)
	enough := errors.New("enough")
	require.ErrorIs(t, tree.Leftovers(t.Context(), ".", func(Leftover) error { return enough }), enough)

	put(t, held, 2) // it still is ours
	removed, err := tree.Sweep(t.Context(), ".", -time.Hour)
	require.NoError(t, err)
	require.Equal(t, len(want)-1, removed)
	list()
	require.Equal(t, map[string]Leftover{"held": {Path: "held", Known: true, Size: size, Done: 2 * testBlock}}, found)
}
