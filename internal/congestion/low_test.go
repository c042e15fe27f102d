package congestion_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/congestion"
	"github.com/fxfer/fxfer/internal/congestion/simulate"
)

// TestLowKeepsOff: a cubic flow that was there first keeps its rate beside a session of low priority,
// also where the session begins in a queue of that flow, or where even a full queue is shorter than
// the one that the session usually holds.
func TestLowKeepsOff(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what  string
		queue float64 // BDP
		seed  uint64
		keeps float64
	}{
		{"begins in a queue", 1, 2, 0.95},
		{"short queue", 0.25, 1, 0.6},
	} {
		s := simulate.Scenario{
			Path: line(1000, 5*ms, c.queue), For: 40 * time.Second, Seed: c.seed,
			Flows: flows(simulate.Flow{Kind: simulate.Session, Count: 4, Priority: congestion.Low, From: 10 * time.Second}, simulate.Flow{Kind: simulate.Cubic}),
		}
		beside := others(simulate.Run(s), 12*time.Second, s.For)
		s.Flows[0] = simulate.Flow{Kind: simulate.UDP, From: s.For}
		require.Greater(t, beside/others(simulate.Run(s), 12*time.Second, s.For), c.keeps, c.what)
	}
}
