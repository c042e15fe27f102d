package congestion_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/congestion"
	"github.com/fxfer/fxfer/internal/congestion/simulate"
)

// TestLowKeepsOff: a cubic flow that was there first keeps its rate beside a session of low priority,
// also where the session begins in a queue of that flow, or where even a full queue is shorter than
// the one that the session usually holds.
func TestLowKeepsOff(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what  string
		queue float64 // BDP
		seed  uint64
		keeps float64
	}{
		{"begins in a queue", 1, 2, 0.9},
		{"short queue", 0.25, 1, 0.6},
	} {
		s := simulate.Scenario{
			Path: line(1000, 5*ms, c.queue), For: 40 * time.Second, Seed: c.seed,
			Flows: flows(simulate.Flow{Kind: simulate.Session, Count: 4, Priority: congestion.Low, From: 10 * time.Second}, simulate.Flow{Kind: simulate.Cubic}),
		}
		beside := others(simulate.Run(s), 12*time.Second, s.For)
		s.Flows[0] = simulate.Flow{Kind: simulate.UDP, From: s.For}
		require.Greater(t, beside/others(simulate.Run(s), 12*time.Second, s.For), c.keeps, c.what)
	}
}

// TestLowComesBack: a cubic flow that has lost something leaves a short queue empty for seconds. A session of
// low priority then takes the rest of the line, but fills that queue again and again no more.
func TestLowComesBack(t *testing.T) {
	t.Parallel()
	from, to := 12*time.Second, 50*time.Second
	s := simulate.Scenario{
		Path: line(300, 80*ms, 0.25), For: 65 * time.Second, Seed: 1,
		Flows: flows(simulate.Flow{Kind: simulate.Session, Count: 4, Priority: congestion.Low},
			simulate.Flow{Kind: simulate.Cubic, From: 10 * time.Second, To: to}),
	}
	r := simulate.Run(s)
	back := r.Since(0, 0.9, to, time.Second)
	require.Positive(t, back)
	require.Less(t, back, 10*time.Second)
	s.Flows[0] = simulate.Flow{Kind: simulate.UDP, From: s.For}
	require.Greater(t, others(r, from, to)/others(simulate.Run(s), from, to), 0.65)
}

// TestLowMakesRoom: a cubic flow that begins finds its rate before it loses something, or not much later,
// because a session of low priority sees it come, although the queue is short between its trains. Usual
// buffers bound the window of the flow.
func TestLowMakesRoom(t *testing.T) {
	t.Parallel()
	for _, p := range []simulate.Path{line(300, 80*ms, 0.25), line(500, 30*ms, 0.5), line(1000, 50*ms, 0.25)} {
		with, without := 0.0, 0.0
		for i := range 8 { // one moment to begin shows little
			from := 10*time.Second + time.Duration(i)*370*ms
			to := from + 20*time.Second
			s := simulate.Scenario{
				Path: p, For: to, Seed: uint64(i%3 + 1),
				Flows: flows(simulate.Flow{Kind: simulate.Session, Count: 4, Priority: congestion.Low},
					simulate.Flow{Kind: simulate.Cubic, From: from, Window: 2_800_000}),
			}
			with += others(simulate.Run(s), from, to)
			s.Flows[0] = simulate.Flow{Kind: simulate.UDP, From: s.For}
			without += others(simulate.Run(s), from, to)
		}
		require.Greater(t, with/without, 0.8, "%v", p)
	}
}

// TestLowKnowsItsQueue: a session of low priority that tries for more than the line carries sees the queue of that
// a round trip later, and takes it for its own.
func TestLowKnowsItsQueue(t *testing.T) {
	t.Parallel()
	for _, p := range []simulate.Path{line(100, 20*ms, 1), line(300, 80*ms, 1)} {
		for seed := range uint64(6) {
			s := simulate.Scenario{
				Path: p, For: 22 * time.Second, Seed: seed + 1,
				Flows: flows(simulate.Flow{Kind: simulate.Session, Count: []int{4, 16}[seed%2], Priority: congestion.Low}),
			}
			r := simulate.Run(s)
			from := 3 * time.Second // after the start
			require.Greater(t, r.Goodput(0, from, s.For)/r.Carries(from, s.For), 0.96, "%v, seed %d", p, s.Seed)
		}
	}
}

