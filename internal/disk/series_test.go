package disk

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSeries(t *testing.T) {
	dir := t.TempDir()
	tree, err := Open(dir)
	require.NoError(t, err)
	defer tree.Close()
	_, err = tree.OpenSeries("a/web")
	require.ErrorIs(t, err, fs.ErrNotExist)
	s, err := tree.MakeSeries("a/web", "me")
	require.NoError(t, err)
	owned, err := s.Owned("me")
	require.NoError(t, err)
	require.True(t, owned)
	owned, err = s.Owned("")
	require.NoError(t, err)
	require.False(t, owned)
	again, err := tree.MakeSeries("a/web", "somebody else")
	require.NoError(t, err)
	owned, err = again.Owned("somebody else")
	require.NoError(t, err)
	require.False(t, owned)
	_, err = tree.MakeSeries("a/web/below", "me")
	require.ErrorIs(t, err, ErrPath)
	require.NoError(t, s.Lock())
	require.ErrorIs(t, again.Lock(), ErrBusy)
	names := []string{"2026-11-20T020000Z", "2026-11-21T020000Z", "2026-11-22T020000Z"}
	for _, bad := range []string{"", ".", "..", "latest", "2026-11-20", "2026-13-20T020000Z", "../2026-11-20T020000Z", ".fxfer-snapshots", "2026-11-20T02:00:00Z"} {
		_, _, err := s.Fill(bad)
		require.ErrorIs(t, err, ErrPath, bad)
		require.ErrorIs(t, s.Remove(bad), ErrPath, bad)
	}
	for i, name := range names {
		part, resumed, err := s.Fill(name)
		require.NoError(t, err)
		require.False(t, resumed)
		require.NoError(t, os.WriteFile(filepath.Join(part.Name(), "f"), []byte(name), 0o644))
		require.NoError(t, part.Close())
		part, resumed, err = s.Fill(name)
		require.NoError(t, err)
		require.True(t, resumed)
		require.NoError(t, part.Close())
		complete, filling, err := s.Snapshots()
		require.NoError(t, err)
		require.Len(t, complete, i)
		require.Equal(t, []string{name}, filling)
		require.NoError(t, tree.Walk(t.Context(), ".", WalkOptions{}, func(m Meta) error {
			require.NotContains(t, m.Path, name)
			return nil
		}, func(p string, err error) { t.Error(p, err) }), "it is invisible")
		require.NoError(t, s.Publish(name, false))
		_, _, err = s.Fill(name)
		require.ErrorIs(t, err, fs.ErrExist)
		link, err := os.Readlink(filepath.Join(dir, "a/web/latest"))
		require.NoError(t, err)
		require.Equal(t, name, link)
	}
	in, rest, err := tree.SeriesOf("a/web/" + names[0] + "/f")
	require.NoError(t, err)
	require.Equal(t, []string{"a/web", names[0] + "/f"}, []string{in, rest})
	require.NoError(t, s.Remove(names[2]))
	link, err := os.Readlink(filepath.Join(dir, "a/web/latest"))
	require.NoError(t, err)
	require.Equal(t, names[1], link)

	// A snapshot that nobody resumes is listed, and swept once it is old.
	part, _, err := s.Fill(names[2])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(part.Name(), "f"), []byte("part"), 0o644))
	require.NoError(t, part.Close())
	var left []Leftover
	list := func() {
		left = nil
		require.NoError(t, tree.Leftovers(t.Context(), ".", func(l Leftover) error { left = append(left, l); return nil }))
	}
	list()
	require.Len(t, left, 1)
	require.Equal(t, "a/web/"+names[2], left[0].Path)
	require.Equal(t, int64(4), left[0].Done)
	removed, err := tree.Sweep(t.Context(), ".", -time.Hour)
	require.NoError(t, err)
	require.Zero(t, removed, "it is locked")
	s.Close()
	removed, err = tree.Sweep(t.Context(), ".", time.Hour)
	require.NoError(t, err)
	require.Zero(t, removed, "it is new")
	removed, err = tree.Sweep(t.Context(), ".", -time.Hour)
	require.NoError(t, err)
	require.Equal(t, 1, removed)
	list()
	require.Empty(t, left)
	complete, _, err := s.Snapshots()
	require.NoError(t, err)
	require.Equal(t, names[:2], complete)
}
