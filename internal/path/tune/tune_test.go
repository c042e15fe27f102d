package tune

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var seed = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the noise of simulated lines")

func TestSettings(t *testing.T) {
	t.Parallel()
	f := Factors{Streams: []int{0, 4, 4}, Congestion: []string{"", "cubic"}, SockBuf: []Buffer{{}, {BDP: 1}}, Transport: []string{"tcp", "quic"}}
	var names []string
	for _, s := range f.Settings() {
		names = append(names, s.String())
	}
	require.Equal(t, []string{
		"tcp", "quic", "tcp, buffers 1bdp", "cubic, tcp", "cubic, tcp, buffers 1bdp",
		"4 streams, tcp", "4 streams, quic", "4 streams, tcp, buffers 1bdp", "4 streams, cubic, tcp", "4 streams, cubic, tcp, buffers 1bdp",
	}, names)
	require.Empty(t, (&Factors{Streams: []int{0}}).Settings())
	require.Equal(t, "1 stream, buffers 17,520 B, priority low", Setting{Streams: 1, SockBuf: Buffer{Bytes: 17520}, Priority: "low"}.String())
	require.Equal(t, Buffer{Bytes: 250_000}, Setting{SockBuf: Buffer{BDP: 2}}.On(125_000).SockBuf)
}

// TestIntervals: the quantiles of t with 3 and 4 degrees of freedom are from the tables of
// Student's distribution.
func TestIntervals(t *testing.T) {
	t.Parallel()
	d := []float64{1, 2, 3, 4} // mean 2.5, SD 1.29099
	i := intervals([][]float64{d}, 0.05)[0]
	require.InDelta(t, 2.5-3.18245*1.290994/2, i.Low, 1e-4)
	require.InDelta(t, 2.5+3.18245*1.290994/2, i.High, 1e-4)
	require.False(t, i.HoldsZero())
	_, p := test(d)
	require.InDelta(t, 0.030466, p, 1e-5)

	// Of two, the first has 97.5 % and the second 95 %; if the first fails, both have 97.5 %.
	both := intervals([][]float64{d, {10, 11, 12, 13, 14}}, 0.05)
	require.InDelta(t, 12-3.49541*1.581139/2.236068, both[1].Low, 1e-4)
	require.InDelta(t, 2.5-3.18245*1.290994/2, both[0].Low, 1e-4)
	both = intervals([][]float64{d, {-1, 0, 1, 2, -2}}, 0.05)
	require.InDelta(t, 2.5-4.17653*1.290994/2, both[0].Low, 1e-4)
	require.True(t, both[0].HoldsZero(), "0.0305 is more than 0.025")
	require.InDelta(t, -3.49541*1.581139/2.236068, both[1].Low, 1e-4)

	// Of seven, the largest and the smallest are left out. They count as 14 and 10 in the deviations.
	i = intervals([][]float64{{10, 11, 12, 13, 14, 15, -50}}, 0.05)[0]
	require.InDelta(t, 12, i.Mean, 1e-9)
	require.InDelta(t, 12-2.77645*math.Sqrt(18.0/(5*4)), i.Low, 1e-4)
	require.InDelta(t, 12+2.77645*math.Sqrt(18.0/(5*4)), i.High, 1e-4)

	i = intervals([][]float64{{5, 5, 5, 5, 5, 5, -2}}, 0.05)[0] // the rest has no spread
	require.InDelta(t, 4, i.Mean, 1e-9)
	require.InDelta(t, 4-2.44691, i.Low, 1e-4)

	for name, c := range map[string]struct {
		d    []float64
		want Interval
	}{
		"nothing": {nil, Interval{}}, "one pair": {[]float64{5}, Interval{Pairs: 1, Mean: 5}},
		"no spread": {[]float64{5, 5, 5}, Interval{3, 5, 5, 5}}, "no difference": {[]float64{0, 0}, Interval{2, 0, 0, 0}},
	} {
		require.Equal(t, c.want, intervals([][]float64{c.d}, 0.05)[0], name)
	}
}

