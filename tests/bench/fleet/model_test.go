package main

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// some are service times that make sums easy.
var some = times{
	AddAlone: 0.02, Add: 0.001, AddPath: 1e-6, BeginPath: 5e-7, BeginAlone: 0.01, Begin: 0.002, Renew: 0.001, EndAlone: 0.01, End: 0.002, Controller: 0.002, Clear: 0.01,
	MemoryBase: 1e8, MemoryPerShard: 500, List: 1e-5,
	Shard: cost{0.1, 0.01, 0.01, 0}, File: cost{1e-4, 5e-5, 5e-5, 0}, Same: cost{1e-5, 5e-6, 5e-6, 0}, Byte: cost{1e-9, 5e-10, 5e-10, 0}, Finish: cost{1e-5, 5e-6, 5e-6, 0},
}

func model(workers int, files, bytes int64) fleetModel {
	return fleetModel{times: some, workers: workers, files: files, bytes: bytes, names: 50, changed: 1, workerLine: 1.25e9, line: 50e9, processors: 64}
}

// Whatever the fleet is, each file and byte is sent once, things happen in their order, and no resource
// is busy for longer than the pass.
func TestConservation(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		m := model(1+rng.IntN(200), 1+rng.Int64N(3e6), rng.Int64N(1e14))
		m.line, m.processors, m.together = 1e9*(0.1+rng.Float64()), 1+float64(rng.IntN(8)), rng.IntN(2) == 0
		m.shardFiles = 1000 + rng.Int64N(30_000)
		if rng.IntN(3) == 0 {
			m.workerLine = 0
		}
		p := m.simulate()
		require.Equal(t, m.files, p.sentFiles, "%+v", m)
		require.InEpsilon(t, float64(m.bytes)+1, float64(p.sentBytes)+1, 1e-6+float64(p.shards)/(float64(m.bytes)+1), "%+v", m)
		require.LessOrEqual(t, p.listed, p.counted)
		require.LessOrEqual(t, p.sent, p.counted)
		require.Less(t, p.counted, p.total)
		for what, busy := range p.busy {
			require.LessOrEqual(t, busy, 1+1e-9, "%d: %+v", what, m)
		}
	}
}

// Of the changed part, nothing is lost to rounding, also where shards have one file.
func TestChanged(t *testing.T) {
	t.Parallel()
	for _, m := range []fleetModel{model(10, 1000, 1000*100e9), model(10, 1000, 1000*100e6), model(3, 100_000, 100_000)} {
		m.changed = 0.01
		require.InEpsilon(t, float64(m.bytes)/100, float64(m.simulate().sentBytes), 1e-6)
		m.changed = 0
		require.Zero(t, m.simulate().sentBytes)
	}
}

// One worker does one thing after the other.
func TestSum(t *testing.T) {
	t.Parallel()
	m := model(1, 100_000, 0)
	m.Renew = 0
	p := m.simulate()
	require.Equal(t, 5, p.shards)
	want := m.BeginAlone + 1e5*(m.List+m.AddPath+m.BeginPath) + 5*m.AddAlone + m.EndAlone + m.Controller + // the list
		5*(m.BeginAlone+m.Shard.Wall+m.EndAlone) + 1e5*m.File.Wall + m.Controller +
		m.BeginAlone + 1e5*m.Finish.Wall + m.EndAlone + m.Controller
	require.InDelta(t, want, p.total, 1e-6)
}

// More workers send as much more, until the first bottleneck. Then they send no more.
func TestLinear(t *testing.T) {
	t.Parallel()
	sending := func(workers int, line float64) float64 {
		m := model(workers, 320_000, 320_000*100e6) // 1,000 shards of 32 GB
		m.List, m.line = 1e-9, line
		p := m.simulate()
		return p.sent - p.listed
	}
	one := sending(1, 50e9)
	for _, n := range []int{2, 4, 8, 20} {
		require.InEpsilon(t, one/float64(n), sending(n, 50e9), 0.02, n)
	}
	line := 5 * 1e9 // that of about five workers: one has 1 GB/s
	for _, n := range []int{8, 16, 100} {
		require.InEpsilon(t, 320_000*100e6/line, sending(n, line), 0.02, n)
	}
	require.InEpsilon(t, one/2, sending(2, line), 0.02)
}

// The largest number of shards grows with the logarithm of the size.
func TestShards(t *testing.T) {
	t.Parallel()
	require.Equal(t, 50_000, model(100, 1e9, 1e12).simulate().shards)
	m := model(100, 1e9, 100e15)
	p := m.simulate()
	require.Less(t, p.shards, 350_000)
	require.Greater(t, p.shards, 250_000)
	require.InEpsilon(t, 1e8+500*float64(p.shards), p.memory, 1e-9)
}

// Events come in the order of their times, and those of one time as they were added.
func TestEvents(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var e events
	for i := range 2000 {
		e.push(happening{at: float64(rng.IntN(300)), seq: i})
		if rng.IntN(3) == 0 {
			first := e.pop()
			for j := range e {
				require.True(t, first.before(&e[j]))
			}
		}
	}
	last := happening{at: -1}
	for len(e) > 0 {
		h := e.pop()
		require.True(t, last.before(&h))
		last = h
	}
}

// What makes nothing faster is no bottleneck, and what is removed is none any more.
func TestBottlenecks(t *testing.T) {
	t.Parallel()
	m := model(100, 1e7, 1e12)
	m.List = 1e-3
	found := m.bottlenecks(3)
	require.Equal(t, listing, found[0].what)
	require.NotEqual(t, listing, found[1].what)
	require.Less(t, found[0].without, m.simulate().total/5)
	for i := range found[1:] {
		require.LessOrEqual(t, found[i+1].without, found[i].without)
	}
	m = model(100, 1e6, 1e15)
	m.line = 1e9
	require.Equal(t, sharedLine, m.bottlenecks(1)[0].what)
}
