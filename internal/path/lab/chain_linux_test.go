package lab

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Hosts in the middle run commands and forward packets. Each leg has a delay and counters of its
// own, and the routes over it have its initial windows.
func TestChain(t *testing.T) {
	startLab(t, Link{Rate: 1e9}) // skips the test if there can be no lab
	l, err := StartChain([]Leg{
		{Link: Link{Rate: 1e9, RTT: 10 * time.Millisecond}, InitCwnd: 3},
		{Link: Link{Rate: 5e7, RTT: 20 * time.Millisecond}, InitRwnd: 7, Window: 65536},
		{Link: Link{Rate: 1e9, RTT: 30 * time.Millisecond}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) }) // after the echo, which waits for the end of c
	require.Len(t, l.Middle, 2)

	out, err := l.Middle[1].Command(t.Context(), "sh", "-c", "echo $FXFER_LAB_LEFT $FXFER_LAB_MIDDLE1 $FXFER_LAB_MIDDLE2 $FXFER_LAB_RIGHT").Output()
	require.NoError(t, err)
	require.Equal(t, "10.77.0.1 10.77.0.2 10.77.1.2 10.77.2.2\n", string(out))

	for _, c := range []struct {
		host  *Host
		to    *Host
		route string
	}{
		{l.Left, l.Middle[0], "initcwnd 3"}, {l.Left, l.Right, "initcwnd 3"}, {l.Middle[0], l.Left, "initcwnd 3"},
		{l.Middle[0], l.Right, "initrwnd 7"}, {l.Middle[1], l.Left, "initrwnd 7"}, {l.Right, l.Left, "via 10.77.2.1"},
	} {
		out, err := c.host.Command(t.Context(), "ip", "route", "get", c.to.Addr().String()).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), c.route)
	}
	rmem, err := l.Middle[1].Command(t.Context(), "cat", "/proc/sys/net/ipv4/tcp_rmem").Output()
	require.NoError(t, err)
	require.Equal(t, []string{"4096", "131072", "131072"}, strings.Fields(string(rmem)))

	// Over the whole path, from left to right.
	port := echo(t, l)
	began := time.Now()
	c := dial(t, l.Left, "tcp", l.Right, port)
	require.GreaterOrEqual(t, time.Since(began), 60*time.Millisecond)
	sent := make([]byte, 200_000) // the second leg cuts trains that the host before it forwards
	_, err = c.Write(sent)
	require.NoError(t, err)
	_, err = io.ReadFull(c, sent)
	require.NoError(t, err)
	require.Equal(t, l.Left.Addr(), c.LocalAddr().(*net.TCPAddr).AddrPort().Addr())
	for _, leg := range l.LegCounters() {
		for _, way := range leg {
			require.Positive(t, way.Delivered)
			require.Zero(t, way.Outage)
		}
	}

	// Others do not fit in.
	_, err = l.StartPing()
	require.ErrorContains(t, err, "chain")
}
