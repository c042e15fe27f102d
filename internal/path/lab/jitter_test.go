package lab

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The delay of a sparse flow is uniform between half the RTT minus and plus half the jitter.
func TestLineJitter(t *testing.T) {
	const n = 10_000
	ln := testLine(t, Link{Rate: 1e9, RTT: 50 * time.Millisecond, Jitter: 10 * time.Millisecond})
	quarters := make([]int, 4)
	for i := range int64(n) {
		now := i * 30 * ms
		ln.offer(now, segmentOf(0, 0))
		got := ln.take(now + 100*ms)
		require.Len(t, got, 1)
		off := got[0].at - now - 720 - 20*ms
		require.GreaterOrEqual(t, off, int64(0))
		require.LessOrEqual(t, off, 10*ms)
		quarters[min(3, off*4/(10*ms))]++
	}
	for _, q := range quarters {
		near(t, n, int64(q), 0.25, "quarter")
	}
}

// Packets of a dense flow keep their order, and their delays have the full range.
func TestLineJitterKeepsOrder(t *testing.T) {
	ln := testLine(t, Link{Rate: 1e8, RTT: 50 * time.Millisecond, Jitter: 10 * time.Millisecond})
	last, least, most := int64(0), int64(never), int64(0)
	const n = 20_000
	for i := range int64(n) {
		ln.offer(i*125*us, segmentOf(1448, uint32(i)))
	}
	got := ln.take(never - 1)
	require.Len(t, got, n)
	for i, a := range got {
		require.EqualValues(t, i, binary.BigEndian.Uint32(a.pkt[vnetLen+24:]))
		require.GreaterOrEqual(t, a.at, last)
		last = a.at
		delay := a.at - int64(i)*125*us - 123040
		least, most = min(least, delay), max(most, delay)
	}
	require.InDelta(t, 20*ms, least, float64(ms/2))
	require.InDelta(t, 30*ms, most, float64(ms/2))
}
