package transfer

import (
	"path"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestManifestPath compares paths of the manifest with those that path.Join makes.
func TestManifestPath(t *testing.T) {
	t.Parallel()
	for _, r := range []Root{{Path: "."}, {Path: "a"}, {Path: "a", As: "a"}, {Path: "a/b", As: "b"}, {Path: "a", As: "."}, {Path: ".", As: "share"}, {Path: "b", As: "b/b"}} {
		for _, rest := range []string{"", "a", "b", "b/b", "a/b/c"} {
			in := path.Join(r.Path, rest)
			require.Equal(t, path.Join(r.As, rest, "."), r.manifestPath(in), "%q of %+v", in, r)
		}
	}
}
