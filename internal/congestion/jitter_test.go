package congestion

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestJitters: only what is larger than the bursts of others, and loses nothing, is jitter. What the base holds of it is
// no delay above the base.
func TestJitters(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, c := range []struct {
		what                   string
		base, least, deviation time.Duration
		steady                 float64 // part of the deviation that all but a twentieth of what was seen exceed
		lost, random           float64 // shares
		want                   time.Duration
	}{
		{"jitter", 20 * ms, 20 * ms, 2 * ms, 0.5, 0, 0, 8 * ms},
		{"longer than the base", 20 * ms, 20 * ms, 6 * ms, 0.5, 0, 0, 20 * ms},
		{"the least RTT is unknown", 20 * ms, 0, 2 * ms, 0.5, 0, 0, 8 * ms},
		{"the base holds a part", 23 * ms, 20 * ms, 2 * ms, 0.5, 0, 0, 5 * ms},
		{"the base holds all", 30 * ms, 20 * ms, 2 * ms, 0.5, 0, 0, 0},
		{"bursts on a short path", 12 * ms, 12 * ms, 490 * time.Microsecond, 0.5, 0, 0, 0},
		{"more than these", 12 * ms, 12 * ms, 510 * time.Microsecond, 0.5, 0, 0, 2040 * time.Microsecond},
		{"bursts on a long path", 200 * ms, 200 * ms, 790 * time.Microsecond, 0.5, 0, 0, 0},
		{"others fill the queue", 20 * ms, 20 * ms, 2 * ms, 0.5, 0.02, 0, 0},
		{"bursts of others, with pauses", 20 * ms, 20 * ms, 2 * ms, 0.3, 0, 0, 0},
		{"the path loses as much", 20 * ms, 20 * ms, 2 * ms, 0.5, 0.02, 0.01, 8 * ms},
	} {
		x := New()
		x.SetPriority(Low)
		x.model.base, x.last.Least, x.loss.random = c.base, c.least, c.random
		x.others.jitter = jitter{deviation: c.deviation, least: scale(c.deviation, c.steady), lost: tally{lost: c.lost, sent: 1}}
		require.Equal(t, c.want, x.jitters(meanDeviations), c.what)
	}
}

// TestMayStartAgain: the start goes on only on a far path that lost nothing, beside no sibling, and not for ever.
func TestMayStartAgain(t *testing.T) {
	for _, x := range []struct {
		what string
		set  func(*Controller, *Sample)
		want bool
	}{
		{"a far path", func(*Controller, *Sample) {}, true},
		{"a near one", func(c *Controller, _ *Sample) { c.model.base = Every }, false},
		{"low priority", func(c *Controller, _ *Sample) { c.priority = Low }, false},
		{"something was lost", func(_ *Controller, s *Sample) { s.Lost = 1 }, false},
		{"siblings", func(c *Controller, s *Sample) { c.siblings.Sessions, c.siblings.at = 2, s.At }, false},
		{"in vain", func(c *Controller, _ *Sample) { c.opening.vain = mostVain }, false},
		{"it found more", func(c *Controller, _ *Sample) { c.opening.vain, c.line = mostVain, 1.3e6 }, true},
	} {
		c, s := New(), Sample{At: time.Second}
		c.model.base, c.line, c.opening.reached = 4*Every, 1e6, 1e6
		x.set(c, &s)
		require.Equal(t, x.want, c.mayStartAgain(s), x.what)
	}
}
