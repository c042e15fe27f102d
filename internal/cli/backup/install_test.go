package backup

import (
	"os/user"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// Jobs of another user need the folder of that user, unless FXFER_HOME names one.
func TestHomeOf(t *testing.T) {
	me, err := user.Current()
	require.NoError(t, err)
	t.Setenv("FXFER_HOME", filepath.Join(t.TempDir(), "given"))
	own, err := homeOf("")
	require.NoError(t, err)
	same, err := homeOf(me.Username)
	require.NoError(t, err)
	require.Equal(t, own, same)
	_, err = homeOf("no-such-user")
	require.Equal(t, fxfer.KindUsage, fxfer.KindOf(err))

	other, err := user.Lookup("daemon")
	if err != nil || other.Uid == me.Uid {
		t.Skip("there is no other user to ask about")
	}
	given, err := homeOf(other.Username)
	require.NoError(t, err)
	require.Equal(t, own, given)
	t.Setenv("FXFER_HOME", "")
	theirs, err := homeOf(other.Username)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(other.HomeDir, ".config", "fxfer"), theirs)
	require.NoDirExists(t, theirs)
}
