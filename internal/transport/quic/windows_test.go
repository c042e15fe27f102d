package quic

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWindowPool: a client leaves others as much window as it has, and several clients have equal
// parts. A server that this process connects to may have all.
func TestWindowPool(t *testing.T) {
	t.Parallel()
	const step = 1 << 20
	greedy := func(p *windowPool, client string) (got int64) {
		for p.take(client, step) {
			got += step
		}
		return got
	}
	p := newWindowPool(allWindows)
	require.EqualValues(t, allWindows/2, greedy(p, "a"))
	b := greedy(p, "b")
	require.EqualValues(t, allWindows/4, b)
	p.give("a", allWindows/2)
	p.give("b", b)
	require.Equal(t, newWindowPool(allWindows), p)

	has := make(map[string]int64)
	for range allWindows / step { // in turn
		for n := range 7 {
			if c := fmt.Sprint(n); p.take(c, step) {
				has[c] += step
			}
		}
	}
	for c, n := range has {
		require.EqualValues(t, allWindows/8, n, "client %s", c)
	}
	require.EqualValues(t, allWindows/8, p.left)
	require.EqualValues(t, allWindows, greedy(newWindowPool(allWindows), ""))
}

// TestWindowsOfClient: all connections of a client count together, by its key, until they are gone.
func TestWindowsOfClient(t *testing.T) {
	t.Parallel()
	pool := newWindowPool(100)
	one, two := &link{pool: pool, client: "key"}, &link{pool: pool, client: "key"}
	require.False(t, one.grant(1), "before it is admitted")
	one.admit()
	two.admit()
	require.True(t, one.grant(30))
	require.True(t, two.grant(20))
	require.False(t, two.grant(1))
	other := &link{pool: pool, client: "other"}
	other.admit()
	require.True(t, other.grant(25))
	one.giveWindows()
	require.True(t, two.grant(10))
	require.False(t, one.grant(1), "of a connection that is gone")
	two.giveWindows()
	other.giveWindows()
	require.Equal(t, newWindowPool(100), pool)
}
