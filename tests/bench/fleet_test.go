package main

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The rates are those of the time in which the fleet sends, without the list before and the last task
// behind. Flows beside it count for a time that does not depend on it.
func TestMiddle(t *testing.T) {
	t.Parallel()
	var all []fleetProgress
	for i := range 301 { // 5 s of listing, 20 s at 8 Mbit/s beside 4, and 5 s of comparing
		p := fleetProgress{at: time.Duration(i) * 100 * time.Millisecond, flow: int64(i) * 50_000}
		p.fleet = int64(min(max(0, i-50), 200)) * 100_000
		all = append(all, p)
	}
	require.InEpsilon(t, 8e6, middle(all), 0.02)
	require.Zero(t, middle(nil))
	require.Zero(t, middle(all[:1]))
	rate, flow := during(all, 10*time.Second, 20*time.Second)
	require.InEpsilon(t, 8e6, rate, 0.001)
	require.InEpsilon(t, 4e6, flow, 0.001)
	rate, flow = during(all, 20*time.Second, 30*time.Second)
	require.InEpsilon(t, 4e6, rate, 0.001)
	require.InEpsilon(t, 4e6, flow, 0.001)
	rate, flow = during(all, 40*time.Second, 50*time.Second)
	require.Zero(t, rate+flow)
}

// The page has figures of what was measured, and the reasons for what was not.
func TestFleetReport(t *testing.T) {
	t.Parallel()
	runs := []fleetRun{
		{workers: 1, bytes: 960 * mb, took: 40 * time.Second, rate: 196 * mbit},
		{workers: 8, bytes: 960 * mb, took: 9 * time.Second, rate: 950 * mbit, paused: 2 * time.Second},
		{workers: 4, failed: errors.New("a cut line")},
	}
	beside := []fleetNeighbours{
		{priority: "low", flows: 1, rate: 600 * mbit, flow: 300 * mbit, alone: 900 * mbit},
		{priority: "normal", flows: 8, failed: errors.New("no iperf3"), paused: 3 * time.Second},
	}
	page := fleetReport(&wholeFleet, runs, beside, &mixedResult{differences: ">f.st...... a\n"}, &machine{})
	for _, text := range []string{
		"| 1 worker | 40.0 s | 192 Mbit/s | 196 Mbit/s | 0.980 | 1.00 |", "| 0.950 | 4.85 |", "- 4 workers: a cut line",
		"- 8 workers: the machine stood still for 2.0 s", "| low | 1 | 900 Mbit/s | 300 Mbit/s | 0.33 | 600 Mbit/s |",
		"- 8 workers, priority normal, beside 8 cubic flows: no iperf3", "beside 8 cubic flows: the machine stood still for 3.0 s", "rsync sees differences", ">f.st...... a",
	} {
		require.Contains(t, page, text)
	}
	require.Contains(t, fleetReport(&wholeFleet, nil, nil, &mixedResult{}, &machine{}), "no difference")
}
