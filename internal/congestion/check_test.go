package congestion_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/congestion"
	"github.com/fxfer/fxfer/internal/congestion/simulate"
)

// TestCheck: a session that begins in the queue of others takes that for a part of the way. When the queue
// has become shorter, a check shows it. Alone, a session needs none.
func TestCheck(t *testing.T) {
	t.Parallel()
	shared := func(flows ...simulate.Flow) time.Duration {
		var began time.Duration
		s := simulate.Scenario{
			Path: line(1000, 5*ms, 4), For: 14 * time.Second, Seed: 1,
			Flows: append([]simulate.Flow{{Kind: simulate.Session, From: 8 * time.Second}}, flows...),
		}
		s.Trace = func(m simulate.Moment) {
			if m.Decision.State == congestion.Compete && began == 0 {
				began = m.Sample.At
			}
		}
		simulate.Run(s)
		return began
	}
	began := shared(simulate.Flow{Kind: simulate.Cubic})
	require.Positive(t, began)
	require.Less(t, began, 4*time.Second)
	require.Zero(t, shared())
}
