package plan

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A page of 265 kB is 184 segments. Its flights over 100 ms, by the initial windows of both ends,
// and what to raise.
func TestLegInitialWindows(t *testing.T) {
	for _, c := range []struct {
		cwnd, rwnd, trips int
		limiter           Limiter
		cwndTo, rwndTo    int
	}{
		{3, 3, 6, InitCwnd, 32, 44}, // 3, 6, 12, 24, 48, 91
		{3, 10, 6, InitCwnd, 32, 44},
		{3, 44, 6, InitCwnd, 32, 0},
		{10, 3, 6, InitRwnd, 32, 44}, // 3, 9 by initrwnd; 19, 38, 76, 39
		{10, 10, 5, InitCwnd, 32, 44},
		{10, 44, 5, InitCwnd, 32, 0}, // 10, 20, 40, 80, 34
		{32, 3, 5, InitRwnd, 0, 44},  // 3, 9, 27, 59, 86
		{32, 10, 4, InitRwnd, 0, 44},
		{32, 44, 3, InitCwnd, 0, 0}, // 32, 64, 88
	} {
		l := Leg{Path: ethernet(1e9, 100*ms), Cwnd: c.cwnd, Rwnd: c.rwnd}
		got, raise := l.Carry(265_000), l.Raise(265_000)
		t.Log(c.cwnd, c.rwnd, got, raise)
		require.Equal(t, c.trips, got.Trips, "%+v", c)
		require.Equal(t, c.limiter, got.Limiter, "%+v", c)
		require.Equal(t, c.cwndTo, raise.Cwnd, "%+v", c)
		require.Equal(t, c.rwndTo, raise.Rwnd, "%+v", c)
		require.LessOrEqual(t, raise.Time, 305*ms, "%+v", c)
	}
}

func TestLegLimiters(t *testing.T) {
	for _, c := range []struct {
		name    string
		leg     Leg
		size    int64
		seconds float64
		limiter Limiter
		raise   Raise
	}{
		{"one flight", Leg{Path: ethernet(1e9, 50*ms)}, 1000, 0.05, RoundTrip, Raise{}},
		{"a long transfer", Leg{Path: ethernet(1e8, 20*ms)}, 1e9, 85.1, LineRate, Raise{}},
		{"64 KiB in flight", Leg{Path: ethernet(1e9, 10*ms), Window: 64 << 10}, 4_700_000_000, 717.4, Window, Raise{Window: 1_250_000}},
		{"loss", Leg{Path: Path{Rate: 1e9, RTT: 50 * ms, MTU: 1500, Loss: 1e-3}}, 1e9, 892, Loss, Raise{BBR: true}},
		{"BBR", Leg{Path: Path{Rate: 1e9, RTT: 50 * ms, MTU: 1500, Loss: 1e-3}, Control: BBR}, 1e9, 8.94, LineRate, Raise{}},
	} {
		got, raise := c.leg.Carry(c.size), c.leg.Raise(c.size)
		require.InEpsilon(t, c.seconds, got.Time.Seconds(), 0.01, c.name)
		require.Equal(t, c.limiter, got.Limiter, c.name)
		raise.Time = 0
		require.Equal(t, c.raise, raise, c.name)
	}
}

func TestChain(t *testing.T) {
	first, last := Leg{Path: ethernet(1e9, 80*ms)}, Leg{Path: ethernet(1e8, 20*ms), Cwnd: 32, Window: 1 << 20}
	first.Path.Loss, last.Path.Loss = 0.01, 0.02
	c := Chain{first, last}
	require.InDelta(t, (first.Carry(1e6).Time + last.Carry(1e6).Time).Seconds(), c.Cold(1e6).Seconds(), 1e-6)
	require.Equal(t, last.Carry(1e6).Time, c.Cached(1e6))
	require.InDelta(t, (first.Carry(1e6).Time + 20*ms).Seconds(), c.Streamed(1e6).Seconds(), 1e-6)
	whole := c.Whole()
	require.InDelta(t, 0.0298, whole.Path.Loss, 1e-9)
	require.Equal(t, 100*ms, whole.Path.RTT)
	whole.Path.Loss, whole.Path.RTT = 0, 0
	require.Equal(t, Leg{Path: Path{Rate: 1e8, MTU: 1500}, Window: 1 << 20}, whole)
}

func anyLeg(t *rapid.T) Leg {
	p := anyTransfer(t)
	return Leg{
		Path: p.Path, Window: p.Window, Control: p.Control,
		Cwnd: rapid.IntRange(0, 1000).Draw(t, "cwnd"), Rwnd: rapid.IntRange(0, 1000).Draw(t, "rwnd"),
	}
}

// A larger window, a faster line or a shorter way never makes a leg slower, and whatever Raise
// proposes does what it says. Nothing takes less than a round trip and the line's own time.
func TestLegMonotone(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		l := anyLeg(r)
		size := rapid.Int64Range(1, 1<<50).Draw(r, "size")
		c := l.carry(size)
		was := c.seconds()
		require.False(r, math.IsNaN(was) || math.IsInf(was, 0))
		require.GreaterOrEqual(r, was*(1+1e-9), max(l.Path.RTT.Seconds(), float64(size)*8/l.Path.Goodput()))
		require.Positive(r, l.Carry(size).Trips)

		u := l
		raise := l.Raise(size)
		for _, set := range []struct {
			to   *int
			want int
		}{{&u.Cwnd, raise.Cwnd}, {&u.Rwnd, raise.Rwnd}} {
			if set.want > 0 {
				require.Greater(r, set.want, *set.to)
				*set.to = set.want
			}
		}
		if raise.Window > 0 {
			u.Window = raise.Window
		}
		if raise.BBR {
			u.Control = BBR
		}
		require.Equal(r, raise.Time, u.Carry(size).Time)
		after := u.carry(size)
		require.LessOrEqual(r, after.seconds(), was*(1+1e-9))
		rest := u.Raise(size)
		require.True(r, rest.Nothing(), "%+v, then %+v", raise, rest)
	})
}

func TestLegExtremes(t *testing.T) {
	l := Leg{Path: Path{Rate: 1, RTT: time.Hour, Loss: MaxLoss, MTU: MinMTU}, Window: 1, Cwnd: 1, Rwnd: 1}
	require.Equal(t, time.Duration(math.MaxInt64), l.Carry(math.MaxInt64).Time)
	require.Equal(t, time.Duration(math.MaxInt64), Chain{l, l}.Cold(math.MaxInt64))
	require.Positive(t, l.Carry(1).Time)
}
