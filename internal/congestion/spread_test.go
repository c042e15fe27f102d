package congestion

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestSpread(t *testing.T) {
	inf := math.Inf(1)
	for name, c := range map[string]struct {
		rate  float64
		allow []float64
		want  float64
	}{
		"all have room":                {100, []float64{90, 60, inf, 25}, 25},
		"one leaves its part":          {100, []float64{90, 60, inf, 10}, 30},
		"two leave different parts":    {100, []float64{90, 20, inf, 10}, 35},
		"none sends more than twice":   {100, []float64{inf, 1, 1, 1}, 50},
		"all together allow less":      {100, []float64{10, 20, 30, 10}, 30},
		"nothing is known of a single": {100, []float64{inf}, 100},
		"a single one allows less":     {100, []float64{10}, 100},
		"no streams":                   {100, nil, 100},
		"no bound":                     {inf, []float64{10, inf, inf}, inf},
	} {
		require.InDelta(t, c.want, Spread(c.rate, c.allow), 1e-9, name)
	}
}

// TestSpreadSends: what the streams send together is the rate, unless the bound or their windows keep them from it. No
// stream has less than its part because of others.
func TestSpreadSends(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Float64Range(1, 1e9).Draw(t, "rate")
		shares := rapid.SliceOfN(rapid.Float64Range(0, 4), 1, 64).Draw(t, "allowed, in parts")
		part := rate / float64(len(shares))
		allow := make([]float64, len(shares))
		for i, s := range shares {
			allow[i] = s * part
		}
		bound, sent := Spread(rate, allow), 0.0
		for _, a := range allow {
			sent += min(a, bound)
		}
		require.LessOrEqual(t, sent, rate*(1+1e-9))
		require.GreaterOrEqual(t, bound, part*(1-1e-9))
		if bound < mostOver*part*(1-1e-9) && bound < slices.Max(allow)*(1-1e-9) {
			require.InEpsilon(t, rate, sent, 1e-9)
		}
	})
}

func TestHolding(t *testing.T) {
	same := func(n, w int) []int { return slices.Repeat([]int{w}, n) }
	for name, c := range map[string]struct {
		bdp, margin float64
		windows     []int
		want        int
	}{
		"a single one holds it":          {1000, 1.25, same(16, 5000), 1},
		"as many as it takes":            {1000, 1.25, same(16, 200), 7},
		"all of them":                    {1000, 1.25, same(5, 250), 5},
		"others like them":               {1000, 1.25, same(5, 200), 7},
		"a large one counts twice":       {1000, 1.25, append(same(9, 10), 9000), 44},
		"less margin, fewer":             {1000, 1, same(16, 200), 5},
		"nothing is known":               {1000, 1.25, nil, 0},
		"windows of nothing help nobody": {1000, 1.25, same(4, 0), 4},
	} {
		require.Equal(t, c.want, Holding(c.bdp, c.margin, c.windows), name)
	}
}
