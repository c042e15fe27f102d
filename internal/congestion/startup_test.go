package congestion_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/congestion/simulate"
)

// TestShort looks at what arrives in the first round trips, which is most of a short transfer.
func TestShort(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate  float64 // Mbit/s
		rtt   time.Duration
		until time.Duration
		least float64 // MB
	}{
		{300, 80 * ms, 600 * ms, 9.3},
		{1000, 50 * ms, 400 * ms, 16},
		{1000, 100 * ms, 800 * ms, 20},
		{10_000, 50 * ms, 500 * ms, 78},
	} {
		t.Run(fmt.Sprintf("%.0f Mbit per s, %v", c.rate, c.rtt), func(t *testing.T) {
			t.Parallel()
			r := simulate.Run(simulate.Scenario{
				Path: line(c.rate, c.rtt, 1), For: c.until, Seed: 1,
				Flows: flows(simulate.Flow{Kind: simulate.Session}),
			})
			arrived := r.Goodput(0, 0, c.until) / 8 * c.until.Seconds() / 1e6
			require.GreaterOrEqual(t, arrived, c.least)
		})
	}
}

// TestStartQueue looks at what the start loses in a queue that holds as much as the path.
func TestStartQueue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate float64 // Mbit/s
		rtt  time.Duration
		most float64 // lost in the first seconds, MB
	}{
		{100, 20 * ms, 0.2},
		{300, 80 * ms, 0.02},
		{1000, 50 * ms, 0.1},
	} {
		t.Run(fmt.Sprintf("%.0f Mbit per s, %v", c.rate, c.rtt), func(t *testing.T) {
			t.Parallel()
			const long = 3 * time.Second
			r := simulate.Run(simulate.Scenario{
				Path: line(c.rate, c.rtt, 1), For: long, Seed: 1,
				Flows: flows(simulate.Flow{Kind: simulate.Session}),
			})
			sent := r.Goodput(0, 0, long) / 8 * long.Seconds() / 1e6
			require.LessOrEqual(t, r.Dropped(0, 0, long)*sent, c.most)
			t.Logf("%.3f MB lost", r.Dropped(0, 0, long)*sent)
		})
	}
}

// Handshakes may make a narrow line look slower than it is: a session finds that out.
func TestStartBelowLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate float64 // kbit/s
		rtt  time.Duration
		part float64 // of the rate, which is known at first
	}{
		{512, 50 * ms, 0.5},
		{512, 150 * ms, 0.5},
		{1024, 300 * ms, 0.5},
		{8192, 50 * ms, 0.1},
	} {
		t.Run(fmt.Sprintf("%.0f kbit per s, %v, %.1f", c.rate, c.rtt, c.part), func(t *testing.T) {
			t.Parallel()
			const long = 20 * time.Second
			r := simulate.Run(simulate.Scenario{
				Path: simulate.Path{Rate: 1e3 * c.rate, RTT: c.rtt, Queue: 64 << 10}, For: long, Seed: 1,
				Flows: flows(simulate.Flow{Kind: simulate.Session, Count: 2, Begins: c.part * 1e3 * c.rate}),
			})
			require.GreaterOrEqual(t, r.Goodput(0, long/2, long), 0.9*1e3*c.rate)
			require.LessOrEqual(t, r.Dropped(0, 0, long), 0.02)
		})
	}
}

// Handshakes may also make it look faster. A host that is late all the time, but by less than a packet takes,
// sees the queue that follows nevertheless.
func TestStartAboveLine(t *testing.T) {
	t.Parallel()
	const long = 20 * time.Second
	f := simulate.Flow{Kind: simulate.Session, Count: 1, Begins: 1.2 * 128e3}
	for at := time.Second; at < long; at += 400 * ms {
		f.Pauses = append(f.Pauses, simulate.Pause{From: at, For: 60 * ms, Where: simulate.Process})
	}
	r := simulate.Run(simulate.Scenario{
		Path: simulate.Path{Rate: 128e3, RTT: 700 * ms, Queue: 64 << 10}, For: long, Seed: 1, Flows: flows(f),
	})
	require.LessOrEqual(t, r.Delay(0.5, long/2, long), 500*ms)
	require.GreaterOrEqual(t, r.Goodput(0, long/2, long), 0.9*128e3)
}

// A host was so late with the handshakes that a fast line looked narrow: the first full packet shows that
// it is not.
func TestStartLate(t *testing.T) {
	t.Parallel()
	for _, looks := range []float64{14e3, 100e3, 1e6} {
		r := simulate.Run(simulate.Scenario{
			Path: simulate.Path{Rate: 1e8, RTT: 50 * ms, Queue: 64 << 10}, For: 8 * time.Second, Seed: 1,
			Flows: flows(simulate.Flow{Kind: simulate.Session, Count: 2, Begins: looks}),
		})
		require.GreaterOrEqual(t, r.Goodput(0, 4*time.Second, 8*time.Second), 0.9e8, "%v bit/s", looks)
	}
}
