package probe

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fxfer/fxfer/internal/wire"
)

// simulated is a path in one direction.
type simulated struct {
	mtu    int
	device int  // of the sender
	router bool // a router names the MTU
	fails  int  // how often at most a datagram is lost that would pass
}

// find runs the search on the path until it ends.
func (p simulated) find(t require.TestingT, lost func(size int) bool) PathMTU {
	s := newMTUSearch()
	losses := make(map[int]int)
	for rounds := 0; ; rounds++ {
		sizes := s.next(customary[0])
		if len(sizes) == 0 {
			return s.result(Up)
		}
		require.Less(t, rounds, 64, "the search ends")
		require.LessOrEqual(t, len(sizes), wire.MaxVolley)
		require.True(t, slices.IsSorted(sizes))
		for _, n := range sizes {
			switch {
			case n > p.device:
				s.device = p.device
				s.tries[n] = mtuTries
			case n > p.mtu:
				s.tries[n]++
				if p.router {
					s.learn(p.mtu, 0)
				}
			case losses[n] < p.fails && lost(n):
				losses[n]++
				s.tries[n]++
			default:
				s.passed[n] = true
			}
		}
	}
}

func TestMTUSearch(t *testing.T) {
	never := func(int) bool { return false }
	for name, c := range map[string]struct {
		path simulated
		want PathMTU
	}{
		"Ethernet": {simulated{mtu: 1500, device: 1500}, PathMTU{MTU: 1500, Passed: []int{576, 1280, 1308, 1492, 1500}, Failed: []int{1501, 9000, largest}, Device: true}},
		"tunnel":   {simulated{mtu: 1308, device: 1500, router: true}, PathMTU{MTU: 1308, Passed: []int{576, 1280, 1308}, Failed: []int{1309, 1492, 1500, 9000, largest}, Named: 1308}},
		"hole":     {simulated{mtu: 1400, device: 1500}, PathMTU{MTU: 1400, Passed: []int{576, 1280, 1308, 1400}, Failed: []int{1401, 1492, 1500, 9000, largest}, BlackHole: true}},
		"jumbo":    {simulated{mtu: 9000, device: 9000}, PathMTU{MTU: 9000, Passed: []int{576, 1280, 1308, 1492, 1500, 9000}, Failed: []int{9001, largest}, Device: true}},
		"least":    {simulated{mtu: 576, device: 1500, router: true}, PathMTU{MTU: 576, Passed: []int{576}, Failed: []int{577, 1280, 1308, 1492, 1500, 9000, largest}, Named: 576}},
		"loopback": {simulated{mtu: largest, device: largest}, PathMTU{MTU: largest, Passed: []int{576, 1280, 1308, 1492, 1500, 9000, largest}}},
	} {
		c.want.Direction, c.want.Measured = Up, true
		require.Equal(t, c.want, c.path.find(t, never), name)
	}
	filtered := simulated{mtu: 0, device: 1500}.find(t, never)
	require.False(t, filtered.Measured)
	require.False(t, filtered.BlackHole)
}

// The search is exact on any path if no size is lost mtuTries times.
func TestMTUSearchIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := simulated{mtu: rapid.IntRange(customary[0], largest).Draw(t, "mtu"), router: rapid.Bool().Draw(t, "router"), fails: rapid.IntRange(0, mtuTries-1).Draw(t, "fails")}
		p.device = rapid.IntRange(p.mtu, largest).Draw(t, "device")
		seed := rapid.Uint64().Draw(t, "seed")
		rng := rand.New(rand.NewPCG(seed, 1))
		got := p.find(t, func(int) bool { return rng.IntN(2) == 0 })
		require.True(t, got.Measured)
		require.Equal(t, p.mtu, got.MTU)
		if p.mtu < largest {
			require.Equal(t, p.mtu+1, got.Failed[0])
			require.Equal(t, p.device == p.mtu, got.Device)
			require.Equal(t, p.device > p.mtu && !p.router, got.BlackHole)
		}
	})
}
