package congestion_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/congestion"
	"github.com/fxfer/fxfer/internal/congestion/simulate"
)

// TestPoliced: a policer is found, also where hosts at either end are late now and then, and nothing else is taken
// for one: random loss, jitter, a short queue, or streams that loss holds back.
func TestPoliced(t *testing.T) {
	t.Parallel()
	policer := func(rate float64, rtt time.Duration) simulate.Path {
		p := line(94, rtt, 1)
		p.Police, p.Burst = 0.94e6*rate, 123_000
		return p
	}
	large := policer(45, 15*ms) // lets the start fill the queue of the line
	large.Burst = 500_000
	lossy := func(p simulate.Path, loss float64, jitter time.Duration) simulate.Path {
		p.Loss, p.Jitter = loss, jitter
		return p
	}
	session, stock := simulate.Flow{Kind: simulate.Session}, simulate.Flow{Kind: simulate.Session, Count: 4, Below: simulate.Cubic}
	for i, c := range []struct {
		what string
		path simulate.Path
		flow simulate.Flow
		is   bool
	}{
		{"50 Mbit/s", policer(50, 13600*time.Microsecond), session, true},
		{"42 Mbit/s", policer(42, 10200*time.Microsecond), session, true},
		{"52 Mbit/s", policer(52, 14700*time.Microsecond), session, true},
		{"45 Mbit/s, a large burst", large, session, true},
		{"short queue", line(100, 20*ms, 0.25), session, false},
		{"short queue, far", line(300, 80*ms, 0.25), session, false},
		{"shorter one", line(1000, 5*ms, 0.25), session, false},
		{"loss of 0.1 %", lossy(line(200, 30*ms, 1), 0.001, 0), session, false},
		{"loss of 0.5 %", lossy(line(200, 30*ms, 1), 0.005, 0), session, false},
		{"loss and jitter", lossy(line(100, 20*ms, 1), 0.005, ms), session, false},
		{"loss, cubic", lossy(line(200, 30*ms, 1), 0.005, 0), stock, false},
		{"loss of 2 %, cubic", lossy(line(200, 30*ms, 1), 0.02, 0), stock, false},
	} {
		for _, where := range []simulate.Side{simulate.Process, simulate.Host, simulate.Peer} {
			for seed := range uint64(2) {
				s := simulate.Scenario{Path: c.path, Flows: flows(c.flow), For: 10 * time.Second, Seed: seed + 1}
				if where != simulate.Process {
					s.Flows[0].Pauses = lateAtTimes(where, s.For, rand.New(rand.NewPCG(seed, uint64(i))))
				}
				var r congestion.Recorder
				var control *congestion.Controller
				s.Trace = func(m simulate.Moment) {
					control = m.Control.(*congestion.Controller)
					r.Add(control, m.Sample, m.Decision)
				}
				simulate.Run(s)
				policed, about := r.Stats(control).Policed, fmt.Sprintf("%s, %v, seed %d", c.what, where, s.Seed)
				if c.is {
					require.Greater(t, policed, s.For*2/5, about)
				} else {
					require.Less(t, policed, s.For/20, about)
				}
			}
		}
	}
}

// TestPolicedLasts: beside a policer a session loses little once it knows it, also where so little passes that
// its streams look as if their host paused, and where the policer let a lot more through when it was found.
func TestPolicedLasts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line   float64 // Mbit/s
		rtt    time.Duration
		police float64 // Mbit/s
		burst  int     // bytes
		most   float64 // share dropped
	}{
		{0.2, 20 * ms, 0.034, 29_000, 0.035},
		{0.5, 40 * ms, 0.064, 29_000, 0.03},
		{1.7, 15 * ms, 0.23, 29_000, 0.03},
		{5, 130 * ms, 1.6, 29_000, 0.02},
		{7.3, 88 * ms, 1.2, 29_000, 0.02},
		{230, 690 * ms, 36, 1_500_000, 0.03},
		{980, 40 * ms, 130, 6_000_000, 0.01},
		{1500, 13 * ms, 180, 5_000_000, 0.01},
	} {
		p := line(c.line, c.rtt, 1)
		p.Queue = max(p.Queue, 64_000)
		p.Police, p.Burst = 1e6*c.police, c.burst
		from := max(15*time.Second, 40*c.rtt)
		for seed := range uint64(3) {
			s := simulate.Scenario{
				Path: p, Flows: flows(simulate.Flow{Kind: simulate.Session, Count: streamsFor(p.Rate)}),
				For: 8 * from, Seed: seed + 1,
			}
			r := simulate.Run(s)
			about := fmt.Sprintf("%v of %v Mbit/s, %v, seed %d", c.police, c.line, c.rtt, s.Seed)
			require.LessOrEqual(t, r.Dropped(0, from, s.For), c.most, about)
			require.GreaterOrEqual(t, r.Goodput(0, from, s.For)/p.Police, 0.93, about)
		}
	}
}

// TestOutageIsNoPolicer: in an outage kernels send again at growing intervals, each stream by its own timer. What is
// lost so says nothing about the rate, also while streams recover one after the other.
func TestOutageIsNoPolicer(t *testing.T) {
	t.Parallel()
	const rate, mss = 5e6 / 8, 1448
	c := congestion.New()
	d := congestion.Decision{Rate: 2 * rate}
	s := congestion.Sample{MSS: mss, Streams: 16, Backlog: 1e6}
	queue := 0.0 // s
	sends := func(till, again time.Duration, arrives float64) {
		lost := s.At
		for s.At < till {
			s.At += congestion.Every
			s.RTT = 40 * ms
			if again == 0 {
				queue = min(max(0, queue+(min(d.Rate, 4*rate)/rate-1)*congestion.Every.Seconds()), 0.05)
				s.RTT = 40*ms + time.Duration(queue*float64(time.Second))
			}
			flows := arrives * min(d.Rate, rate)
			s.Delivered += int64(flows * congestion.Every.Seconds())
			s.InFlight = max(8*mss, int64(flows*s.RTT.Seconds()))
			if again > 0 && s.At-lost >= again {
				s.Lost += mss
				lost = s.At
			}
			d = c.Update(s)
		}
	}
	sends(20*time.Second, 0, 1)
	require.Equal(t, congestion.Cruise, d.State)
	sends(28*time.Second, 300*ms, 0)
	sends(29*time.Second, 100*ms, 0.2)
	sends(32*time.Second, 0, 1)
	require.Greater(t, d.Rate, rate/2)
}

// lateAtTimes are pauses of a host that other programs share.
func lateAtTimes(where simulate.Side, till time.Duration, random *rand.Rand) (all []simulate.Pause) {
	for at := time.Duration(random.IntN(1000)) * ms; at < till; {
		long := time.Duration(3+random.IntN(25)) * ms
		all = append(all, simulate.Pause{From: at, For: long, Where: where})
		at += long + time.Duration(100+random.IntN(900))*ms
	}
	return all
}
