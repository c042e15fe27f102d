package fleet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// random returns a source that repeats: what it leads to is the same in each run.
func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// The job with the fewest workers comes first, and jobs without tasks not at all.
func TestOrder(t *testing.T) {
	t.Parallel()
	first := func(offers ...offer) map[string]int {
		count := map[string]int{}
		for seed := range uint64(1000) {
			jobs := order(offers, random(seed))
			require.Len(t, jobs, len(slices.DeleteFunc(slices.Clone(offers), func(o offer) bool { return o.waiting+uint64(o.held) == 0 })))
			if len(jobs) > 0 {
				count[jobs[0]]++
			}
		}
		return count
	}
	require.Empty(t, first())
	require.Empty(t, first(offer{"ended", 0, 0}))
	require.Equal(t, map[string]int{"a": 1000}, first(offer{"a", 1, 0}, offer{"b", 0, 0}))
	equal := first(offer{"a", 5, 3}, offer{"b", 1, 3})
	require.InDelta(t, 500, equal["a"], 60)
	held := first(offer{"large", 50_000, 8}, offer{"small", 1, 0})
	require.InDelta(t, 1000-1000/byLot/2, held["small"], 30)
	require.InDelta(t, 1000/byLot/2, held["large"], 30, "the last one gets a worker now and then")
	lost := first(offer{"its worker is gone", 0, 1}, offer{"large", 50_000, 8})
	require.Greater(t, lost["its worker is gone"], 900)
}

// In the long run, jobs that have tasks enough have equally many workers, whatever came first.
func TestShareOfWorkers(t *testing.T) {
	t.Parallel()
	rng := random(1)
	offers := []offer{{"first", 1000, 40}, {"second", 1000, 0}, {"third", 1000, 0}, {"few", 5, 0}}
	running := slices.Repeat([]int{0}, 40)
	for range 5000 { // a worker is done, and takes another task
		i := rng.IntN(len(running))
		offers[running[i]].held--
		job := order(offers, rng)[0]
		running[i] = slices.IndexFunc(offers, func(o offer) bool { return o.job == job })
		offers[running[i]].held++
	}
	for i, o := range offers {
		require.InDelta(t, 10, o.held, 4, fmt.Sprint(i, offers))
	}
}
