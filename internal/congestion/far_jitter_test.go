package congestion_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/congestion/simulate"
)

// TestFarJitter: on far paths, jitter makes the RTT grow just as a queue does. It hardly ever ends a start for good, and
// neither does BBR, which looks for the RTT with next to nothing in flight, just when streams become gentle.
func TestFarJitter(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	bad := 0
	for _, p := range []simulate.Path{
		{Rate: 1793e6, RTT: 276 * ms, Jitter: 52 * ms},
		{Rate: 58e6, RTT: 213 * ms, Jitter: 38 * ms},
		{Rate: 962e6, RTT: 1282 * ms, Jitter: 44 * ms},
		{Rate: 5589e6, RTT: 606 * ms, Jitter: 32 * ms},
	} {
		p.MSS, p.Queue = 1448, int(1.2*p.Rate/8*p.RTT.Seconds())
		from := 30 * p.RTT
		for seed := range uint64(10) {
			r := simulate.Run(simulate.Scenario{
				Path: p, Flows: []simulate.Flow{{Kind: simulate.Session, Count: 4}}, For: from + 40*p.RTT, Seed: seed,
			})
			part := r.Goodput(0, from, from+40*p.RTT) / r.Carries(from, from+40*p.RTT)
			if part < 0.5 {
				bad++
				t.Logf("%.2f of %.4g Mbit/s × %v, seed %d", part, p.Rate/1e6, p.RTT, seed)
			}
		}
	}
	require.LessOrEqual(t, bad, 1, "of 40 runs")
}
