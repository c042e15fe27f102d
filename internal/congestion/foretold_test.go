package congestion

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// grow gives con samples of a path on which what is delivered doubles in each round trip, from a rate in
// bytes/s on, up to that of the line. It returns the last decision.
func grow(con *Controller, s *Sample, rtt time.Duration, rate, line float64, until time.Duration) (d Decision) {
	total := func(at time.Duration) float64 { // bytes, by the integral of the rate
		trips := at.Seconds() / rtt.Seconds()
		full := math.Log2(line / rate)
		grown := rate * rtt.Seconds() / math.Ln2 * (math.Exp2(min(trips, full)) - 1)
		return grown + line*rtt.Seconds()*max(0, trips-full)
	}
	begun := s.At
	for s.At < begun+until {
		s.At += con.every()
		s.Delivered = int64(total(s.At - begun))
		s.InFlight = int64(total(s.At-begun+rtt)) - s.Delivered
		d = con.Update(*s)
	}
	return d
}

// TestForetold: the rate of the start is twice what arrives by then, wherever it is known only later.
func TestForetold(t *testing.T) {
	for _, rtt := range []time.Duration{30 * time.Millisecond, 50 * time.Millisecond, 120 * time.Millisecond, 500 * time.Millisecond} {
		con := New()
		s := Sample{MSS: 1448, Streams: 16, RTT: rtt, Backlog: 1e7}
		const rate = 1e6
		d := grow(con, &s, rtt, rate, 1e12, 6*rtt)
		require.Equal(t, Startup, d.State)
		now := rate * math.Exp2(s.At.Seconds()/rtt.Seconds())
		require.InEpsilon(t, 2.2*now, d.Rate, 0.25, "%v", rtt)
	}
}

// TestEvery: decisions follow one another faster in the start of a far path, and always at low priority on a
// short one.
func TestEvery(t *testing.T) {
	for _, c := range []struct {
		rtt      time.Duration
		priority Priority
		want     time.Duration
		later    time.Duration
	}{
		{5 * time.Millisecond, Normal, Every, Every},
		{5 * time.Millisecond, Low, LeastEvery, LeastEvery},
		{50 * time.Millisecond, Normal, LeastEvery, Every},
		{120 * time.Millisecond, Normal, 15 * time.Millisecond, Every},
		{120 * time.Millisecond, Low, Every, Every},
		{500 * time.Millisecond, Normal, Every, Every},
	} {
		con := New()
		con.SetPriority(c.priority)
		con.Update(Sample{MSS: 1448, Streams: 4}) // nothing is known
		s := Sample{At: Every, MSS: 1448, Streams: 4, RTT: c.rtt, Delivered: 1448}
		require.Equal(t, c.want, con.Update(s).Every, "%+v", c)
		con.enter(Cruise, s.At)
		require.Equal(t, c.later, con.decision().Every)
	}
}

// TestSilentDrain: while the peer is late, the rate of the line is not what arrives.
func TestSilentDrain(t *testing.T) {
	const line, rtt, mss = 100e6, 50 * time.Millisecond, 1448
	con := New()
	s := Sample{MSS: mss, Streams: 16, RTT: rtt, Backlog: 1e7, InFlight: 8e6, Delivered: 1e6}
	con.model.base, con.line, con.rate = rtt, line, 2*line
	con.Update(s)
	con.enter(Drain, s.At)
	for range 12 { // nothing arrives for more than leastWindow
		s.At += LeastEvery
		con.Update(s)
	}
	s.At += LeastEvery
	s.Delivered += 10 * mss
	con.Update(s)
	require.GreaterOrEqual(t, con.line, 0.99*line)
}
