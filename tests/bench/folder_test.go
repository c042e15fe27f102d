package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/fxfer/fxfer/tests/internal/hosts"
	"github.com/stretchr/testify/require"
)

func TestPlantedTree(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: the files can't be given to another user")
	}
	for _, p := range []payload{{files: 32, size: 64, folders: 4}, {files: 32, size: 640, folders: 2, text: true}} {
		f := &folder{Folder: &hosts.Folder{Path: t.TempDir()}}
		sent := &load{payload: p, dir: "src"}
		require.NoError(t, f.plant(t.Context(), sent))
		require.Len(t, sent.names, p.folders)
		require.NoError(t, f.plant(t.Context(), &load{payload: p, dir: "in"}))
		require.NoError(t, f.arrived(sent), "as many files and bytes as the payload says")
		require.NoError(t, f.compare(sent), "the same tree each time")

		last := filepath.Join(f.Abs("in"), sent.names[p.folders-1], "file000031")
		content, err := os.ReadFile(last)
		require.NoError(t, err)
		content[len(content)-1] ^= 1
		require.NoError(t, os.WriteFile(last, content, 0o644))
		require.ErrorContains(t, f.compare(sent), "file000031 arrived with other content")
		require.NoError(t, os.Remove(last))
		require.ErrorIs(t, f.compare(sent), os.ErrNotExist)
		require.Error(t, f.arrived(sent))
	}
}

func TestProse(t *testing.T) {
	for _, size := range []int64{0, 1, 10_000} {
		text := prose(rand.NewChaCha8([32]byte{}), size)
		require.Len(t, text, int(size))
		require.Equal(t, text, prose(rand.NewChaCha8([32]byte{}), size))
	}
}

func TestSizes(t *testing.T) {
	var sum int64
	for _, s := range sizes {
		sum += s
	}
	require.Equal(t, int64(64*len(sizes)), sum, "the mean is that of the payload")
}

func TestRoom(t *testing.T) {
	require.Equal(t, int64(10*(pageSize+inodeSize)), payload{files: 10, size: kib, folders: 2}.room())
	require.Equal(t, int64(4*(2*pageSize+inodeSize)), payload{files: 4, size: 2 * pageSize}.room())
}
