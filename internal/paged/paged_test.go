package paged

import (
	"maps"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMap compares a Map with a map of Go, over numbers that come in order and leave in any, and
// over any numbers.
func TestMap(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for round := range 50 {
		var m Map[int]
		model := map[uint64]int{}
		next := uint64(0)
		number := func() uint64 {
			switch {
			case rng.IntN(20) == 0:
				return math.MaxUint64 - rng.Uint64N(20)
			case round%2 == 0:
				return rng.Uint64N(100)
			}
			return next - min(next, rng.Uint64N(50))
		}
		for range 2000 {
			switch rng.IntN(4) {
			case 0:
				m.Put(next, int(next))
				model[next] = int(next)
				next++
			case 1:
				n, value := number(), rng.Int()
				m.Put(n, value)
				model[n] = value
			default:
				n := number()
				require.Equal(t, model[n], m.Get(n))
				n = number()
				require.Equal(t, model[n], m.Delete(n))
				delete(model, n)
			}
			require.Equal(t, len(model), m.Len())
		}
		require.Equal(t, model, maps.Collect(m.All()))
		require.LessOrEqual(t, len(m.pages), len(model))
		for range m.All() {
			break
		}
	}
}
