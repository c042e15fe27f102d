package congestion

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

// connect gives s the SYNs of some streams over a line with a rate in bit/s. The SYNs leave some time
// apart; late delays the answers of single ones.
func connect(s *Start, rate float64, rtt, apart time.Duration, streams int, late func(i int) time.Duration) {
	service := time.Duration(synSize * 8 / rate * float64(time.Second))
	free := time.Duration(0)
	for i := range streams {
		sent := time.Duration(i) * apart
		free = max(free, sent) + service
		s.Connected(sent, rtt+free-sent+late(i))
	}
}

func never(int) time.Duration { return 0 }

func TestStartBySYNs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate    float64
		rtt     time.Duration
		apart   time.Duration
		streams int
	}{
		{9600, 150 * ms, 50 * time.Microsecond, 1},
		{9600, 700 * ms, 50 * time.Microsecond, 1},
		{64e3, 700 * ms, 50 * time.Microsecond, 1},
		{128e3, 150 * ms, ms, 1},
		{512e3, 150 * ms, 50 * time.Microsecond, 1},
		{512e3, 150 * ms, ms / 2, 1},
		{512e3, 700 * ms, 50 * time.Microsecond, 3},
		{1e6, 700 * ms, 50 * time.Microsecond, 5},
		{2e6, 20 * ms, 100 * time.Microsecond, 16},
		{10e6, 20 * ms, 50 * time.Microsecond, 16},
		{1e9, 100 * ms, 50 * time.Microsecond, 16},
		{1e9, 100 * ms, 300 * time.Microsecond, 16},
		{1e10, 10 * ms, 20 * time.Microsecond, 16},
	} {
		t.Run(fmt.Sprintf("%.0f bit per s, %v, %v apart", c.rate, c.rtt, c.apart), func(t *testing.T) {
			t.Parallel()
			var s Start
			connect(&s, c.rate, c.rtt, c.apart, 17, never)
			require.Equal(t, c.streams, s.Streams(16))
			require.LessOrEqual(t, s.Rate(), c.rate/8*1.01, "a lower bound")
			if c.streams < 16 {
				require.InEpsilon(t, c.rate/8, s.Rate(), 0.1)
			}
		})
	}
}

func TestStartKnowsTooLittle(t *testing.T) {
	t.Parallel()
	var s Start
	require.Zero(t, s.Rate())
	require.Equal(t, 1, s.Streams(16))
	connect(&s, 1e9, 50*ms, ms/20, trainLeast, never)
	require.Equal(t, 1, s.Streams(16))
	s.Connected(trainLeast*ms/20, 50*ms)
	require.Equal(t, 16, s.Streams(16))
}

// Some SYNs are lost, and some leave late: the others show that the line is fast.
func TestStartOnBusyHosts(t *testing.T) {
	t.Parallel()
	var s Start
	connect(&s, 1e9, 50*ms, ms/20, 17, func(i int) time.Duration {
		if i%8 > 4 {
			return time.Second
		}
		return 0
	})
	require.Equal(t, 16, s.Streams(16))

	s = Start{}
	for i := range 17 {
		s.Connected(time.Duration(i/6)*20*ms+time.Duration(i)*ms/20, 50*ms)
	}
	require.Equal(t, 16, s.Streams(16))
}

// A radio delays packets by some ms. Then the larger packets of TLS show that the line is fast.
func TestStartWithJitter(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 1000 {
		var s Start
		jitter := func(int) time.Duration { return time.Duration(random.Int64N(int64(15 * ms))) }
		connect(&s, 1e8, 50*ms, ms/20, 17, jitter)
		s.Answered(60*ms, 60*ms+50*ms+jitter(0))
		require.Equal(t, 16, s.Streams(16))
	}
}

func TestStartByFirstFlights(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flights int
		took    time.Duration // beyond the RTT, from the first flight to the last answer
		rtt     time.Duration
		streams int
	}{
		{1, 3200 * ms, 150 * ms, 1}, // 9.6 kbit/s
		{1, 60 * ms, 150 * ms, 1},   // 512 kbit/s
		{1, 55 * ms, 700 * ms, 3},
		{2, 110 * ms, 700 * ms, 3},
		{1, 15 * ms, 20 * ms, 16}, // 2 Mbit/s
		{1, 0, 100 * ms, 16},
		{1, -5 * ms, 100 * ms, 16},
	} {
		t.Run(fmt.Sprintf("%d in %v at %v", c.flights, c.took, c.rtt), func(t *testing.T) {
			t.Parallel()
			s := Start{base: c.rtt}
			for i := range c.flights {
				s.Answered(0, c.rtt+c.took*time.Duration(i+1)/time.Duration(c.flights))
			}
			require.Equal(t, c.streams, s.Streams(16))
		})
	}
}

func TestStartByDelivery(t *testing.T) {
	t.Parallel()
	s := Start{base: 50 * ms}
	s.Delivered(9600 / 8)
	require.Equal(t, 1, s.Streams(16))
	s.Delivered(1e8 / 8)
	require.Equal(t, 16, s.Streams(16))
	s.Delivered(1e6 / 8)
	require.Equal(t, 16, s.Streams(16), "less delivered later is no proof of a narrow line")
}

func TestJoined(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate float64 // bit/s
		rtt  time.Duration
		most int
		want int
	}{
		{math.Inf(1), 15 * ms, 16, 16},
		{10e6, 15 * ms, 16, 2},
		{10e6, 15 * ms, 1, 1},
		{100e6, 15 * ms, 16, 13},
		{1e9, 15 * ms, 16, 16},
		{1e6, 1500 * ms, 16, 13},
	} {
		require.Equal(t, c.want, Joined(c.rate/8, c.rtt, 1448, c.most), "%v", c)
	}
}

func TestBegin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		carries float64 // bit/s
		rtt     time.Duration
		most    int
		want    int
	}{
		{0, 15 * ms, 16, 8}, // nothing is known: as for 60 Mbit/s
		{0, 2 * ms, 16, 4},
		{0, 50 * ms, 16, 16},
		{0, 15 * ms, 3, 3},
		{21e6, 15 * ms, 16, 8}, // a host may need as long
		{7e6, 60 * ms, 16, 4},
		{7e6, 600 * ms, 16, 16},
		{3e6, 30 * ms, 16, 2},
		{3e6, 30 * ms, 1, 1},
	} {
		require.Equal(t, c.want, Begin(c.carries/8, c.rtt, 1448, c.most), "%v", c)
	}
}
