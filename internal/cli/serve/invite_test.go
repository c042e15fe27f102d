package serve

import (
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// TestKilledServer: the file of a server that was killed says nothing about shares. That of one that
// runs does.
func TestKilledServer(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows names a refused connection differently, and the file counts")
	}
	home := t.TempDir()
	tcp := func(address string) (io.Closer, error) { return net.Listen("tcp", address) }
	quic := func(address string) (io.Closer, error) { return net.ListenPacket("udp", address) }
	for _, x := range []struct {
		listen func(string) (io.Closer, error)
		host   string
	}{{tcp, "127.0.0.1"}, {tcp, ""}, {quic, "127.0.0.1"}, {quic, ""}} {
		// Below the ports that Linux gives to others: nobody takes the port once it is free again.
		var l io.Closer
		var address string
		for err := io.EOF; err != nil; {
			address = net.JoinHostPort(x.host, strconv.Itoa(20000+rand.IntN(12000)))
			l, err = x.listen(address)
		}
		require.NoError(t, (&serving{Address: address, Shares: []string{"backup"}}).write(home))
		now, err := readServing(home)
		require.NoError(t, err)
		require.Len(t, now, 1)
		g := grantFlags{shares: []string{"new"}}
		require.ErrorContains(t, g.checkShares(now[0]), `no share "new"`)
		require.NoError(t, l.Close())
		now, err = readServing(home)
		require.NoError(t, err)
		require.Empty(t, now)
		require.NoError(t, g.checkShares(together(now)))
	}
}

// TestRightsInShare: rights are not taken for a part of a share's name, unless a server has such a share.
func TestRightsInShare(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"s:rw", "s=ro", "s:read+list", "a:b:wo"} {
		err := (&grantFlags{shares: []string{name}}).checkShares(nil)
		require.ErrorContains(t, err, "is not the name of a share", name)
		require.Equal(t, fxfer.KindUsage, fxfer.KindOf(err))
		require.NoError(t, (&grantFlags{shares: []string{name}}).checkShares(&serving{Shares: []string{name}}))
	}
	for _, name := range []string{"s", "s:x", ":rw", "rw", "*"} {
		require.NoError(t, (&grantFlags{shares: []string{name}}).checkShares(nil), name)
	}
}

// TestServingIsWhole: who reads while a server writes its file sees a whole one, and what a full disk
// once left in the folder keeps no command from its work.
func TestServingIsWhole(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows does not replace a file that somebody reads, and then the server warns")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	home := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(home, "serving-cut.json"), []byte(`{"address`), 0o600))
	s := &serving{Address: l.Addr().String(), Shares: []string{"backup"}}
	require.NoError(t, s.write(home))
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() {
		for range 200 {
			assert.NoError(t, s.write(home))
		}
	})
	for range 200 {
		all, err := readServing(home)
		require.NoError(t, err)
		require.Equal(t, []*serving{s}, all)
	}
}

// TestTwoServers: an invitation is for the server that the port or the shares name.
func TestTwoServers(t *testing.T) {
	t.Parallel()
	one := &serving{Address: "[::]:7433", Shares: []string{"backup", "pub"}}
	two := &serving{Address: "127.0.0.1:7500", Shares: []string{"pub"}}
	for _, c := range []struct {
		all    []*serving
		port   int
		shares []string
		want   *serving // nil for none
		err    string   // "" for none
	}{
		{},
		{shares: []string{"pub"}},
		{all: []*serving{one}, want: one},
		{all: []*serving{one}, port: 443, want: one}, // that of a router
		{all: []*serving{one}, shares: []string{"nosuch"}, want: one},
		{all: []*serving{one, two}, err: "2 servers run with this FXFER_HOME: on [::]:7433 and 127.0.0.1:7500"},
		{all: []*serving{one, two}, port: 443, err: "2 servers run"},
		{all: []*serving{one, two}, port: 7500, want: two},
		{all: []*serving{one, two}, port: 7433, shares: []string{"*"}, want: one},
		{all: []*serving{one, two}, port: 7500, shares: []string{"backup"}, want: two},
		{all: []*serving{one, two}, shares: []string{"backup"}, want: one},
		{all: []*serving{one, two}, shares: []string{"pub"}, err: "2 servers run"},
		{all: []*serving{one, two}, shares: []string{"*"}, err: "2 servers run"},
		{all: []*serving{one, two}, shares: []string{"nosuch"}, err: "2 servers run"},
	} {
		got, err := serverFor(c.all, c.port, c.shares)
		if c.err == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, c.err)
		}
		require.Equal(t, c.want, got, c)
	}
}
