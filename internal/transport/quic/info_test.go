package quic

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What was sent a round trip ago, without what was lost, is delivered.
func TestDelivered(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	const rate = 1e6 // bytes/s
	start := time.Now()
	for _, rtt := range []time.Duration{time.Millisecond, 30 * time.Millisecond, time.Second} {
		var s sendings
		for at := time.Duration(0); at < 5*time.Second; at += time.Duration(1+random.IntN(40)) * time.Millisecond {
			now := start.Add(at)
			s.add(now, uint64(rate*at.Seconds()), rtt)
			const lost = 1000
			bytes, flying := s.delivered(now, rtt, lost)
			if at < 2*rtt {
				require.LessOrEqual(t, bytes, uint64(rate*at.Seconds()))
				continue
			}
			require.InDelta(t, rate*(at-rtt).Seconds()-lost, bytes, 2.5)
			require.InDelta(t, rate*rtt.Seconds(), flying, 2.5)
			require.LessOrEqual(t, len(s), int(rtt/time.Millisecond)+2, "it forgets")
		}
	}
}

func TestDeliveredAtRest(t *testing.T) {
	var s sendings
	start := time.Now()
	bytes, flying := s.delivered(start, time.Second, 0)
	require.Zero(t, bytes)
	require.Zero(t, flying)
	s.add(start, 5000, time.Second)
	bytes, flying = s.delivered(start, time.Second, 0)
	require.Zero(t, bytes, "it is on its way")
	require.Equal(t, 5000, flying)
	s.add(start.Add(time.Minute), 5000, time.Second)
	bytes, flying = s.delivered(start.Add(time.Minute), time.Second, 700)
	require.Equal(t, uint64(4300), bytes)
	require.Zero(t, flying)
	bytes, flying = s.delivered(start.Add(time.Minute), time.Second, 6000)
	require.Zero(t, bytes, "more lost than sent is no reason to panic")
	require.Zero(t, flying)
}
