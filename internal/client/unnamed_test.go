package client

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/identity"
)

// A list says how many entries it lacks because no path can name them. Those that fxfer itself made
// do not count.
func TestListUnnamed(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Read)
	defer s.stop()
	for _, p := range []string{"a", ".fxfer-mine", ".FXFER-yours", ".fxfer-sent", "b/.fxfer-theirs", "b/c"} {
		require.NoError(t, os.MkdirAll(filepath.Join(s.dir, p), 0o700))
	}
	var mu sync.Mutex
	var notices []string
	c := newClient(t, enrol(t, s), Options{Notice: func(text string) {
		mu.Lock()
		defer mu.Unlock()
		notices = append(notices, text)
	}})
	const two = `2 entries are not listed, the first of them: path not allowed: ".FXFER-yours": reserved, because it begins with .fxfer-`
	const one = `1 entry is not listed: path not allowed: "b/.fxfer-theirs": reserved, because it begins with .fxfer-`
	heard := func() (all []string) {
		mu.Lock()
		defer mu.Unlock()
		all, notices = notices, nil
		return all
	}

	all, err := c.List(t.Context(), s.plain(t, ""))
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, []string{two}, heard())
	all, err = c.List(t.Context(), s.plain(t, "b"))
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, []string{one}, heard())
	all, err = c.List(t.Context(), s.plain(t, "b/c"))
	require.NoError(t, err)
	require.Empty(t, all)
	require.Empty(t, heard())

	f, err := c.Files(t.Context(), s.plain(t, ""))
	require.NoError(t, err)
	defer f.Close()
	_, err = f.List("", false)
	require.NoError(t, err)
	require.Equal(t, []string{two}, heard())
	all, err = f.List("", true)
	require.NoError(t, err)
	require.Len(t, all, 3)
	require.Regexp(t, `^3 entries are not listed, the first of them: list .*: path not allowed: reserved`, heard()[0])
}