// TestIntervalsHold: intervals of ten settings miss the truth together in about 5 % of all
// experiments at most.
func TestIntervalsHold(t *testing.T) {
	t.Parallel()
	t.Logf("seed %d", *seed)
	random := rand.New(rand.NewPCG(*seed, 1))
	missed, experiments := 0, 2000
	for range experiments {
		all := make([][]float64, 10)
		for i := range all {
			for range 5 {
				all[i] = append(all[i], random.NormFloat64())
			}
		}
		if slices.ContainsFunc(intervals(all, 0.05), func(i Interval) bool { return !i.HoldsZero() }) {
			missed++
		}
	}
	require.Less(t, missed, experiments*7/100) // 5 standard deviations above 5 %
	require.Greater(t, missed, experiments*2/100)
}

// line simulates a path: it answers with the figures of a setting, and noise.
type line struct {
	random *rand.Rand
	noise  float64
	of     func(s Setting) Measure
	shares []float64 // of the goodput, one of which each run has; nil is all of it
}

func (l *line) measure(_ context.Context, _ int, s Setting, size int64, within time.Duration) (Measure, error) {
	m := l.of(s)
	m.Goodput *= 1 + l.noise*l.random.NormFloat64()
	if l.shares != nil {
		m.Goodput *= l.shares[l.random.IntN(len(l.shares))]
	}
	m.Delay *= 1 + l.noise*l.random.NormFloat64()
	m.RTT, m.Bytes = 0.020, size
	if m.Seconds = 8 * float64(size) / m.Goodput; m.Seconds > within.Seconds() {
		m.Seconds, m.Bytes = within.Seconds(), int64(m.Goodput/8*within.Seconds())
	}
	time.Sleep(seconds(m.Seconds + 0.5))
	return m, nil
}

func perform(t *testing.T, l *line, opt Options) *Report {
	t.Helper()
	if opt.Servers == nil {
		opt.Servers = []string{"nas"}
	}
	if opt.Measure == nil {
		opt.Measure = l.measure
	}
	opt.Size = cmp.Or(opt.Size, 100e6)
	opt.Rounds, opt.Budget = cmp.Or(opt.Rounds, 4), cmp.Or(opt.Budget, 10*time.Minute)
	opt.Seed = *seed
	require.NoError(t, opt.Check())
	r, err := Run(t.Context(), opt)
	require.NoError(t, err)
	return r
}

func names(s *Server) (all []string) {
	for i := range s.Results {
		all = append(all, s.Results[i].Name)
	}
	return all
}

var streams = (&Factors{Streams: []int{1, 4, 32}}).Settings()

// TestRanking: goodput decides, then what is sent again, then delay, then the number of streams.
func TestRanking(t *testing.T) {
	t.Parallel()
	t.Logf("seed %d", *seed)
	for _, c := range []struct {
		name    string
		of      func(s Setting) Measure
		ranked  []string
		best    string
		differs bool
	}{
		{"no difference", func(Setting) Measure { return Measure{Goodput: 900e6, Delay: 0.001} }, []string{"1 stream", "4 streams", "32 streams", "defaults"}, "defaults", false},
		{"windows", func(s Setting) Measure {
			return Measure{Goodput: min(900e6, 40e6*float64(max(s.Streams, 1)+15*(1-min(s.Streams, 1))))}
		}, []string{"32 streams", "defaults", "4 streams", "1 stream"}, "32 streams", true},
		{"more streams lose", func(s Setting) Measure {
			n := float64(s.Streams)
			if s.Streams == 0 {
				n = 16
			}
			return Measure{Goodput: 900e6, SentAgain: n / 1000}
		}, []string{"1 stream", "4 streams", "defaults", "32 streams"}, "1 stream", true},
		{"more streams queue", func(s Setting) Measure {
			return Measure{Goodput: 900e6, Delay: []float64{0.040, 0.004}[min(s.Streams%32, 1)]}
		}, []string{"1 stream", "4 streams", "32 streams", "defaults"}, "1 stream", true},
		{"only worse", func(s Setting) Measure { return Measure{Goodput: []float64{900e6, 500e6}[min(s.Streams, 1)]} },
			[]string{"defaults", "1 stream", "4 streams", "32 streams"}, "defaults", true},
		{"too small to matter", func(s Setting) Measure { return Measure{Goodput: []float64{900e6, 905e6}[min(s.Streams, 1)]} },
			[]string{"1 stream", "4 streams", "32 streams", "defaults"}, "defaults", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := perform(t, &line{random: rand.New(rand.NewPCG(*seed, 2)), noise: 0.003, of: c.of}, Options{Settings: streams})
				s := &r.Servers[0]
				require.Equal(t, c.ranked, names(s), "%+v", s.Results)
				require.Equal(t, c.best, r.Best.String())
				require.Equal(t, c.differs, s.Differs)
			})
		})
	}
}

