package quic

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
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

// While the peer is silent nothing is acknowledged, however long ago it was sent.
func TestDeliveredInSilence(t *testing.T) {
	const rtt = 100 * time.Millisecond
	var l link
	s := quic.ConnectionStats{LatestRTT: rtt, SmoothedRTT: rtt, CongestionWindow: 1 << 20}
	now := time.Now()
	step := func(heard bool) (delivered, flying int) {
		now = now.Add(25 * time.Millisecond)
		s.PacketsSent += 10
		s.BytesSent += 10 * (mss + headers)
		if heard {
			s.PacketsReceived++
		}
		i := l.takeLocked(now, s)
		return int(i.Delivered), i.Flying
	}
	var before, after, flying int
	for range 40 {
		before, flying = step(true)
	}
	require.Equal(t, 360, before, "all but the last round trip")
	require.Equal(t, 40*mss, flying)
	for range 40 {
		after, flying = step(false)
		require.LessOrEqual(t, after, before)
	}
	require.Equal(t, 440*mss, flying)
	for range 2 {
		after, flying = step(true)
	}
	require.Equal(t, 820-40, after)
	require.Equal(t, 40*mss, flying)
}

// The RTT of the handshake includes the work of both processors, so a shorter one counts at first.
func TestRTTOfHandshake(t *testing.T) {
	const short, long = 20 * time.Millisecond, 50 * time.Millisecond
	for _, c := range []struct {
		packets                uint64
		smoothed, latest, want time.Duration
	}{
		{settledAfter - 1, long, short, short},
		{settledAfter - 1, short, long, short},
		{settledAfter, long, short, long},
		{settledAfter, short, long, short},
	} {
		s := quic.ConnectionStats{PacketsReceived: c.packets, SmoothedRTT: c.smoothed, LatestRTT: c.latest}
		require.Equal(t, c.want, rttOf(&s), "%+v", c)
	}
}