// TestLowBeginsAsOne: however many streams a session of low priority has, it does not send their first windows at once,
// also when the first acknowledgements have come: only the first packet of each.
func TestLowBeginsAsOne(t *testing.T) {
	t.Parallel()
	s := simulate.Scenario{
		Path: line(100, 20*ms, 1), For: 60 * ms, Seed: 1,
		Flows: flows(simulate.Flow{Kind: simulate.Session, Count: 16, Priority: congestion.Low}),
	}
	decided := 0
	s.Trace = func(m simulate.Moment) {
		if m.Sample.Delivered > 0 {
			decided++
			require.Less(t, m.Decision.Rate, 8*congestion.LowBegins(s.Path.RTT, 1448), "%v", m.At)
		}
	}
	simulate.Run(s)
	require.Positive(t, decided)
}

// TestLowStartsAlone: alone on a slow line, a session of low priority does not take for others what its own start has
// done.
func TestLowStartsAlone(t *testing.T) {
	t.Parallel()
	for _, p := range []simulate.Path{line(32, 15*ms, 1), line(20, 30*ms, 1), line(50, 10*ms, 2), line(16, 25*ms, 2)} {
		for seed := range uint64(6) {
			beside := time.Duration(0)
			s := simulate.Scenario{
				Path: p, For: 8 * time.Second, Seed: seed + 1,
				Flows: flows(simulate.Flow{Kind: simulate.Session, Count: []int{4, 8}[seed%2], Priority: congestion.Low}),
			}
			last := time.Duration(0)
			s.Trace = func(m simulate.Moment) {
				if m.Decision.State == congestion.Yield {
					beside += m.At - last
				}
				last = m.At
			}
			r := simulate.Run(s)
			require.Zero(t, beside, "%v, seed %d", p, s.Seed)
			require.Greater(t, r.Goodput(0, time.Second, s.For)/r.Carries(time.Second, s.For), 0.9, "%v, seed %d", p, s.Seed)
		}
	}
}

// TestLowForgetsAPause: a host that pauses for a moment in the start, or right after it, is no slow line.
func TestLowForgetsAPause(t *testing.T) {
	t.Parallel()
	for _, p := range []simulate.Path{line(32, 15*ms, 1), line(100, 20*ms, 1), line(300, 80*ms, 1), line(1000, 50*ms, 1)} {
		for _, where := range []simulate.Side{simulate.Host, simulate.Peer} {
			for i, at := range []time.Duration{150 * ms, 200 * ms, 300 * ms, 500 * ms, 700 * ms, time.Second} {
				s := simulate.Scenario{
					Path: p, For: 8 * time.Second, Seed: uint64(i) + 1,
					Flows: flows(simulate.Flow{
						Kind: simulate.Session, Count: 4, Priority: congestion.Low,
						Pauses: []simulate.Pause{{From: at, For: []time.Duration{300 * ms, 500 * ms}[i%2], Where: where}},
					}),
				}
				r := simulate.Run(s)
				part := r.Goodput(0, 4*time.Second, s.For) / r.Carries(4*time.Second, s.For)
				require.Greater(t, part, 0.9, "%v, %v at %v", p, where, at)
			}
		}
	}
}

// TestLowStartsOnAfterAPause: after a pause in the start, RTTs are long for a while. It is no queue if no more is in flight
// than the path holds, so the start goes on. The mean of several runs tells.
func TestLowStartsOnAfterAPause(t *testing.T) {
	t.Parallel()
	sum, runs := 0.0, []struct {
		simulate.Path
		simulate.Pause
		seed uint64
	}{
		{line(16, 25*ms, 2), simulate.Pause{From: 1092 * ms, For: 176 * ms, Where: simulate.Process}, 238},
		{line(16, 25*ms, 2), simulate.Pause{From: 763 * ms, For: 535 * ms, Where: simulate.Host}, 484},
		{line(8, 40*ms, 2), simulate.Pause{From: 778 * ms, For: 89 * ms, Where: simulate.Process}, 998},
		{line(8, 40*ms, 2), simulate.Pause{From: 232 * ms, For: 376 * ms, Where: simulate.Peer}, 917},
	}
	for _, c := range runs {
		s := simulate.Scenario{
			Path: c.Path, For: 6 * time.Second, Seed: c.seed,
			Flows: flows(simulate.Flow{Kind: simulate.Session, Priority: congestion.Low, Pauses: []simulate.Pause{c.Pause}}),
		}
		r := simulate.Run(s)
		sum += r.Goodput(0, 3*time.Second, s.For) / r.Carries(3*time.Second, s.For)
	}
	require.Greater(t, sum/float64(len(runs)), 0.5)
}

