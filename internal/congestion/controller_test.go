package congestion

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A session that shares the line with others gives it up when its priority becomes low, and takes
// its share when it is no longer low. It does not wait for the next test whether others are gone.
func TestPriorityChangesBesideOthers(t *testing.T) {
	c := New()
	s := Sample{RTT: 20 * time.Millisecond, MSS: 1448, Streams: 4, Backlog: 1 << 20, InFlight: 200_000}
	line := int64(10e6) // bytes/s, of ours
	update := func(p Priority) Decision {
		s.At += 25 * time.Millisecond
		s.Delivered += line / 40
		c.SetPriority(p)
		return c.Update(s)
	}
	for range 20 {
		update(Normal)
	}
	s.RTT, line = 40*time.Millisecond, 5e6 // the queue of others, however little is sent
	for range 400 {
		if update(Normal).State == Compete {
			break
		}
	}
	require.Equal(t, Compete, update(Normal).State)
	c.loss.lossy = true // a session that yields uses cubic nevertheless: BBR sends single segments then
	low := update(Low)
	require.Equal(t, Gentle, low.Control)
	require.Equal(t, Yield, low.State)
	require.Less(t, low.Rate, 1e6, "bytes/s of 5 million")
	require.Equal(t, Compete, update(Normal).State)
}

// More streams carry what few cannot, and the longer the path, the more it takes.
func TestGentleStreams(t *testing.T) {
	for _, c := range []struct {
		rate float64 // bit/s
		rtt  time.Duration
		loss float64
		want int
	}{
		{1e9, 50 * time.Millisecond, 1e-4, 53},
		{1e9, 50 * time.Millisecond, 1e-6, 2},
		{100e6, 20 * time.Millisecond, 1e-4, 3},
		{100e6, 200 * time.Millisecond, 1e-4, 9},
	} {
		require.Equal(t, c.want, gentleStreams(c.rate/8, c.rtt, 1448, c.loss))
	}
}
