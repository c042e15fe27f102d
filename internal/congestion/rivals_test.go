package congestion

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPushed: much loss with little of the line shows others who do not yield to it, and so does less loss where
// gentle streams would not get the session's part in spite of it.
func TestPushed(t *testing.T) {
	const slow, fast = 3e6, 100e6 // bytes/s
	for _, x := range []struct {
		what string
		line float64
		part float64 // of it
		loss float64
		set  func(*Controller, *Sample)
		want bool
	}{
		{"a twentieth is lost", slow, 0.1, 0.05, nil, true},
		{"a fiftieth, of a slow line", slow, 0.1, 0.02, nil, false},
		{"a fiftieth, of a fast line", fast, 0.1, 0.02, nil, true},
		{"next to nothing, of a fast line", fast, 0.1, 1e-5, nil, false},
		{"it has its part", slow, 0.4, 0.05, nil, false},
		{"loss by chance", slow, 0.1, 0.05, func(c *Controller, _ *Sample) { c.loss.random = 0.04 }, false},
		{"it has priority", slow, 0.1, 0.05, func(c *Controller, _ *Sample) { c.priority = High }, false},
		{"the host has no quick streams", slow, 0.1, 0.05, func(_ *Controller, s *Sample) { s.Gentle = true }, false},
		{"siblings", slow, 0.1, 0.05, func(c *Controller, s *Sample) { c.siblings = siblings{Siblings: Siblings{Sessions: 2}, at: s.At} }, false},
		{"QUIC", slow, 0.1, 0.05, func(_ *Controller, s *Sample) { s.Began = 1e5 }, false},
	} {
		c, s := New(), Sample{At: time.Minute, RTT: 40 * time.Millisecond, MSS: 1448}
		c.doubts.best, c.model.steady = x.line, x.part*x.line
		if x.set != nil {
			x.set(c, &s)
		}
		require.Equal(t, x.want, c.pushed(s, x.loss), x.what)
	}
}

// TestResists: quick streams begin with the session's part. They take more while others lose no more for it, less
// otherwise, and gentle ones go on once little is lost.
func TestResists(t *testing.T) {
	const line, mss = 12e6, 1448
	c := New()
	c.state, c.doubts.best, c.others.flows, c.others.most = Compete, line, 1, line
	s := Sample{At: time.Second, RTT: 40 * time.Millisecond, MSS: mss}
	second := func(loss, part float64) bool { // of the line
		c.resists(s)
		s.At += time.Second
		s.Delivered += int64(part * line)
		s.Lost += int64(part * line * loss / (1 - loss))
		c.model.steady = part * line
		return c.resists(s)
	}
	bound := func() float64 { return c.others.most / line }

	require.False(t, second(0.001, 0.1))
	require.True(t, second(0.06, 0.1))
	require.Equal(t, rivalStreams, c.others.flows)
	require.Greater(t, c.others.quick, s.At)
	require.InDelta(t, mostPart, bound(), 1e-6)

	require.True(t, second(0.06, 0.1)) // they do not use it
	require.InDelta(t, mostPart, bound(), 1e-6)
	for range 3 {
		require.True(t, second(0.06, bound()))
	}
	require.InDelta(t, halfShare, bound(), 1e-6)
	c.doubts.alone = line // they came later: it carries no more
	for range 3 {
		require.True(t, second(0.15, bound()))
	}
	require.InDelta(t, mostPart, bound(), 1e-6)
	require.True(t, second(0.06, bound()))
	require.InDelta(t, mostPart, bound(), 1e-6)

	require.True(t, second(0.005, bound())) // gentle streams would not hold it
	require.True(t, second(1e-7, bound()))  // a pause of theirs
	require.False(t, second(1e-7, bound()))
	require.LessOrEqual(t, c.others.quick, s.At)

	until := s.At + mostRival + 3*time.Second // then gentle streams are tried again
	require.True(t, second(0.06, 0.1))
	for second(0.06, bound()) {
		require.Less(t, s.At, until)
	}
	require.True(t, second(0.06, 0.1))
	c.siblings.Sessions, c.siblings.at = 2, s.At
	require.False(t, second(0.06, bound()))
}

// TestBeaten: a session that loses much for two seconds, and has little of what the line once carried, is not alone.
// That begins to count with its state, and not while it sends again what an outage lost.
func TestBeaten(t *testing.T) {
	const trip, began = 20 * time.Millisecond, 5 * time.Second
	for _, x := range []struct {
		what string
		set  func(*Controller, *Sample)
		want time.Duration // after it began; 0 is never
	}{
		{"much loss, little of the line", func(*Controller, *Sample) {}, leastRest},
		{"less loss", func(c *Controller, _ *Sample) { c.model.losses = 0.01 }, 0},
		{"its part of the line", func(c *Controller, _ *Sample) { c.line = 5e6 }, 0},
		{"a policer", func(c *Controller, _ *Sample) { c.loss.policed = c.line }, 0},
		{"low priority yields", func(c *Controller, _ *Sample) { c.priority = Low }, 0},
		{"the host has no quick streams", func(_ *Controller, s *Sample) { s.Gentle = true }, 0},
		{"after an outage", func(c *Controller, _ *Sample) { c.outage.deaf = began + time.Second }, time.Second + leastRest},
	} {
		c, s := New(), Sample{}
		c.doubts.best, c.line, c.model.losses, c.since = 1e7, 1e6, 0.1, began
		x.set(c, &s)
		var got time.Duration
		for s.At = began; s.At < began+10*time.Second && got == 0; s.At += trip {
			if c.beaten(s, trip) {
				got = s.At - began
			}
		}
		require.InDelta(t, x.want.Seconds(), got.Seconds(), 0.05, x.what)
	}
}
