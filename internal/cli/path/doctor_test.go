package path

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/hint"
)

// The command that the hint names is the one that was given.
func TestNeedRoot(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{nil, {"--for", "10gbit,80ms"}, {"--for", "10gbit,80ms", "--yes"}} {
		apply, _, err := NewDoctor().Find([]string{"apply"})
		require.NoError(t, err)
		require.NoError(t, apply.ParseFlags(flags))
		want := "it takes root: sudo doctor apply"
		for _, f := range flags {
			want += " " + f
		}
		require.Equal(t, want, hint.Of(needRoot(fs.ErrPermission, apply)))
	}
}
