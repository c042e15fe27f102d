package serve

import (
	"testing"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/stretchr/testify/require"
)

// TestRightsInHelp: help names every right that there is.
func TestRightsInHelp(t *testing.T) {
	c := New("")
	require.Contains(t, c.Flags().Lookup("share").Usage, identity.RightsSyntax())
	for _, name := range []string{"read", "write", "list", "append", "rw", "ro", "wo"} {
		_, err := identity.ParseRights(name)
		require.NoError(t, err)
		require.Contains(t, identity.RightsSyntax(), name)
	}
}
