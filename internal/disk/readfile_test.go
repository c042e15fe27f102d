package disk

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReadFile(t *testing.T) {
	tree, dir := openTree(t)
	path := filepath.Join(dir, "folder", "file")
	require.NoError(t, os.Mkdir(filepath.Dir(path), 0o755))
	for _, size := range []int{0, 1, 100_000} {
		content, _ := blockOf(3, size)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		m, err := tree.Stat("folder/file")
		require.NoError(t, err)
		got := make([]byte, size)
		require.NoError(t, tree.ReadFile("folder/file", m.ID, got))
		require.Equal(t, content, got)
		require.ErrorIs(t, tree.ReadFile("folder/file", m.ID, make([]byte, size+1)), fs.ErrInvalid)
	}
	require.ErrorIs(t, tree.ReadFile("../file", Identity{}, nil), ErrPath)
	require.NoError(t, tree.Close())
	require.ErrorIs(t, tree.ReadFile("folder/file", Identity{}, nil), os.ErrClosed)
}

func TestReadFileChanged(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(outside, []byte("content"), 0o600))
	for name, alter := range map[string]func(path string) error{
		"longer":  func(path string) error { return os.WriteFile(path, make([]byte, 20), 0o600) },
		"shorter": func(path string) error { return os.Truncate(path, 2) },
		"empty":   func(path string) error { return os.Truncate(path, 0) },
		"touched": func(path string) error { return os.Chtimes(path, someTime, someTime) },
		"removed": os.Remove,
		"a folder": func(path string) error {
			return joined(os.Remove(path), os.Mkdir(path, 0o755))
		},
		"a symlink": func(path string) error {
			return joined(os.Rename(path, path+"2"), os.Symlink(path+"2", path))
		},
		"a symlink to the outside": func(path string) error {
			return joined(os.Remove(path), os.Symlink(outside, path))
		},
		"another of the same size": func(path string) error {
			return joined(os.Rename(path, path+"2"), os.WriteFile(path, []byte("CONTENT"), 0o600), os.Chtimes(path, someTime, someTime))
		},
		"folder gone": func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
	} {
		t.Run(name, func(t *testing.T) {
			tree, dir := openTree(t)
			path := filepath.Join(dir, "folder", "file")
			require.NoError(t, os.Mkdir(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, []byte("content"), 0o600))
			require.NoError(t, os.Chtimes(path, someTime.Add(time.Hour), someTime.Add(time.Hour)))
			m, err := tree.Stat("folder/file")
			require.NoError(t, err)
			if err := alter(path); err != nil {
				t.Skip(err)
			}
			require.ErrorIs(t, tree.ReadFile("folder/file", m.ID, make([]byte, m.Size)), ErrChanged)
		})
	}
}

// joined returns the first of the errors.
func joined(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkReadFile reads files of 1 KiB, a thousand to a folder, that a walk found.
func BenchmarkReadFile(b *testing.B) {
	dir := b.TempDir()
	content := make([]byte, 1024)
	for i := range 10_000 {
		path := filepath.Join(dir, fmt.Sprintf("some/folder%d/file%d", i/1000, i))
		if i%1000 == 0 {
			require.NoError(b, os.MkdirAll(filepath.Dir(path), 0o755))
		}
		require.NoError(b, os.WriteFile(path, content, 0o600))
	}
	tree, err := Open(dir)
	require.NoError(b, err)
	defer tree.Close()
	var files []Meta
	require.NoError(b, tree.Walk(b.Context(), ".", WalkOptions{}, func(m Meta) error {
		if m.Kind == File {
			files = append(files, m)
		}
		return nil
	}, func(_ string, err error) { b.Error(err) }))
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		m := &files[i%len(files)]
		require.NoError(b, tree.ReadFile(m.Path, m.ID, content))
		i++
	}
}
