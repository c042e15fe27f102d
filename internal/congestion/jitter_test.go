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
