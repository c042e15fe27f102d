package tune

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fxfer/fxfer/internal/units"
)

const (
	// MostSettings limits the settings of an experiment: each takes runs in every round, and the
	// more there are, the larger a difference has to be.
	MostSettings = 32
	// leastSize is the least number of bytes in a run. With less, a run is all slow start.
	leastSize = 2e6
	// leastWithin and mostWithin limit the time of a run. patience is how much longer than the
	// warm-up a run may take.
	leastWithin, mostWithin = 5 * time.Second, 45 * time.Second
	patience                = 5
	// moreRounds limits the rounds in all, as a multiple of those that were asked for.
	moreRounds = 3
	// early is alpha for looks at the results before the end. It is so small that many looks do
	// not make claims of chance more frequent (Haybittle 1971, Peto 1976).
	early = 0.001
)

// Options describe an experiment.
type Options struct {
	Servers  []string // names
	Settings []Setting
	Size     int64 // bytes in each run
	Rounds   int
	Budget   time.Duration // for all runs
	Seed     uint64        // of the order of the runs
	// Measure makes a run: it sends size bytes, or what it can within a time. It is called for one
	// run at a time.
	Measure func(ctx context.Context, server int, s Setting, size int64, within time.Duration) (Measure, error)
	// Progress is called after each run. planned is the number of runs, as far as is known. It may
	// be nil.
	Progress func(done, planned int, server string, s Setting, m Measure)
}

// experiment is one that runs.
type experiment struct {
	Options
	random *rand.Rand
	begun  time.Time
	report *Report
	within []time.Duration // of each run, by server
	lasted []time.Duration // the warm-up, by server
	done   int             // runs
}

// step is one run to make.
type step struct {
	server  int
	setting Setting
}

// Run makes an experiment. When it fails, or ctx ends, the report has what was measured until then;
// it is nil if that is nothing.
func Run(ctx context.Context, opt Options) (*Report, error) {
	x := &experiment{Options: opt, begun: time.Now(), random: rand.New(rand.NewPCG(opt.Seed, 0))}
	x.report = &Report{Seed: opt.Seed, Size: opt.Size, Asked: opt.Size}
	err := x.run(ctx)
	if x.done == 0 {
		return nil, err
	}
	for i := range x.report.Servers {
		x.report.Servers[i].evaluate()
	}
	x.report.Best = bestForAll(x.report.Servers)
	x.report.Seconds = time.Since(x.begun).Seconds()
	return x.report, err
}

func (x *experiment) run(ctx context.Context) error {
	for i := range x.Servers {
		if err := x.warmUp(ctx, i); err != nil {
			return err
		}
	}
	x.fit()
	for round := 1; round <= moreRounds*x.Rounds; round++ {
		steps := x.plan(round)
		if len(steps) == 0 || round > x.Rounds && time.Since(x.begun)+x.estimate(steps) > x.Budget {
			break
		}
		for i, s := range steps {
			if time.Since(x.begun) > x.Budget {
				x.note("the time of %s was over in round %d", units.Time(x.Budget), round)
				return nil
			}
			planned := x.done + len(steps) - i + max(0, x.Rounds-round)*len(steps)
			if err := x.make(ctx, round, s, planned); err != nil {
				return err
			}
		}
		x.report.Rounds = round
	}
	return nil
}

func (x *experiment) note(format string, args ...any) {
	x.report.Notes = append(x.report.Notes, fmt.Sprintf(format, args...))
}

