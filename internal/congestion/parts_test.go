package congestion_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fxfer/fxfer/internal/congestion"
	"github.com/fxfer/fxfer/internal/congestion/simulate"
)

// TestParts: what a session and others have of the line in its first 22 s, in the mean of several lines, queues
// and times at which it begins. A single run decides by luck where in its cycle the other flow is.
func TestParts(t *testing.T) {
	t.Parallel()
	cubic := simulate.Flow{Kind: simulate.Cubic}
	for _, c := range []struct {
		what        string
		priority    congestion.Priority
		others      []simulate.Flow
		comes       bool    // the others come later than the session
		share, rest float64 // means, at least
	}{
		{"normal beside one flow", congestion.Normal, flows(cubic), false, 0.4, 0.48},
		{"normal beside eight", congestion.Normal, times(8, cubic), false, 0.15, 0.6},
		{"one flow comes to normal", congestion.Normal, flows(cubic), true, 0.4, 0.44},
		{"high beside one flow", congestion.High, flows(cubic), false, 0.72, 0.15},
		{"one flow comes to high", congestion.High, flows(cubic), true, 0.75, 0.11},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			var runs errgroup.Group
			parts := make(chan [2]float64, 100)
			for _, p := range []simulate.Path{
				line(100, 20*ms, 1), line(100, 20*ms, 4), line(300, 80*ms, 1), line(300, 80*ms, 4), line(400, 5*ms, 1), line(400, 5*ms, 4),
			} {
				for i, at := range []time.Duration{8 * time.Second, 11100 * ms} {
					runs.Go(func() error {
						s := simulate.Scenario{Path: p, For: at + 22*time.Second, Seed: uint64(i)}
						session := simulate.Flow{Kind: simulate.Session, Priority: c.priority, From: at}
						all := append(flows(session), c.others...)
						if c.comes {
							all[0].From, all[1].From = 0, at
						}
						s.Flows = all
						r := simulate.Run(s)
						carries := r.Carries(at, s.For)
						parts <- [2]float64{r.Goodput(0, at, s.For) / carries, others(r, at, s.For) / carries}
						return nil
					})
				}
			}
			require.NoError(t, runs.Wait())
			close(parts)
			var share, rest, n float64
			for p := range parts {
				share, rest, n = share+p[0], rest+p[1], n+1
			}
			what := fmt.Sprintf("share %.3f, others %.3f", share/n, rest/n)
			t.Log(what)
			require.GreaterOrEqual(t, share/n, c.share, what)
			require.GreaterOrEqual(t, rest/n, c.rest, what)
		})
	}
}
