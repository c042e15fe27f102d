package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func fill(t *testing.T, dir string, paths ...string) {
	t.Helper()
	for _, path := range paths {
		name := filepath.Join(dir, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(path), 0o600))
	}
}

// listing returns everything below dir, files with their content.
func listing(t *testing.T, dir string) (found []string) {
	t.Helper()
	require.NoError(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		name := strings.TrimPrefix(strings.TrimPrefix(path, dir), "/")
		if err == nil && info.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			name += "=" + string(content)
		}
		if name != "" {
			found = append(found, name)
		}
		return err
	}))
	slices.Sort(found)
	return found
}

func TestRemove(t *testing.T) {
	tree, dir := openTree(t)
	outside := t.TempDir()
	fill(t, outside, "kept")
	fill(t, dir, "stays", "file", "a/b/c", "a/b/"+reservedName("x")+partialSuffix, "a/d")
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "a/out")))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "link")))
	require.NoError(t, tree.Mkdir(strings.Repeat("deep/", 200)+"end", 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "many"), 0o755))
	for i := range 2*pruneBatch + 5 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "many", fmt.Sprint(i)), nil, 0o600))
	}
	for _, path := range []string{"file", "a", "link", "deep", "many"} {
		require.NoError(t, tree.Remove(path, ""), path)
		require.ErrorIs(t, tree.Remove(path, ""), os.ErrNotExist)
	}
	require.Equal(t, []string{"stays=stays"}, listing(t, dir))
	require.FileExists(t, filepath.Join(outside, "kept"))
	for _, path := range []string{".", "..", "../x", "/", "a/.."} {
		require.ErrorIs(t, tree.Remove(path, ""), ErrPath)
	}
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "link")))
	require.ErrorIs(t, tree.Remove("link/kept", ""), ErrNotFolder)

	// The name can be used again at once.
	require.NoError(t, tree.Mkdir("a/b", 0o755))
	s := stage(t, tree, "a/b/c", 5, TargetOptions{})
	require.NoError(t, s.Discard())
}

func TestRemoveWithBackup(t *testing.T) {
	tree, dir := openTree(t)
	fill(t, dir, "file", "a/b/c", "a/b/d", "a/e", "old/a/b/d/folder", "old/a/b/before", "old/file")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "old/file"), []byte("replaced"), 0o600))
	require.NoError(t, os.Symlink("x", filepath.Join(dir, "a/link")))
	_, err := tree.Stat("a/b/c") // a/b is open now
	require.NoError(t, err)

	require.NoError(t, tree.Remove("file", "old"))
	require.NoError(t, tree.Remove("a/b", "old"))
	require.NoError(t, tree.Mkdir("a/b", 0o755))
	batch := NewBatch(tree, TargetOptions{Sync: SyncNone})
	batch.Add(stage(t, tree, "a/b/new", 0, TargetOptions{}))
	require.Equal(t, []error{nil}, batch.Commit())
	require.NoError(t, tree.Remove("a/link", "old"))
	require.Equal(t, []string{
		"a", "a/b", "a/b/new=", "a/e=a/e", "old", "old/a", "old/a/b", "old/a/b/before=old/a/b/before",
		"old/a/b/c=a/b/c", "old/a/b/d=a/b/d", "old/a/link", "old/file=file",
	}, listing(t, dir))
	require.NoError(t, tree.Remove("a", "older/one"))
	require.NoDirExists(t, filepath.Join(dir, "a"))
	require.FileExists(t, filepath.Join(dir, "older/one/a/e"))

	require.ErrorIs(t, tree.Remove("none", "other"), os.ErrNotExist)
	require.NoDirExists(t, filepath.Join(dir, "other"))
	for _, c := range [][2]string{{"old", "old"}, {"old/a", "old"}, {"old", "old/a"}, {"old", "."}, {"old", "../x"}} {
		require.ErrorIs(t, tree.Remove(c[0], c[1]), ErrPath, c)
	}
	require.NoError(t, os.Symlink(t.TempDir(), filepath.Join(dir, "away")))
	require.Error(t, tree.Remove("old", "away"))
	require.Error(t, tree.Remove("old", "away/x"))
	require.DirExists(t, filepath.Join(dir, "old"))
}

func TestNames(t *testing.T) {
	tree, dir := openTree(t)
	require.NoError(t, tree.Mkdir("f/folder", 0o755))
	require.NoError(t, os.Symlink("x", filepath.Join(dir, "f/link")))
	fill(t, dir, "f/"+reservedName("x")+partialSuffix)
	want := map[string]Kind{"folder": Dir, "link": Symlink}
	for i := range 2500 {
		fill(t, dir, fmt.Sprintf("f/%d", i))
		want[fmt.Sprint(i)] = File
	}
	got := map[string]Kind{}
	require.NoError(t, tree.Names(t.Context(), "f", func(names []string, kinds []Kind) error {
		require.LessOrEqual(t, len(names), 1024)
		for i, name := range names {
			require.NotContains(t, got, name)
			got[name] = kinds[i]
			require.NoError(t, tree.Remove("f/"+name, ""))
		}
		return nil
	}))
	require.Equal(t, want, got)
	require.NoError(t, tree.Names(t.Context(), "f", func([]string, []Kind) error { return errors.New("nothing is left") }))
	stop := errors.New("stop")
	require.ErrorIs(t, tree.Names(t.Context(), ".", func([]string, []Kind) error { return stop }), stop)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, tree.Names(ctx, ".", func([]string, []Kind) error { return nil }), context.Canceled)
	require.ErrorIs(t, tree.Names(t.Context(), "none", nil), os.ErrNotExist)
}
