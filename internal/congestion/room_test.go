package congestion

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOverdue: packets in a queue are overdue, and so are all that were sent while a host was late with its
// acknowledgements. Nothing is overdue any more when these come, all at once.
func TestOverdue(t *testing.T) {
	const tick, trip, rate = 25 * time.Millisecond, 60 * time.Millisecond, 1e6
	overdue := func(acked func(at time.Duration) time.Duration) time.Duration {
		m := model{base: trip}
		for at := time.Duration(0); at <= time.Second; at += tick {
			delivered := int64(rate * max(0, acked(at)).Seconds())
			m.past = append(m.past, Sample{At: at, Delivered: delivered, InFlight: int64(rate*at.Seconds()) - delivered})
		}
		return seconds(m.overdue(m.past[len(m.past)-1]) / rate)
	}
	for _, c := range []struct {
		what  string
		acked func(at time.Duration) time.Duration // when the newest packet that is acknowledged was sent
		want  time.Duration
	}{
		{"no queue", func(at time.Duration) time.Duration { return at - trip }, 0},
		{"a queue", func(at time.Duration) time.Duration { return at - trip - 8*time.Millisecond }, 8 * time.Millisecond},
		{"late", func(at time.Duration) time.Duration { return min(at, 980*time.Millisecond) - trip }, 20 * time.Millisecond},
		{"all at once", func(at time.Duration) time.Duration {
			if at < time.Second {
				at = min(at, 960*time.Millisecond)
			}
			return at - trip
		}, 0},
	} {
		require.InDelta(t, c.want.Seconds(), overdue(c.acked).Seconds(), 0.0001, c.what)
	}
}

// TestGive: a session of low priority that finds others yields. If the line carries as much of its packets
// the next time, there are no others: the line has become slower.
func TestGive(t *testing.T) {
	gives := func(got ...float64) *Controller {
		c := New()
		c.SetPriority(Low)
		c.model.base = 50 * time.Millisecond
		for _, rate := range got {
			c.state, c.line, c.model.delivered = Cruise, 10e6, rate
			c.give(Sample{At: time.Second, MSS: 1448})
		}
		return c
	}
	require.Equal(t, Yield, gives(3e6).state)
	c := gives(3e6, 3.1e6)
	require.Equal(t, Cruise, c.state)
	require.InDelta(t, 3.1e6, c.line, 1)
	require.Less(t, c.rate, 3e6/2, "the queue has to go")
	c = gives(3e6, 2e6)
	require.Equal(t, Yield, c.state)
	require.InDelta(t, 10e6, c.line, 1)
}

// TestQuietAim: on short paths a queue is short, too, and one of a session of low priority is half of it at the most.
func TestQuietAim(t *testing.T) {
	for base, want := range map[time.Duration][2]float64{ // ms
		5 * time.Millisecond:   {1.5, 0.75},
		20 * time.Millisecond:  {2, 0.75},
		25 * time.Millisecond:  {2.5, 0.75},
		60 * time.Millisecond:  {3, 1.5},
		200 * time.Millisecond: {4, 2},
	} {
		c := New()
		c.model.base = base
		require.InDelta(t, want[0], c.least(Sample{}).Seconds()*1e3, 0.001, base)
		c.priority = Low
		require.InDelta(t, want[1], c.least(Sample{}).Seconds()*1e3, 0.001, base)
	}
}

// TestFloorAim: a session that yields ignores the noise of hosts, but not a queue of others that is full time and again.
func TestFloorAim(t *testing.T) {
	for _, c := range []struct{ base, brim, want float64 }{ // ms
		{5, 0, 0.75},
		{5, 0.8, 0.48},
		{50, 0, 4.167},
		{100, 10, 2},
		{100, 30, 5},
		{100, 100, 8},
	} {
		x := New()
		x.priority, x.state, x.model.base = Low, Yield, seconds(c.base/1e3)
		x.others.brim = seconds(c.brim / 1e3)
		require.InDelta(t, c.want, x.floorAim(Sample{}).Seconds()*1e3, 0.01, c)
	}
}
