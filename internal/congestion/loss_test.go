package congestion

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestByChance: what free streams lose shows whether loss comes by chance, once they have sent enough.
func TestByChance(t *testing.T) {
	const mss = 1448
	for _, c := range []struct {
		what           string
		random, losses float64
		packets        float64 // in a second
		want           bool
	}{
		{"as much as ever", 0.01, 0.012, 10_000, true},
		{"more, as streams fill a queue", 0.01, 0.04, 10_000, false},
		{"next to nothing of many", 0.05, 0.004, 10_000, false},
		{"nothing of few", 0.01, 0, 100, true},
	} {
		x := New()
		x.model.base, x.model.mss = 20*time.Millisecond, mss
		x.model.steady, x.model.losses, x.loss.random = c.packets*mss, c.losses, c.random
		require.Equal(t, c.want, x.byChance(Sample{MSS: mss}), c.what)
	}
}

// TestHeedsPolicer: less is sent than what passed while something was lost, not than the mean with what a
// policer lets through at first; and once nothing is lost any more, nearly as much as passed.
func TestHeedsPolicer(t *testing.T) {
	const mss = 1448
	x := New()
	x.rate, x.line = 2100, 2100
	m := &x.model
	m.base, m.mss, m.steady, m.delivered, m.losses = 20*time.Millisecond, mss, 2080, 2000, 0.04
	require.True(t, x.heed(Sample{At: time.Second, RTT: m.base, MSS: mss}))
	require.InDelta(t, belowFull*2000, x.rate, 1e-6)
	m.steady, m.losses = x.rate, 0
	require.False(t, x.heed(Sample{At: 20 * time.Second, RTT: m.base, MSS: mss}))
	require.InDelta(t, belowLoss*2000, x.loss.ceil, 1e-6)
}
