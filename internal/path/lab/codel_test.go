package lab

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// At a constant wait above the target, drops come as the control law says: the first after an
// interval, then after the interval divided by 1, √2, √3, and so on.
func TestCoDelControlLaw(t *testing.T) {
	var c codel
	var drops []int64
	for now := int64(0); now < 500*ms; now += ms / 10 {
		for c.drops(now, 6*ms, false) {
			drops = append(drops, now/ms)
		}
	}
	require.Equal(t, []int64{100, 200, 270, 328, 378, 423, 464}, drops)
}

func TestCoDel(t *testing.T) {
	type packet struct {
		at, sojourn int64 // ms
		few         bool
		drop        bool
	}
	for name, packets := range map[string][]packet{
		"below the target":          {{0, 4, false, false}, {100, 4, false, false}, {300, 4, false, false}},
		"above, shorter than 100ms": {{0, 9, false, false}, {99, 9, false, false}, {100, 4, false, false}, {101, 9, false, false}, {200, 9, false, false}},
		"above for 100ms":           {{0, 9, false, false}, {100, 9, false, true}, {100, 9, false, false}, {101, 9, false, false}},
		"one packet waits":          {{0, 90, true, false}, {100, 90, true, false}, {200, 90, true, false}},
		"below ends the dropping":   {{0, 9, false, false}, {100, 9, false, true}, {100, 9, false, false}, {150, 4, false, false}, {200, 9, false, false}, {299, 9, false, false}},
		// 2 drops, then a pause: dropping begins at the rate it had
		"memory": {
			{0, 9, false, false}, {100, 9, false, true}, {100, 9, false, false}, {200, 9, false, true}, {200, 9, false, false}, {271, 9, false, true}, {271, 9, false, false},
			{280, 1, false, false}, {281, 9, false, false}, {381, 9, false, true}, {381, 9, false, false}, {381 + 70, 9, false, false}, {381 + 71, 9, false, true},
		},
	} {
		var c codel
		for i, p := range packets {
			require.Equal(t, p.drop, c.drops(p.at*ms, p.sojourn*ms, p.few), "%s, packet %d", name, i)
		}
	}
}

// A sender that does not slow down is dropped ever more often. One just below the rate loses
// nothing.
func TestLineCoDel(t *testing.T) {
	run := func(gap int64) (Counters, int64) {
		ln := testLine(t, Link{Rate: 10e6, RTT: 20 * time.Millisecond, Buffer: 10e6, CoDel: true})
		for now := int64(0); now < 2000*ms; now += gap {
			ln.offer(now, segmentOf(1448, 0))
			ln.take(now)
		}
		ln.take(never - 1)
		return ln.count.snapshot(), ln.backlog
	}
	c, left := run(1_100_000) // of 1,230,400 ns that a packet takes
	require.Positive(t, c.Early)
	require.Equal(t, c.Dropped, c.Early)
	require.Equal(t, c.Sent, c.Delivered+c.Dropped)
	require.Zero(t, left)
	c, _ = run(1_250_000)
	require.Zero(t, c.Dropped)
}