// TestChance: on noisy lines where no setting makes a difference, at most about one experiment in
// twenty claims that one is better.
func TestChance(t *testing.T) {
	t.Parallel()
	t.Logf("seed %d", *seed)
	winners, experiments := 0, 400
	for i := range experiments {
		synctest.Test(t, func(t *testing.T) {
			l := &line{random: rand.New(rand.NewPCG(*seed, uint64(i))), noise: 0.15, of: func(Setting) Measure { return Measure{Goodput: 500e6, Delay: 0.02} }}
			if *perform(t, l, Options{Settings: streams}).Best != (Setting{}) {
				winners++
			}
		})
	}
	t.Logf("%d of %d experiments claim that a setting is better", winners, experiments)
	require.LessOrEqual(t, winners, experiments*9/100, "5 % and four standard deviations")
}

// busy has runs of labs on a busy machine, as shares of the median of their setting: every fifth of
// 281, sorted. Single runs are much slower, and none is much faster.
var busy = []float64{
	0.12, 0.34, 0.7, 0.78, 0.82, 0.84, 0.86, 0.88, 0.89, 0.91, 0.91, 0.92, 0.93, 0.94, 0.95, 0.96,
	0.96, 0.96, 0.97, 0.98, 0.98, 0.99, 0.99, 0.99, 0.99, 1, 1, 1, 1, 1, 1, 1, 1.01, 1.01, 1.01,
	1.01, 1.01, 1.02, 1.02, 1.03, 1.03, 1.04, 1.05, 1.05, 1.06, 1.06, 1.07, 1.07, 1.08, 1.08,
	1.09, 1.09, 1.11, 1.11, 1.12, 1.13,
}

// TestBusy: experiments with the noise of real runs on a busy machine, and with the settings of the
// labs of TestTune in tests/faults. Noise alone is no better, and a difference is found nevertheless.
// About 97 % of the experiments find that 32 streams beat the defaults; without trimming, 77 % do.
func TestBusy(t *testing.T) {
	t.Parallel()
	t.Logf("seed %d", *seed)
	goodput := map[int]float64{0: 56e6, 1: 13.2e6, 32: 67e6} // of 3 MB through windows of 256 KiB over 150 ms
	for _, c := range []struct {
		name        string
		of          func(Setting) Measure
		size        int64
		rounds      int
		budget      time.Duration
		experiments int
		claims      func(*Server) bool
		least, most float64 // share of the experiments that claim it
	}{
		{"no difference", func(Setting) Measure { return Measure{Goodput: 50e6, Delay: 0.005} }, 2e6, 3, 12 * time.Second, 2000,
			func(s *Server) bool { return *s.Best != Setting{} }, 0, 0.05},
		{"no difference, more time", func(Setting) Measure { return Measure{Goodput: 50e6, Delay: 0.005} }, 3e6, 5, 2 * time.Minute, 2000,
			func(s *Server) bool { return *s.Best != Setting{} }, 0, 0.05},
		{"a small window", func(s Setting) Measure { return Measure{Goodput: goodput[s.Streams]} }, 3e6, 5, 2 * time.Minute, 1000,
			func(s *Server) bool { return s.Find(Setting{Streams: 1}).Place == Slower }, 0.93, 1},
		{"a small window, more streams than the defaults", func(s Setting) Measure { return Measure{Goodput: goodput[s.Streams]} }, 3e6, 5, 2 * time.Minute, 1000,
			func(s *Server) bool { return *s.Best == Setting{Streams: 32} }, 0.93, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			settings := (&Factors{Streams: []int{1, 32}}).Settings()
			claims := 0
			for i := range c.experiments {
				synctest.Test(t, func(t *testing.T) {
					l := &line{random: rand.New(rand.NewPCG(*seed, uint64(i))), noise: 0.01, of: c.of, shares: busy}
					r := perform(t, l, Options{Settings: settings, Size: c.size, Rounds: c.rounds, Budget: c.budget})
					if c.claims(&r.Servers[0]) {
						claims++
					}
				})
			}
			t.Logf("claimed in %d of %d experiments", claims, c.experiments)
			require.GreaterOrEqual(t, float64(claims), c.least*float64(c.experiments))
			require.LessOrEqual(t, float64(claims), c.most*float64(c.experiments))
		})
	}
}

