package transfer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/fxfer/fxfer/internal/filter"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// TestListFiles: several goroutines list what one lists, each file once, and visit is called one at a
// time.
func TestListFiles(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	r := seeded(t)
	dir := t.TempDir()
	for i := range 400 {
		at := dir
		for depth := range r.IntN(24) { // beyond what a walk keeps open
			at = filepath.Join(at, fmt.Sprint("d", r.IntN(1+depth%3)))
		}
		require.NoError(t, os.MkdirAll(at, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(at, fmt.Sprintf("f%d.%c", i, 'a'+r.IntN(3))), make([]byte, r.IntN(100)), 0o600))
	}
	require.NoError(t, os.Symlink("d0", filepath.Join(dir, "link")))
	selected, err := filter.New(filter.Options{Rules: []string{"*.b", "/d1/d0/"}})
	require.NoError(t, err)
	for _, f := range []*filter.Filter{nil, selected} {
		source := &TreeSource{Roots: []Root{{Tree: openTree(t, dir), Path: "."}}, Filter: f, ListOnly: true, OneFileSystem: true}
		want := map[string]int64{}
		require.NoError(t, source.Walk(t.Context(), func(i Item) error {
			if i.Entry.Kind == wire.File {
				want[i.Entry.Path] = i.Entry.Size
			}
			return nil
		}, func(string, error) {}))
		require.NotEmpty(t, want)
		for _, goroutines := range []int{1, 2, 16} {
			got := map[string]int64{}
			var busy atomic.Int32
			require.NoError(t, source.ListFiles(t.Context(), goroutines, func(i Item) error {
				require.EqualValues(t, 1, busy.Add(1))
				defer busy.Add(-1)
				require.NotContains(t, got, i.Entry.Path)
				got[i.Entry.Path] = i.Entry.Size
				return nil
			}))
			require.Equal(t, want, got)
		}
	}
}

// TestListFilesEnds: an error ends a listing, and nothing is visited after it.
func TestListFilesEnds(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	dir := t.TempDir()
	for i := range 50 {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, fmt.Sprint("d", i)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint("d", i), "f"), nil, 0o600))
	}
	source := &TreeSource{Roots: []Root{{Tree: openTree(t, dir), Path: "."}}, ListOnly: true}
	mine := errors.New("mine")
	visited := 0
	require.ErrorIs(t, source.ListFiles(t.Context(), 8, func(Item) error {
		if visited++; visited == 7 {
			return mine
		}
		return nil
	}), mine)
	require.Equal(t, 7, visited)
	ctx, cancel := context.WithCancel(t.Context())
	visited = 0
	require.ErrorIs(t, source.ListFiles(ctx, 8, func(Item) error {
		if visited++; visited == 7 {
			cancel()
		}
		return nil
	}), context.Canceled)
	require.Equal(t, 7, visited)
	source.Roots[0].Path = "none"
	require.ErrorIs(t, source.ListFiles(t.Context(), 8, func(Item) error { return nil }), os.ErrNotExist)
	source.Roots[0].Path, source.Roots[0].As = "d3/f", ""
	visited = 0
	require.NoError(t, source.ListFiles(t.Context(), 8, func(i Item) error { visited++; require.Equal(t, ".", i.Entry.Path); return nil }))
	require.Equal(t, 1, visited)
}
