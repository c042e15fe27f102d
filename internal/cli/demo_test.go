package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The demo says from its first step what it does, and at the end what it leaves, unless it cleans.
func TestDemoLeaves(t *testing.T) {
	t.Parallel()
	for _, clean := range []bool{false, true} {
		var out, errs strings.Builder
		d := &demo{out: &out, errs: &errs, dir: filepath.Join(t.TempDir(), "demo")}
		require.NoError(t, os.MkdirAll(filepath.Join(d.dir, "target"), 0o755))
		for _, name := range []string{"a", "target/b"} {
			require.NoError(t, os.WriteFile(filepath.Join(d.dir, name), make([]byte, 1000), 0o600))
		}
		d.doing("working on %s", "it")
		require.Equal(t, "working on it …\n", errs.String())
		require.NoError(t, d.leave(clean))
		if clean {
			require.NoDirExists(t, d.dir)
			require.Empty(t, out.String())
			continue
		}
		require.DirExists(t, d.dir)
		require.Equal(t, "left       2.00 kB in "+d.dir+": look at it, then remove it; --clean does that at once\n", out.String())
	}
	require.NoError(t, (&demo{}).leave(true), "it did not begin")
}
