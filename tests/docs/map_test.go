//go:build !windows

package docs_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	rooms = regexp.MustCompile("(?s)\n## Packages\n.*?\n```\n(.*?)\n```\n")
	room  = regexp.MustCompile(`(?m)^  ([a-z0-9/]+) `)
	// place matches a Go file, often followed by functions in it.
	place    = regexp.MustCompile("`([a-z0-9_/]+\\.go)`((?: (?:and |or )?`[A-Za-z]+`)*)")
	function = regexp.MustCompile("`([A-Za-z]+)`")
)

// TestMap compares the map in ARCHITECTURE.md with the tree. The map names every folder with Go
// code, and no others. The files and functions that the page mentions exist.
func TestMap(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(top, "ARCHITECTURE.md"))
	require.NoError(t, err)
	block := rooms.FindSubmatch(text)
	require.NotNil(t, block, "no map below the heading Packages")
	var named []string
	for _, m := range room.FindAllSubmatch(block[1], -1) {
		named = append(named, string(m[1]))
	}
	slices.Sort(named)
	require.Equal(t, goFolders(t), named, "folders with Go code, and those that the map names")

	var stale []string
	for _, m := range place.FindAllStringSubmatch(string(text), -1) {
		code, err := os.ReadFile(filepath.Join(top, m[1]))
		if err != nil {
			stale = append(stale, m[1])
			continue
		}
		for _, f := range function.FindAllStringSubmatch(m[2], -1) {
			if !regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + f[1] + `[(\[]`).Match(code) {
				stale = append(stale, m[1]+" "+f[1])
			}
		}
	}
	require.Empty(t, stale, "the page mentions these, and they do not exist")
}

// goFolders returns the folders of this module that contain Go files, in order.
func goFolders(t *testing.T) (all []string) {
	t.Helper()
	require.NoError(t, fs.WalkDir(os.DirFS(top), ".", func(p string, d fs.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != "." && (name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")):
			return fs.SkipDir
		case path.Ext(name) == ".go" && !slices.Contains(all, path.Dir(p)):
			all = append(all, path.Dir(p))
		}
		return nil
	}))
	slices.Sort(all)
	return all
}
