package congestion_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/congestion/simulate"
)

// TestShortQueue: others keep their part of a line behind a queue that is shorter than the one that a
// session usually holds. Eight flows never let such a queue stand, and what they make the session lose
// looks as if it came by chance. One flow leaves it empty for seconds whenever it has lost something.
func TestShortQueue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate  float64
		rtt   time.Duration
		flows int
		seeds []uint64
		keep  float64 // all of them, in the mean
	}{
		{100, 20 * ms, 8, []uint64{2, 4, 5}, 0.7},
		{300, 80 * ms, 1, []uint64{1, 2, 3}, 0.41},
	} {
		keep := 0.0
		for _, seed := range c.seeds {
			s := simulate.Scenario{
				Path: line(c.rate, c.rtt, 0.25), For: 80 * time.Second, Seed: seed,
				Flows: append(flows(simulate.Flow{Kind: simulate.Session, From: 10 * time.Second}), times(c.flows, simulate.Flow{Kind: simulate.Cubic})...),
			}
			beside := others(simulate.Run(s), 20*time.Second, s.For)
			s.Flows[0] = simulate.Flow{Kind: simulate.UDP, From: s.For}
			keep += beside / others(simulate.Run(s), 20*time.Second, s.For) / float64(len(c.seeds))
		}
		t.Logf("%v Mbit/s × %v: %d flows keep %.3f", c.rate, c.rtt, c.flows, keep)
		require.Greater(t, keep, c.keep, "%v Mbit/s × %v, %d flows", c.rate, c.rtt, c.flows)
	}
}
