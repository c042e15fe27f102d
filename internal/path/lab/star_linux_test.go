package lab

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The hosts on the left of a star share its trunk: each one reaches the right host, which sees their
// own addresses, over its own leg and the trunk, and over no other leg.
func TestStar(t *testing.T) {
	startLab(t, Link{Rate: 1e9}) // skips the test if there can be no lab
	leg := Leg{Link: Link{Rate: 2e7, RTT: 10 * time.Millisecond}}
	l, err := StartStar([]Leg{leg, leg, leg}, Leg{Link: Link{Rate: 5e7, RTT: 20 * time.Millisecond}, InitRwnd: 7})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	require.Len(t, l.Leaves, 3)
	require.Len(t, l.Middle, 1)
	require.Equal(t, l.Left, l.Leaves[0])

	port := echo(t, l)
	sent := make([]byte, 200_000)
	for i, leaf := range l.Leaves {
		if i == 2 { // it stays silent
			break
		}
		began := time.Now()
		c := dial(t, leaf, "tcp", l.Right, port)
		require.GreaterOrEqual(t, time.Since(began), 30*time.Millisecond)
		_, err = c.Write(sent)
		require.NoError(t, err)
		_, err = io.ReadFull(c, sent)
		require.NoError(t, err)
		require.Contains(t, c.LocalAddr().String(), leaf.Addr().String()+":")
		require.NoError(t, c.Close()) // the echo has one connection at a time
	}
	legs := l.LegCounters()
	require.Len(t, legs, 4)
	for way := range 2 {
		require.Greater(t, legs[0][way].Bytes, int64(len(sent)))
		require.Greater(t, legs[1][way].Bytes, int64(len(sent)))
		require.Zero(t, legs[2][way].Sent)
		require.Greater(t, legs[3][way].Bytes, 2*int64(len(sent)))
	}
	var ln net.Listener // hosts on the left reach each other, too
	require.NoError(t, l.Leaves[2].Do(func() (err error) {
		ln, err = net.Listen("tcp", net.JoinHostPort(l.Leaves[2].Addr().String(), "7"))
		return err
	}))
	dial(t, l.Leaves[1], "tcp", l.Leaves[2], 7)
	require.NoError(t, ln.Close())

	out, err := l.Middle[0].Command(t.Context(), "ip", "route", "get", l.Right.Addr().String()).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "dev wan3")
	require.Contains(t, string(out), "initrwnd 7")
}

// Each host finds the leg that leads to another one.
func TestWiring(t *testing.T) {
	t.Parallel()
	w := star(3)
	require.Equal(t, wiring{{0, 3}, {1, 3}, {2, 3}, {3, 4}}, w)
	for _, c := range []struct {
		host, to, over int
		device         string
	}{{0, 0, 0, "wan0"}, {0, 3, 0, "wan0"}, {1, 0, 1, "wan0"}, {3, 2, 2, "wan2"}, {3, 3, 3, "wan3"}, {4, 1, 3, "wan0"}} {
		require.Equal(t, c.over, w.toward(c.host, c.to, -1), c)
		require.Equal(t, c.device, w.device(c.host, c.over), c)
	}
	require.Equal(t, []int{0, 0, 0, 1}, []int{w.depth(0), w.depth(1), w.depth(2), w.depth(3)})
	require.Equal(t, []int{0, 0, 0, 0, 0, 0, 1, 1}, threadsOf(w, 1)) // each has data and answers of all
	require.Equal(t, []int{0, 2, 0, 2, 0, 2, 1, 3}, threadsOf(w, 4))
	require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7}, threadsOf(w, 8))
	w = chain(3)
	require.Equal(t, []int{0, 1, 1, 0, 0, 1}, threadsOf(w, 2))
	require.Equal(t, []int{0, 1}, threadsOf(chain(1), 2))
	require.Equal(t, wiring{{0, 1}, {1, 2}, {2, 3}}, w)
	require.Equal(t, 1, w.toward(1, 2, -1))
	require.Equal(t, 0, w.toward(1, 0, -1))
	require.Equal(t, "wan1", w.device(1, 1))
}
