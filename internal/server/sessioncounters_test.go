package server

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/session"
)

// TestCountersEnd: a counter that can't grow any more stays where it is, and none runs backwards.
func TestCountersEnd(t *testing.T) {
	t.Parallel()
	c := newServerCounters()
	for range 3 {
		was := sums{progress: &session.Report{}}
		now := sums{progress: &session.Report{}, busy: math.MaxInt64 / 2, segments: math.MaxInt64}
		c.update("share", true, func(x *ShareTraffic) { x.add(&was, &now) })
	}
	x := c.snapshot().Traffic[0]
	require.Equal(t, time.Duration(math.MaxInt64), x.Busy)
	require.Equal(t, int64(math.MaxInt64), x.Segments)
}
