//go:build !windows

package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPromises: SECURITY.md names tests that exist.
func TestPromises(t *testing.T) {
	exists := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	require.NoError(t, filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(p, "_test.go") {
			return err
		}
		text, err := os.ReadFile(p)
		for _, m := range function.FindAllSubmatch(text, -1) {
			exists[string(m[1])] = true
		}
		return err
	}))
	text, err := os.ReadFile(filepath.Join(top, "SECURITY.md"))
	require.NoError(t, err)
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllSubmatch(text, -1)
	require.Greater(t, len(named), 40)
	for _, m := range named {
		require.True(t, exists[string(m[1])], "SECURITY.md: there is no test %s", m[1])
	}
}
