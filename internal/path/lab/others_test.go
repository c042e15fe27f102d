package lab

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPingReport(t *testing.T) {
	var r PingReport
	require.Zero(t, r.Added(0.5))
	for i := range 100 {
		r.Trips = append(r.Trips, Trip{Added: time.Duration(99-i) * time.Millisecond})
	}
	require.Equal(t, 50*time.Millisecond, r.Added(0.5))
	require.Equal(t, 99*time.Millisecond, r.Added(0.99))
	require.Equal(t, 99*time.Millisecond, r.Added(1))
	require.Zero(t, r.Added(0))
}

// Pings never take much of a slow line.
func TestPingGap(t *testing.T) {
	for _, test := range []struct {
		up, down int64
		gap      time.Duration
		idle     time.Duration
	}{
		{1e9, 1e9, 20 * time.Millisecond, 50*time.Millisecond + 2*672*time.Nanosecond},
		{1e6, 16e6, 33600 * time.Microsecond, 50*time.Millisecond + (672+42)*time.Microsecond},
		{9600, 9600, 3500 * time.Millisecond, 190 * time.Millisecond},
	} {
		there, back := Link{Rate: test.up, RTT: 50 * time.Millisecond}, Link{Rate: test.down, RTT: 50 * time.Millisecond}
		require.Equal(t, test.gap, pingGap(there, back))
		require.Equal(t, test.idle, idleTrip(there, back))
	}
}

func TestLineCountsOthers(t *testing.T) {
	ln := testLine(t, Link{Rate: 1e9, Buffer: 10 * 1538})
	for _, c := range []struct {
		at   int64
		from byte
		segs int
	}{{0, 1, 6}, {0, 4, 6}, {1 * ms, 5, 2}, {2 * ms, 2, 3}} {
		pkt := trainOf(c.segs)
		copy(pkt[vnetLen+12:], []byte{10, 77, 0, c.from})
		ln.offer(c.at, pkt)
	}
	ln.take(never - 1)
	c := ln.count.snapshot()
	require.Equal(t, []int64{17, 2, 8, 2}, []int64{c.Sent, c.Dropped, c.OthersSent, c.OthersDropped})
}
