package serve

import (
	"net"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKilledServer: the file of a server that was killed says nothing about shares. That of one that
// runs does.
func TestKilledServer(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows names a refused connection differently, and the file counts")
	}
	home := t.TempDir()
	for _, listen := range []string{"127.0.0.1:0", ":0"} {
		l, err := net.Listen("tcp", listen)
		require.NoError(t, err)
		require.NoError(t, (&serving{Address: l.Addr().String(), Shares: []string{"backup"}}).write(home))
		now, err := readServing(home)
		require.NoError(t, err)
		require.NotNil(t, now)
		g := grantFlags{shares: []string{"new"}}
		require.ErrorContains(t, g.checkShares(now), `no share "new"`)
		require.NoError(t, l.Close())
		now, err = readServing(home)
		require.NoError(t, err)
		require.Nil(t, now)
		require.NoError(t, g.checkShares(now))
	}
}