// warmUp makes a run with the defaults that does not count. It fills caches, and shows how long a
// run takes.
func (x *experiment) warmUp(ctx context.Context, server int) error {
	begun := time.Now()
	m, err := x.Measure(ctx, server, Setting{}, x.Size, min(mostWithin, x.Budget/4))
	if err != nil {
		return err
	}
	s := Server{Name: x.Servers[server], RTT: m.RTT, BDP: m.Goodput / 8 * m.RTT, Results: []Result{{Name: Setting{}.String()}}}
	for _, setting := range x.Settings {
		s.Results = append(s.Results, Result{Setting: setting, Name: setting.String()})
	}
	x.report.Servers = append(x.report.Servers, s)
	x.lasted = append(x.lasted, time.Since(begun))
	x.within = append(x.within, min(mostWithin, max(leastWithin, seconds(patience*m.Seconds))))
	if m.Bytes < x.Size*9/10 { // it was cut
		x.report.Size = max(leastSize, min(x.report.Size, m.Bytes))
	}
	return nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// fit makes the runs smaller if those of all rounds would take longer than the budget.
func (x *experiment) fit() {
	runs := x.Rounds * (len(x.Settings) + 1)
	var all time.Duration
	for _, lasted := range x.lasted {
		all += lasted * time.Duration(runs)
	}
	left := x.Budget - time.Since(x.begun)
	if all > left && all > 0 {
		share := max(0, left.Seconds()/all.Seconds())
		x.report.Size = min(x.report.Size, max(leastSize, int64(share*float64(x.report.Size))))
	}
	if x.report.Size < x.Size {
		x.note("each run sends %s instead of %s, because the budget is %s", units.Bytes(x.report.Size), units.Bytes(x.Size), units.Time(x.Budget))
	}
}

// estimate is how long some runs will take about.
func (x *experiment) estimate(steps []step) (all time.Duration) {
	for _, s := range steps {
		all += x.lasted[s.server]
	}
	return all
}

// plan returns the runs of a round in random order. After the rounds that were asked for, only
// undecided settings run, and the defaults beside them.
func (x *experiment) plan(round int) (steps []step) {
	for i := range x.report.Servers {
		s := &x.report.Servers[i]
		open := s.open(round > x.Rounds)
		if len(open) == 0 {
			continue
		}
		for _, setting := range append(open, Setting{}) {
			steps = append(steps, step{i, setting})
		}
	}
	x.random.Shuffle(len(steps), func(i, k int) { steps[i], steps[k] = steps[k], steps[i] })
	return steps
}

// open returns the settings other than the defaults that have more runs to come: all that did not
// fail, or of them those that are undecided.
func (s *Server) open(undecided bool) (all []Setting) {
	defaults := s.Find(Setting{})
	var measured []*Result
	for i := range s.Results {
		if r := &s.Results[i]; !r.Defaults() && r.Failure == "" {
			measured = append(measured, r)
		}
	}
	mean := defaults.sum(goodputOf).Mean
	sure, likely := compare(measured, defaults, goodputOf, early), compare(measured, defaults, goodputOf, alpha)
	for i, r := range measured {
		if !undecided || !decided(sure[i], likely[i], matters*mean) {
			all = append(all, r.Setting)
		}
	}
	return all
}

// decided reports whether more runs would not change how a setting compares with the defaults: it
// certainly differs, or the difference does not matter.
func decided(sure, likely Interval, least float64) bool {
	differs := sure.Pairs >= leastPairs && !sure.HoldsZero()
	return differs || likely.known() && max(math.Abs(likely.Low), math.Abs(likely.High)) < least
}

// mostFailures is how many runs in a row may fail. A path may be gone for a moment.
const mostFailures = 2

// make makes one run. A setting that fails again and again has no more runs. If it is the defaults,
// the experiment ends.
func (x *experiment) make(ctx context.Context, round int, s step, planned int) error {
	server := &x.report.Servers[s.server]
	r := server.Find(s.setting)
	m, err := x.Measure(ctx, s.server, s.setting.On(server.BDP), x.report.Size, x.within[s.server])
	if err == nil && !(m.Goodput > 0) {
		err = errors.New("a run moved no data")
	}
	switch {
	case ctx.Err() != nil:
		return cmp.Or(err, ctx.Err())
	case err == nil:
		r.failures = 0
	default:
		if r.failures++; r.failures < mostFailures {
			return nil
		}
		if r.Defaults() {
			return err
		}
		r.Failure = err.Error()
		return nil
	}
	x.done++
	r.Runs = append(r.Runs, Trial{round, m})
	if x.Progress != nil {
		x.Progress(x.done, max(x.done, planned), server.Name, s.setting, m)
	}
	return nil
}

// Check rejects experiments that make no sense.
func (o *Options) Check() error {
	switch {
	case len(o.Settings) == 0:
		return errors.New("there is nothing to compare with the defaults")
	case len(o.Settings) > MostSettings:
		return fmt.Errorf("%d settings are too many: at most %d", len(o.Settings), MostSettings)
	case slices.Contains(o.Settings, Setting{}):
		return errors.New("the defaults are always compared")
	}
	return nil
}
