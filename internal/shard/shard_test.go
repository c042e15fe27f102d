package shard

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Shard{
		"0/1": {0, 1}, "3/8": {3, 8}, "9999/10000": {9999, 10000},
	} {
		got, err := Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got)
		require.Equal(t, text, got.String())
		require.False(t, got.All())
	}
	for _, text := range []string{"", "3", "/", "3/", "/8", "8/8", "-1/8", "+1/8", "1/0", "0/10001", "1/8/2", "a/b", "0x1/8", "1 /8"} {
		_, err := Parse(text)
		require.Error(t, err, text)
	}
	require.True(t, Shard{}.All())
}

// named returns the key of a name.
func named(name string) Key {
	sum := sha256.Sum256([]byte(name))
	return Key(sum[:16])
}

// plan plans files, whose keys are those of their positions.
func plan(count int, weights []uint64, order []int) *Plan {
	p := NewPlanner(count)
	for _, i := range order {
		p.Add(named(fmt.Sprint(i)), weights[i], 1)
	}
	return p.Plan()
}

func loads(p *Plan, count int, weights []uint64) []uint64 {
	load := make([]uint64, count)
	for i, w := range weights {
		load[p.Shard(named(fmt.Sprint(i)))] += w
	}
	return load
}

// Whatever the files are, and in whatever order they come, all shards make the same plan. No shard
// has much more than its part, unless one file weighs more than that.
func TestPlan(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.IntRange(1, 40).Draw(t, "shards")
		files := rapid.IntRange(0, 3000).Draw(t, "files")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		skew := rapid.IntRange(0, 40).Draw(t, "skew") // the largest file has up to so many bits
		weights, order := make([]uint64, files), rng.Perm(files)
		var total, most uint64
		for i := range weights {
			weights[i] = 1 + rng.Uint64()>>(63-rng.IntN(skew+1))
			total += weights[i]
			most = max(most, weights[i])
		}
		one := plan(count, weights, order)
		rng.Shuffle(files, func(i, j int) { order[i], order[j] = order[j], order[i] })
		other := plan(count, weights, order)
		for i := range weights {
			key := named(fmt.Sprint(i))
			shard := one.Shard(key)
			require.Equal(t, shard, other.Shard(key))
			require.GreaterOrEqual(t, shard, 0)
			require.Less(t, shard, count)
		}
		// Large files fit within an even part and one file (Graham), of which rounding sees 7/8. Small
		// ones are spread by chance, with a deviation of at most 1/16 of a part: here are five of that.
		part := float64(total)/float64(count)*8/7 + float64(most)
		for _, load := range loads(one, count, weights) {
			require.LessOrEqual(t, float64(load), part*(1+5.0/16)+1)
		}
	})
}

// A few large files and many small ones: all shards have about the same.
func TestBalance(t *testing.T) {
	t.Parallel()
	const count, small = 8, 20_000
	var weights []uint64
	var total uint64
	for i := range small + 20 {
		w := uint64(100_000)
		if i >= small {
			w = uint64(1+i-small) * 20_000_000
		}
		weights = append(weights, w)
		total += w
	}
	order := rand.New(rand.NewPCG(1, 0)).Perm(len(weights))
	for i, load := range loads(plan(count, weights, order), count, weights) {
		require.InEpsilon(t, total/count, load, 0.1, "shard %d", i)
	}
}

// What changes in a live tree moves few of the small files.
func TestLive(t *testing.T) {
	t.Parallel()
	const count, files = 8, 20_000
	weights := make([]uint64, files+10)
	for i := range weights {
		weights[i] = 1000
	}
	order := rand.New(rand.NewPCG(1, 0)).Perm(len(weights))
	before, after := plan(count, weights[:files], rand.New(rand.NewPCG(2, 0)).Perm(files)), plan(count, weights, order)
	moved := 0
	for i := range files {
		if key := named(fmt.Sprint(i)); before.Shard(key) != after.Shard(key) {
			moved++
		}
	}
	require.Less(t, moved, files/100)
}

// Names of one file weigh as one, whichever come first, and the plan of nothing has a place for what
// appears later.
func TestNames(t *testing.T) {
	t.Parallel()
	p := NewPlanner(2)
	for range 4 {
		p.Add(named("linked"), 400, 4)
	}
	p.Add(named("alone"), 300, 1)
	require.EqualValues(t, 700, p.total)
	made := p.Plan()
	require.NotEqual(t, made.Shard(named("linked")), made.Shard(named("alone")))

	seen := map[int]bool{}
	nothing := NewPlanner(3).Plan()
	for i := range 100 {
		seen[nothing.Shard(named(fmt.Sprint(i)))] = true
	}
	require.Len(t, seen, 3)
}

// Memory follows the number of shards.
func TestMemory(t *testing.T) {
	t.Parallel()
	p := NewPlanner(3)
	for i := range 10_000 {
		p.Add(named(fmt.Sprint(i)), uint64(i), 1)
	}
	require.Len(t, p.large, 3*largePerShard)
	require.Len(t, p.known, 3*largePerShard)
	require.EqualValues(t, 10_000-3*largePerShard, p.large[0].weight)
}