// TestRounds: every round has the defaults, and further rounds have what is undecided.
func TestRounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &line{random: rand.New(rand.NewPCG(*seed, 3)), noise: 0.05, of: func(s Setting) Measure { return Measure{Goodput: []float64{500e6, 50e6}[s.Streams&1]} }}
		r := perform(t, l, Options{Settings: streams})
		runs := map[string][]int{}
		for _, x := range r.Servers[0].Results {
			for _, run := range x.Runs {
				runs[x.Name] = append(runs[x.Name], run.Round)
			}
		}
		require.Greater(t, r.Rounds, 4)
		require.Len(t, runs["defaults"], r.Rounds)
		require.Len(t, runs["1 stream"], 4, "it is certainly slower after the rounds that were asked for")
		require.Greater(t, len(runs["4 streams"]), 4)
	})
}

// TestOrder: the same seed gives the same order, and a round is not in the order of the settings.
func TestOrder(t *testing.T) {
	t.Parallel()
	order := func() (all []string) {
		l := &line{random: rand.New(rand.NewPCG(1, 1)), noise: 0, of: func(Setting) Measure { return Measure{Goodput: 500e6} }}
		perform(t, l, Options{Settings: streams, Measure: func(ctx context.Context, i int, s Setting, size int64, within time.Duration) (Measure, error) {
			all = append(all, s.String())
			return l.measure(ctx, i, s, size, within)
		}})
		return all
	}
	synctest.Test(t, func(*testing.T) {
		first := order()
		require.Equal(t, "defaults", first[0], "the warm-up")
		require.Equal(t, first, order())
		require.False(t, slices.Equal(first[1:5], first[5:9]) && slices.Equal(first[5:9], first[9:13]) && slices.Equal(first[9:13], first[13:17]))
	})
}

// TestBudget: runs become smaller where they would take too long, and a slow setting is cut.
func TestBudget(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate  float64
		least time.Duration
	}{{1e9, 0}, {10e6, 5 * time.Minute}, {0.1e6, 5 * time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			l := &line{random: rand.New(rand.NewPCG(*seed, 4)), noise: 0.01, of: func(s Setting) Measure { return Measure{Goodput: c.rate / []float64{1, 100}[s.Streams&1]} }}
			began := time.Now()
			r := perform(t, l, Options{Settings: streams})
			require.Less(t, time.Since(began), 12*time.Minute)
			require.GreaterOrEqual(t, time.Since(began), c.least)
			require.Equal(t, c.rate < 1e9, r.Size < r.Asked)
			require.NotEmpty(t, r.Servers[0].Find(Setting{}).Runs)
		})
	}
}

var errRefused = errors.New("refused")

