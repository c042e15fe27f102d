package lab

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPumpArrival(t *testing.T) {
	for _, test := range []struct {
		name                         string
		tick, now, empty, free, want int64 // µs
	}{
		{"after a wait for packets", 100, 1000, 1000, 0, 1000},
		{"halfway between two looks", 100, 1000, 900, 0, 950},
		{"halfway, whatever the line does", 100, 1000, 900, 990, 950},
		{"halfway, on a narrow line", 400, 2000, 1300, 1990, 1650},
		{"held up, the line is idle: not before the last look", 100, 9000, 1000, 500, 1000},
		{"held up, the line became free meanwhile", 100, 9000, 1000, 4000, 4000},
		{"held up, the line is busy", 100, 9000, 1000, 12000, 9000},
	} {
		p := pump{line: &line{tick: test.tick * us, free: test.free * us}, empty: test.empty * us}
		require.Equal(t, test.want*us, p.arrival(test.now*us), test.name)
	}
}

// A pump looks seldom where a line is narrow, but often enough for its delay.
func TestPumpTick(t *testing.T) {
	for _, test := range []struct {
		rate int64
		rtt  time.Duration
		want int64 // µs
	}{
		{1e9, 50 * time.Millisecond, 100}, {25e6, 120 * time.Millisecond, 246}, {1e6, 100 * time.Millisecond, 250},
		{1e6, 12800 * time.Microsecond, 200}, {1e6, time.Millisecond, 100},
	} {
		ln := testLine(t, Link{Rate: test.rate, RTT: test.rtt})
		require.Equal(t, test.want, ln.tick/us, "%d bit/s, %v", test.rate, test.rtt)
	}
}

// What gathered while the thread was held up does not overflow the queue, if the line could have
// carried it. What is more than that does.
func TestPumpHeldUp(t *testing.T) {
	for _, test := range []struct {
		packets int
		dropped int64
	}{{80, 0}, {87, 0}, {95, 5}} {
		ln := testLine(t, Link{Rate: 1e8, Buffer: 10 * 1538})
		p := pump{line: ln, empty: 1 * ms}
		for range test.packets { // 10 ms are 81.3 packets
			ln.offer(p.arrival(11*ms), segmentOf(1448, 0))
		}
		require.InDelta(t, test.dropped, ln.count.dropped.Load(), 2, "%d packets", test.packets)
	}
}
