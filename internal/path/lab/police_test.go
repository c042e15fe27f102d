package lab

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBucket(t *testing.T) {
	const packet = 1538
	type arrival struct {
		at   int64
		segs int
		pass int
	}
	for name, test := range map[string]struct {
		rate     int64
		burst    float64
		arrivals []arrival
	}{
		"no rate":          {0, 0, []arrival{{0, 40, 40}, {0, 40, 40}}},
		"burst":            {12_304_000, 10 * packet, []arrival{{0, 8, 8}, {0, 8, 2}, {0, 1, 0}}},
		"fills at rate":    {12_304_000, 10 * packet, []arrival{{0, 10, 10}, {1 * ms, 2, 1}, {4 * ms, 9, 3}, {9 * ms, 9, 5}, {99 * ms, 44, 10}}},
		"less than a full": {12_304_000, 10, []arrival{{0, 2, 1}, {ms / 2, 1, 0}, {1 * ms, 1, 1}}},
	} {
		var b bucket
		b.configure(test.rate, test.burst)
		for i, a := range test.arrivals {
			tr := parseTrain(trainOf(a.segs))
			require.Equal(t, a.pass, b.pass(a.at, &tr, a.segs), "%s, %d", name, i)
		}
	}
}

// What the policer drops takes no room in the queue, and what passes adds no delay.
func TestLinePolice(t *testing.T) {
	ln := testLine(t, Link{Rate: 1e9, RTT: 10 * time.Millisecond, Police: 12_304_000, PoliceBurst: 4 * 1538})
	ln.offer(0, trainOf(40))
	got := ln.take(never - 1)
	c := ln.count.snapshot()
	require.Equal(t, Counters{Sent: 40, Delivered: 4, Bytes: 4 * 1500, Dropped: 36, Policed: 36}, c)
	require.Equal(t, 5*ms+4*12304, got[len(got)-1].at)
}
