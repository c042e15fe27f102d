package serve

import (
	"io"
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
	tcp := func(address string) (io.Closer, net.Addr) {
		l, err := net.Listen("tcp", address)
		require.NoError(t, err)
		return l, l.Addr()
	}
	quic := func(address string) (io.Closer, net.Addr) {
		l, err := net.ListenPacket("udp", address)
		require.NoError(t, err)
		return l, l.LocalAddr()
	}
	for _, x := range []struct {
		listen func(string) (io.Closer, net.Addr)
		at     string
	}{{tcp, "127.0.0.1:0"}, {tcp, ":0"}, {quic, "127.0.0.1:0"}, {quic, ":0"}} {
		l, addr := x.listen(x.at)
		require.NoError(t, (&serving{Address: addr.String(), Shares: []string{"backup"}}).write(home))
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
