package disk

import (
	"io/fs"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestEarly: an early partial file goes on only for the same inode that has not been cut, is read as
// an old version of the same inode only, and never gets a name.
func TestEarly(t *testing.T) {
	grown := func(size int64) Meta { return testMeta("sub/file", size) }
	other := func(size int64) Meta {
		m := grown(size)
		m.ID.Ino++
		return m
	}
	for name, try := range map[string]struct {
		next Meta
		have int64 // blocks
	}{
		"the same":  {grown(3 * testBlock), 3},
		"grown":     {grown(9*testBlock + 1), 3},
		"cut":       {grown(3*testBlock - 1), 0},
		"replaced":  {other(9 * testBlock), 0},
		"new times": {func() Meta { m := grown(5 * testBlock); m.ID.ModTime, m.ID.Size = 43, 5; return m }(), 3},
	} {
		t.Run(name, func(t *testing.T) {
			tree, dir := openTree(t)
			require.NoError(t, tree.Mkdir("sub", 0o755))
			p, err := tree.Early(grown(3*testBlock), testBlock, TargetOptions{})
			require.NoError(t, err)
			_, err = tree.Early(grown(3*testBlock), testBlock, TargetOptions{})
			require.ErrorIs(t, err, ErrBusy)
			for block := range int64(3) {
				put(t, p, block)
			}
			_, err = tree.OpenEarly(grown(3*testBlock), testBlock)
			require.ErrorIs(t, err, ErrBusy)
			require.ErrorIs(t, p.Commit(grown(3*testBlock)), fs.ErrInvalid)
			_, err = p.Stage(grown(earlySize))
			require.ErrorIs(t, err, fs.ErrInvalid)
			require.NoError(t, p.Close())

			final := openPartial(t, tree, grown(5*testBlock), TargetOptions{})
			require.Empty(t, final.Have(), "the partial file of the target is another one")
			_, err = tree.OpenEarly(other(3*testBlock), testBlock)
			require.ErrorIs(t, err, fs.ErrNotExist)
			old, err := tree.OpenEarly(grown(5*testBlock), testBlock)
			require.NoError(t, err)
			require.EqualValues(t, 3*testBlock, old.Identity().Size)
			got := make([]byte, testBlock)
			_, err = old.ReadAt(got, 2*testBlock)
			require.NoError(t, err)
			want, _ := blockOf(2, testBlock)
			require.Equal(t, want, got)
			require.NoError(t, old.Unchanged())
			require.NoError(t, old.Close())

			p, err = tree.Early(try.next, testBlock, TargetOptions{})
			require.NoError(t, err)
			var have int64
			for _, x := range p.Have() {
				have += x.Count
			}
			require.Equal(t, try.have, have)
			put(t, p, have)
			require.NoError(t, p.Close())

			_, err = tree.Sweep(t.Context(), ".", time.Hour)
			require.NoError(t, err)
			require.NoError(t, final.Abort())
			require.Len(t, leftovers(t, filepath.Join(dir, "sub")), 2, "it is not old enough")
			for _, want := range []bool{true, false} {
				removed, err := tree.RemoveEarly("sub/file")
				require.NoError(t, err)
				require.Equal(t, want, removed)
			}
			require.Empty(t, leftovers(t, filepath.Join(dir, "sub")))
		})
	}
}
