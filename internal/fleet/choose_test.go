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
	require.Empty(t, first(offer{"ended", 4, 0, 0}))
	require.Equal(t, map[string]int{"a": 1000}, first(offer{"a", 4, 1, 0}, offer{"b", 4, 0, 0}))
	equal := first(offer{"a", 4, 5, 3}, offer{"b", 4, 1, 3})
	require.InDelta(t, 500, equal["a"], 60)
	held := first(offer{"large", 4, 50_000, 8}, offer{"small", 4, 1, 0})
	require.InDelta(t, 1000-1000/randomOneIn/2, held["small"], 30)
	require.InDelta(t, 1000/randomOneIn/2, held["large"], 30, "the last one gets a worker now and then")
	high := first(offer{"low", 1, 9, 0}, offer{"high", 16, 9, 14}, offer{"normal", 4, 9, 3})
	require.Greater(t, high["high"], 900, "15 of 16 are fewer than 4 of 4 and 1 of 1")
	low := first(offer{"low", 1, 9, 0}, offer{"high", 16, 9, 16}, offer{"normal", 4, 9, 4})
	require.Greater(t, low["low"], 900)
	lost := first(offer{"its worker is gone", 4, 0, 1}, offer{"large", 4, 50_000, 8})
	require.Greater(t, lost["its worker is gone"], 900)
}

// In the long run, jobs that have tasks enough have equally many workers, whatever came first.
func TestShareOfWorkers(t *testing.T) {
	t.Parallel()
	rng := random(1)
	offers := []offer{{"first", 4, 1000, 40}, {"second", 4, 1000, 0}, {"third", 4, 1000, 0}, {"few", 4, 5, 0}}
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

// By priority, jobs have 1, 4 and 16 times the workers.
func TestShareByPriority(t *testing.T) {
	t.Parallel()
	rng := random(1)
	offers := []offer{{"low", 1, 1000, 0}, {"normal", 4, 1000, 0}, {"high", 16, 1000, 0}}
	var running []int
	for range 5000 {
		if len(running) == 210 {
			i := rng.IntN(len(running))
			offers[running[i]].held--
			running = slices.Delete(running, i, i+1)
		}
		job := order(offers, rng)[0]
		running = append(running, slices.IndexFunc(offers, func(o offer) bool { return o.job == job }))
		offers[running[len(running)-1]].held++
	}
	for _, o := range offers {
		require.InEpsilon(t, 10*o.weight, o.held, 0.5, fmt.Sprint(offers))
	}
}
