package lab

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPumpArrival(t *testing.T) {
	for _, test := range []struct {
		name                   string
		now, empty, free, want int64 // µs
	}{
		{"after a wait for packets", 1000, 1000, 0, 1000},
		{"halfway between two looks", 1000, 900, 0, 950},
		{"halfway, whatever the line does", 1000, 900, 990, 950},
		{"held up, the line is idle: not before the last look", 9000, 1000, 500, 1000},
		{"held up, the line became free meanwhile", 9000, 1000, 4000, 4000},
		{"held up, the line is busy", 9000, 1000, 12000, 9000},
	} {
		p := pump{line: &line{free: test.free * us}, empty: test.empty * us}
		require.Equal(t, test.want*us, p.arrival(test.now*us), test.name)
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
