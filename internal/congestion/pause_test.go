package congestion_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/congestion/simulate"
)

// TestPauseInStart: a host that gets no processor while the queue of the start flows off is no slow line. The paths
// and pauses are those of -seed.
func TestPauseInStart(t *testing.T) {
	t.Parallel()
	t.Logf("seed %d", *seed)
	random := rand.New(rand.NewPCG(*seed, 0))
	for range 100 {
		l := []struct{ rate, rtt float64 }{{32, 15}, {100, 20}}[random.IntN(2)]
		p := line(l.rate*(0.7+0.6*random.Float64()), time.Duration(l.rtt)*ms, []float64{0.25, 1}[random.IntN(2)])
		pause := simulate.Pause{
			From:  time.Duration(100+random.IntN(100)) * ms,
			For:   time.Duration(200+random.IntN(300)) * ms,
			Where: []simulate.Side{simulate.Host, simulate.Peer}[random.IntN(2)],
		}
		end := pause.From + pause.For
		s := simulate.Scenario{
			Path: p, For: end + 4*time.Second, Seed: random.Uint64(),
			Flows: flows(simulate.Flow{
				Kind: simulate.Session, Count: 4 + random.IntN(13), Pauses: []simulate.Pause{pause},
			}),
		}
		r := simulate.Run(s)
		part := r.Goodput(0, end+time.Second, s.For) / r.Carries(end+time.Second, s.For)
		require.Greater(t, part, 0.4, "%.1f Mbit/s × %v, queue %d, %d streams, %v pauses at %v for %v",
			p.Rate/1e6, p.RTT, p.Queue, s.Flows[0].Count, pause.Where, pause.From, pause.For)
	}
}

// TestFallsForAMoment: a line falls to a tenth for two seconds. Many streams then send so few packets that what is
// delivered is uneven. The session takes more, step by step, although it never sends more than the most of that.
func TestFallsForAMoment(t *testing.T) {
	t.Parallel()
	p := line(32, 15*ms, 4)
	p.Changes = []simulate.Change{{At: time.Second, Rate: p.Rate / 10}, {At: 3 * time.Second, Rate: p.Rate}}
	s := simulate.Scenario{Path: p, For: 18 * time.Second, Seed: 1, Flows: flows(simulate.Flow{Kind: simulate.Session, Count: 16})}
	from := 13 * time.Second
	r := simulate.Run(s)
	require.Greater(t, r.Goodput(0, from, s.For)/r.Carries(from, s.For), 0.9)
}

// TestPauseEndsStart: a pause while the start still looks for the rate of the line is no queue.
func TestPauseEndsStart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate     float64 // Mbit/s
		rtt      time.Duration
		queue    float64 // BDP
		at, long time.Duration
		seed     uint64
	}{
		{281, 80 * ms, 1, 558 * ms, 362 * ms, 714},
		{246, 80 * ms, 4, 556 * ms, 438 * ms, 107},
	} {
		s := simulate.Scenario{
			Path: line(c.rate, c.rtt, c.queue), For: c.at + c.long + 6*time.Second, Seed: c.seed,
			Flows: flows(simulate.Flow{
				Kind: simulate.Session, Pauses: []simulate.Pause{{From: c.at, For: c.long, Where: simulate.Peer}},
			}),
		}
		from := c.at + c.long + time.Second
		r := simulate.Run(s)
		require.Greater(t, r.Goodput(0, from, s.For)/r.Carries(from, s.For), 0.85, "%v", c)
	}
}