// TestFailures: a setting that fails is left out, and what was measured is kept.
func TestFailures(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		fail func(run int, s Setting) bool
		err  error
		runs bool
	}{
		{"a setting", func(_ int, s Setting) bool { return s.Streams == 1 }, nil, true},
		{"the warm-up", func(int, Setting) bool { return true }, errRefused, false},
		{"the defaults", func(run int, s Setting) bool { return run > 6 && s == Setting{} }, errRefused, true},
		{"one run", func(run int, _ Setting) bool { return run == 5 }, nil, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := &line{random: rand.New(rand.NewPCG(*seed, 5)), noise: 0.01, of: func(Setting) Measure { return Measure{Goodput: 500e6} }}
			run := 0
			r, err := Run(t.Context(), Options{Servers: []string{"nas"}, Settings: streams, Size: 1e8, Rounds: 4, Budget: time.Hour, Seed: *seed,
				Measure: func(ctx context.Context, i int, s Setting, size int64, within time.Duration) (Measure, error) {
					if run++; c.fail(run, s) {
						return Measure{}, errRefused
					}
					return l.measure(ctx, i, s, size, within)
				}})
			require.ErrorIs(t, err, c.err)
			require.Equal(t, c.runs, r != nil)
			if c.name == "one run" {
				require.NotContains(t, fmt.Sprintf("%+v", r.Servers), "refused")
			} else if c.err == nil {
				last := r.Servers[0].Results[3]
				require.Equal(t, "1 stream: refused", last.Name+": "+last.Failure)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // Ctrl-C
		ctx, cancel := context.WithCancel(t.Context())
		l := &line{random: rand.New(rand.NewPCG(*seed, 6)), noise: 0.01, of: func(Setting) Measure { return Measure{Goodput: 500e6} }}
		r, err := Run(ctx, Options{Servers: []string{"nas"}, Settings: streams, Size: 1e8, Rounds: 4, Budget: time.Hour, Measure: func(ctx context.Context, i int, s Setting, size int64, within time.Duration) (Measure, error) {
			if ctx.Err() != nil {
				return Measure{}, ctx.Err()
			}
			return l.measure(ctx, i, s, size, within)
		}, Progress: func(done, _ int, _ string, _ Setting, _ Measure) {
			if done == 6 {
				cancel()
			}
		}})
		require.ErrorIs(t, err, context.Canceled)
		runs := 0
		for _, x := range r.Servers[0].Results {
			runs += len(x.Runs)
		}
		require.Equal(t, 6, runs)
	})
}

// TestServers: one setting may be best for all servers, or none.
func TestServers(t *testing.T) {
	t.Parallel()
	t.Logf("seed %d", *seed)
	for _, c := range []struct {
		good [2]int // the streams that are fast at each server; 0 is any
		best string
	}{{[2]int{4, 4}, "4 streams"}, {[2]int{4, 1}, "none"}, {[2]int{4, 0}, "4 streams"}, {[2]int{0, 0}, "defaults"}} {
		synctest.Test(t, func(t *testing.T) {
			l := &line{random: rand.New(rand.NewPCG(*seed, 7)), noise: 0.01}
			r := perform(t, l, Options{Servers: []string{"a", "b"}, Settings: streams,
				Measure: func(ctx context.Context, i int, s Setting, size int64, within time.Duration) (Measure, error) {
					l.of = func(Setting) Measure {
						if c.good[i] == 0 || s.Streams == c.good[i] {
							return Measure{Goodput: 500e6}
						}
						return Measure{Goodput: 300e6}
					}
					return l.measure(ctx, i, s, size, within)
				}})
			best := "none"
			if r.Best != nil {
				best = r.Best.String()
			}
			require.Equal(t, c.best, best, fmt.Sprint(c.good))
		})
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	require.Error(t, (&Options{}).Check())
	require.Error(t, (&Options{Settings: make([]Setting, 1)}).Check())
	require.Error(t, (&Options{Settings: make([]Setting, MostSettings+1)}).Check())
}
