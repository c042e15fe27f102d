package congestion

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// recorded feeds a Recorder with steps of 25 ms, as a Controller of that priority would.
func recorded(p Priority, steps int, step func(i int, s *Sample, m *model, d *Decision)) Stats {
	c := New()
	c.SetPriority(p)
	c.model.base = 50 * time.Millisecond
	var r Recorder
	s := Sample{MSS: 1000, RTT: 50 * time.Millisecond}
	d := Decision{State: Cruise}
	for i := range steps {
		s.At += 25 * time.Millisecond
		step(i, &s, &c.model, &d)
		r.Add(c, s, d)
	}
	return r.Stats(c)
}

func TestRecorderTimes(t *testing.T) {
	stats := recorded(Low, 400, func(i int, _ *Sample, m *model, d *Decision) {
		m.queue = 2 * time.Millisecond
		switch {
		case i < 10:
			m.queue = 20 * time.Millisecond
		case i < 100:
		case i < 140:
			d.State = Compete
			m.queue = 300 * time.Millisecond // it is that of others
		case i < 300:
			d.State = Yield
		default:
			d.State = Cruise
		}
	})
	require.Equal(t, Low, stats.Priority)
	require.Equal(t, time.Second, stats.Shared)
	require.Equal(t, 4*time.Second, stats.Yielded)
	require.InEpsilon(t, 2*time.Millisecond, stats.Queue, 0.05)
	require.Equal(t, 20*time.Millisecond, stats.QueueMost)
}

func TestRecorderQueue(t *testing.T) {
	for _, delay := range []time.Duration{0, 50 * time.Microsecond, 150 * time.Microsecond, time.Millisecond, 77 * time.Millisecond, 3 * time.Second, time.Minute} {
		stats := recorded(Normal, 10, func(_ int, _ *Sample, m *model, _ *Decision) { m.queue = delay })
		switch {
		case delay <= leastDelay:
			require.Zero(t, stats.Queue)
		case delay < 18*time.Second:
			require.InEpsilon(t, delay, stats.Queue, 0.05)
		}
		require.Equal(t, delay, stats.QueueMost)
	}
	require.Equal(t, Stats{}, new(Recorder).Stats(New()))
}

func TestRecorderLosses(t *testing.T) {
	stats := recorded(High, 300, func(i int, s *Sample, m *model, d *Decision) {
		s.Lost += 250 // a segment in four steps
		m.queue = 0
		switch {
		case i < 100: // nothing to be seen
		case i < 200:
			m.queue = 30 * time.Millisecond
		default:
			d.State = Compete
		}
	})
	require.Equal(t, int64(25), stats.LostLine)
	require.Equal(t, int64(25), stats.LostOwn)
	require.Equal(t, int64(25), stats.LostOthers)
	late := recorded(Normal, 100, func(i int, s *Sample, m *model, _ *Decision) {
		m.queue = 0
		if i < 10 {
			m.queue = 30 * time.Millisecond
		}
		if i == 13 { // 100 ms after the queue was long
			s.Lost += 7000
		}
	})
	require.Equal(t, int64(7), late.LostOwn, "a loss shows a round trip later")
}

// A burst of losses at the end of the search for the rate proves no policer, and is lost in the
// queue that shows a moment later.
func TestRecorderBurst(t *testing.T) {
	run := func(queue time.Duration) Stats {
		return recorded(Normal, 400, func(i int, s *Sample, m *model, d *Decision) {
			d.State, m.queue = Startup, 0
			sent := int64(25e6 / 40)
			if i >= 25 && i < 30 {
				s.Lost += sent / 5
				sent -= sent / 5
			}
			if i >= 29 {
				d.State = Cruise
			}
			if i == 31 {
				m.queue = queue
			}
			s.Delivered += sent
		})
	}
	own := run(15 * time.Millisecond)
	require.Zero(t, own.Policed)
	require.Greater(t, own.LostOwn, own.LostLine)
	none := run(0)
	require.Zero(t, none.LostOwn)
	require.Equal(t, int64(625), none.LostLine)
}

// A session that stays below a policer it has found loses hardly anything. The time counts, unless the path has
// a queue, also for as long as nobody knew that it was that of others.
func TestRecorderStaysBelowPolicer(t *testing.T) {
	const base = 50 * time.Millisecond
	for _, x := range []struct {
		found float64
		queue time.Duration
		want  time.Duration
	}{
		{1e6, time.Millisecond, 2 * time.Second},
		{0, time.Millisecond, 0},
		{1e6, base, 0},
	} {
		c := New()
		c.model.base, c.model.queue = base, x.queue
		c.loss.policed, c.loss.ceilUntil = x.found, time.Minute
		var r Recorder
		s := Sample{MSS: 1000, RTT: base + x.queue}
		for range 80 {
			s.At += 25 * time.Millisecond
			s.Delivered += 25e3
			r.Add(c, s, Decision{State: Cruise})
		}
		require.Equal(t, x.want, r.Stats(c).Policed, "%+v", x)
	}
}