// TestLowOnLoss: what a line loses by chance is no sign of others.
func TestLowOnLoss(t *testing.T) {
	t.Parallel()
	for _, p := range []simulate.Path{line(100, 20*ms, 1), line(300, 80*ms, 1), line(1000, 50*ms, 1)} {
		for _, p.Loss = range []float64{0.001, 0.01} {
			for seed := range uint64(2) {
				s := simulate.Scenario{
					Path: p, For: 20 * time.Second, Seed: seed + 1,
					Flows: flows(simulate.Flow{Kind: simulate.Session, Count: []int{4, 16}[seed], Priority: congestion.Low}),
				}
				r := simulate.Run(s)
				part := r.Goodput(0, 0, s.For) / r.Carries(0, s.For)
				require.Greater(t, part, 0.85, "%v, seed %d", p, s.Seed)
			}
		}
	}
}

// TestLowOnJitter: what an RTT goes up and down by itself is no sign of others. The mean of several runs tells.
func TestLowOnJitter(t *testing.T) {
	t.Parallel()
	p := line(300, 80*ms, 1)
	p.Jitter = 3 * ms
	const runs = 6
	sum := 0.0
	for seed := range uint64(runs) {
		s := simulate.Scenario{
			Path: p, For: 20 * time.Second, Seed: seed + 1,
			Flows: flows(simulate.Flow{Kind: simulate.Session, Count: []int{4, 16}[seed%2], Priority: congestion.Low}),
		}
		r := simulate.Run(s)
		sum += r.Goodput(0, 0, s.For) / r.Carries(0, s.For)
	}
	require.Greater(t, sum/runs, 0.6)
}

// TestLowComesBackOnJitter: few packets show no more than the mean of a jitter, which is far above the least RTT. That is
// no queue of others: when a cubic flow has left, a session of low priority takes the line again. Meanwhile, the flow
// keeps it. The mean of several runs tells.
func TestLowComesBackOnJitter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		jitter time.Duration
		lines  []simulate.Path
		within float64 // s
	}{
		{3 * ms, []simulate.Path{line(32, 15*ms, 1), line(100, 20*ms, 1), line(100, 20*ms, 4), line(300, 80*ms, 1)}, 11},
		{10 * ms, []simulate.Path{line(32, 15*ms, 4), line(100, 20*ms, 1)}, 15},
	} {
		const runs = 6
		for _, p := range c.lines {
			p.Jitter = c.jitter
			back, with, without := 0.0, 0.0, 0.0
			for seed := range uint64(runs) {
				from := 8*time.Second + time.Duration(seed+1)*370*ms
				s := simulate.Scenario{
					Path: p, For: from + 42*time.Second, Seed: seed + 1,
					Flows: flows(simulate.Flow{Kind: simulate.Session, Count: []int{4, 16}[(seed+1)%2], Priority: congestion.Low},
						simulate.Flow{Kind: simulate.Cubic, From: from, To: from + 16*time.Second}),
				}
				to := s.Flows[1].To
				r := simulate.Run(s)
				after := r.Since(0, 0.9, to, time.Second)
				if after < 0 {
					after = s.For - to
				}
				back += after.Seconds() / runs
				with += others(r, from+2*time.Second, to)
				s.For, s.Flows[0] = to, simulate.Flow{Kind: simulate.UDP, From: s.For}
				without += others(simulate.Run(s), from+2*time.Second, to)
			}
			require.Less(t, back, c.within, "%v", p)
			require.Greater(t, with/without, 0.85, "%v", p)
		}
	}
}

