package disk

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFirstNames: several passes give all names in order, and no pass holds more than it may.
func TestFirstNames(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 50 {
		names := make([]string, random.IntN(300))
		for i := range names {
			names[i] = fmt.Sprint(i, strings.Repeat("n", random.IntN(200)))
		}
		want := slices.Sorted(slices.Values(names))
		most, bytes := 1+random.IntN(100), random.IntN(10_000)
		var got []string
		for n := (firstNames{more: true}); n.more; {
			n = firstNames{after: n.last, most: most, bytes: bytes}
			random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			for _, name := range names {
				n.add(name)
				if len(n.names) > max(1, 2*most) || n.held > 2*bytes+256 { // a require here takes most of the time
					t.Fatalf("%d names of %d bytes are held, at most %d and %d at a time", len(n.names), n.held, most, bytes)
				}
			}
			n.sort()
			require.LessOrEqual(t, len(n.names), max(1, most))
			got = append(got, n.names...)
		}
		require.True(t, slices.Equal(want, got), "%d names, %d or %d bytes at a time", len(names), most, bytes)
	}
}

// TestListLarge: a folder that takes several passes is listed whole, in order.
func TestListLarge(t *testing.T) {
	t.Parallel()
	tree, dir := openTree(t)
	long := strings.Repeat("n", 240)
	const files = 4500
	require.Greater(t, files*(len(long)+4+nameMemory), listMemory)
	for i := range files {
		require.NoError(t, os.Symlink("x", filepath.Join(dir, fmt.Sprintf("%s%04d", long, i))))
	}
	n := 0
	require.NoError(t, tree.List(t.Context(), ".", func(m Meta) error {
		require.Equal(t, fmt.Sprintf("%s%04d", long, n), m.Path)
		n++
		return nil
	}, func(name string, err error) { t.Errorf("%s: %v", name, err) }))
	require.Equal(t, files, n)
}

// TestWalkMemory: however many names there are on the way down, a walk knows few of them, and
// visits all.
func TestWalkMemory(t *testing.T) {
	t.Parallel()
	tree, dir := openTree(t)
	const levels, folders = 25, 200
	path := strings.Repeat("d/", openDepth) + "d"
	long := strings.Repeat("n", 200)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, path), 0o700))
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, root.Close()) }()
	for range levels {
		here, err := root.OpenRoot(path)
		require.NoError(t, err)
		for i := range folders { // after the way down, so they are known until it has been gone
			require.NoError(t, here.Mkdir(fmt.Sprint(long, i), 0o700))
		}
		require.NoError(t, here.Mkdir("d", 0o700))
		require.NoError(t, here.Close())
		path += "/d"
	}
	seen, most := 0, 0
	w := walker{
		tree: tree, ctx: t.Context(), reserved: func(*folder, string) {},
		failed: func(path string, err error) { t.Error(path, err) },
	}
	w.visit = func(Meta) error {
		seen++
		most = max(most, w.names)
		return nil
	}
	require.NoError(t, w.walk("."))
	require.Equal(t, 1+openDepth+1+levels*(folders+1), seen)
	require.Greater(t, most, deepMemory/2)
	require.LessOrEqual(t, most, deepMemory+levels*(256+nameMemory))
	require.Zero(t, w.names)
}
