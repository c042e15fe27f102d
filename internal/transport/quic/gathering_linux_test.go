package quic

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestGathering(t *testing.T) {
	origin := time.Unix(1, 0)
	far := func() bool { return true }
	near := func() bool { return false }
	for name, c := range map[string]struct {
		every time.Duration // between reads
		reads int
		idle  time.Duration // since the last one
		far   func() bool
		waits time.Duration
	}{
		"a fast flow waits for the next moment": {300 * time.Microsecond, 132, 0, far, 700 * time.Microsecond},
		"the same later":                        {300 * time.Microsecond, 132, 600 * time.Microsecond, far, 100 * time.Microsecond},
		"a start does not":                      {300 * time.Microsecond, 128, 0, far, 0},
		"a slow flow does not":                  {3 * time.Millisecond, 132, 0, far, 0},
		"a pause ends it":                       {300 * time.Microsecond, 132, 3 * time.Millisecond, far, 0},
		"a near path does not":                  {300 * time.Microsecond, 132, 0, near, 0},
		"nothing was read":                      {0, 0, 0, far, 0},
	} {
		var g gathering
		now := origin
		for i := range c.reads {
			now = origin.Add(time.Duration(i) * c.every)
			g.read(now)
		}
		require.Equal(t, c.waits, g.wait(now.Add(c.idle), origin, c.far), name)
	}
}

// After a pause a flow has to prove itself again. Paths are looked at now and then.
func TestGatheringAgain(t *testing.T) {
	var g gathering
	now, asked, far := time.Unix(1, 0), 0, true
	wait := func() bool {
		return g.wait(now, now.Add(-gatherEvery/2), func() bool { asked++; return far }) > 0
	}
	fast := func(d time.Duration) {
		for end := now.Add(d); now.Before(end); now = now.Add(gatherEvery) {
			g.read(now)
			wait()
		}
	}
	fast(2 * time.Second)
	require.True(t, wait())
	require.Less(t, asked, 25)
	far = false
	fast(2 * gatherAsks)
	require.False(t, wait())
	far = true
	fast(2 * gatherAsks)
	require.True(t, wait())
	now = now.Add(gatherSoon) // a busy host
	g.read(now)
	require.True(t, wait())
	now = now.Add(time.Second)
	fast(gatherAfter * gatherEvery)
	require.False(t, wait())
	fast(2 * gatherEvery)
	require.True(t, wait())
}