// TestLowStartsAnew: a session of low priority that begins in the queue of a cubic flow yields before it knows the line.
// When the flow has left, it looks for the rate of the line again.
func TestLowStartsAnew(t *testing.T) {
	t.Parallel()
	for _, p := range []simulate.Path{line(32, 15*ms, 1), line(100, 20*ms, 1), line(300, 80*ms, 1), line(1000, 50*ms, 1)} {
		const runs = 4
		sum := time.Duration(0)
		for seed := range uint64(runs) {
			from := 8*time.Second + time.Duration(seed+1)*370*ms
			to := from + 12*time.Second
			s := simulate.Scenario{
				Path: p, For: to + 26*time.Second, Seed: seed + 1,
				Flows: flows(simulate.Flow{Kind: simulate.Session, Count: []int{4, 16}[(seed+1)%2], Priority: congestion.Low, From: from},
					simulate.Flow{Kind: simulate.Cubic, To: to}),
			}
			back := simulate.Run(s).Since(0, 0.9, to, time.Second)
			require.Positive(t, back, "%v, seed %d", p, s.Seed)
			sum += back
		}
		require.Less(t, sum/runs, 14*time.Second, "%v", p)
	}
}

// TestLowComesBackOnNarrowLines: with many streams on a narrow line, each hears of the queue late, so that a session could
// take more only slowly. One stream sees it soon.
func TestLowComesBackOnNarrowLines(t *testing.T) {
	t.Parallel()
	for _, queue := range []float64{0.25, 1} {
		for seed := range uint64(6) {
			from := 8*time.Second + time.Duration(seed+1)*370*ms
			to := from + 16*time.Second
			s := simulate.Scenario{
				Path: line(32, 15*ms, queue), For: to + 15*time.Second, Seed: seed + 1,
				Flows: flows(simulate.Flow{Kind: simulate.Session, Priority: congestion.Low},
					simulate.Flow{Kind: simulate.Cubic, From: from, To: to}),
			}
			back := simulate.Run(s).Since(0, 0.9, to, time.Second)
			require.Positive(t, back, "queue %v, seed %d", queue, s.Seed)
			require.Less(t, back, 10*time.Second, "queue %v, seed %d", queue, s.Seed)
		}
	}
}

// TestLowBesidePages: short flows one after the other make RTTs uneven, and lose nothing. That is no jitter: a session of
// low priority leaves them the line, and holds no longer queue when they have gone.
func TestLowBesidePages(t *testing.T) {
	t.Parallel()
	const begin, end, runs = 15 * time.Second, 45 * time.Second, 3
	for _, c := range []struct {
		simulate.Path
		page, every time.Duration // means
	}{
		{line(100, 20*ms, 1), 150 * ms, 150 * ms},
		{line(32, 15*ms, 4), 150 * ms, 600 * ms},
		{line(100, 20*ms, 4), 600 * ms, 600 * ms},
	} {
		with, without, longer := 0.0, 0.0, time.Duration(0)
		for seed := range uint64(runs) {
			random := rand.New(rand.NewPCG(seed, 0))
			uneven := func(d time.Duration) time.Duration { return d * time.Duration(70+random.IntN(61)) / 100 }
			s := simulate.Scenario{
				Path: c.Path, For: end + 35*time.Second, Seed: seed + 1,
				Flows: flows(simulate.Flow{Kind: simulate.Session, Count: []int{4, 16}[seed%2], Priority: congestion.Low}),
			}
			for at := begin; at < end; at += uneven(c.every) {
				s.Flows = append(s.Flows, simulate.Flow{Kind: simulate.Cubic, From: at, To: min(end, at+uneven(c.page))})
			}
			r := simulate.Run(s)
			with += others(r, begin, end)
			longer += r.Delay(0.5, end+20*time.Second, s.For) - r.Delay(0.5, begin-5*time.Second, begin)
			s.For, s.Flows[0] = end, simulate.Flow{Kind: simulate.UDP, From: end}
			without += others(simulate.Run(s), begin, end)
		}
		require.Greater(t, with/without, 0.93, "%v", c)
		require.Less(t, longer/runs, 3*ms, "%v", c)
	}
}
