package backup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// setClock is a clock that tests can set. It is based on the clock of a synctest bubble or of this
// host.
type setClock struct{ offset atomic.Int64 }

func (c *setClock) Now() time.Time      { return time.Now().Round(0).Add(time.Duration(c.offset.Load())) }
func (c *setClock) set(d time.Duration) { c.offset.Add(int64(d)) }

func (c *setClock) Sleep(ctx context.Context, d time.Duration) { SystemClock{}.Sleep(ctx, d) }

// fakeTransferrer takes some time, and sometimes fails.
type fakeTransferrer struct {
	clock Clock
	mu    sync.Mutex
	rand  *rand.Rand
	busy  map[string]bool
	begun map[string][]begun
	over  bool // a job ran twice at the same time
}

type begun struct {
	snapshot string
	at       time.Time
}

func (f *fakeTransferrer) Transfer(ctx context.Context, t *Task) (*fxfer.Report, error) {
	name := t.Job.Name
	f.mu.Lock()
	f.over = f.over || f.busy[name]
	f.busy[name] = true
	again := slices.ContainsFunc(f.begun[name], func(b begun) bool { return b.snapshot == t.Snapshot })
	if !again {
		f.begun[name] = append(f.begun[name], begun{t.Snapshot, f.clock.Now()})
	}
	takes, fails := time.Duration(f.rand.IntN(1500))*time.Second, f.rand.IntN(10) == 0
	f.mu.Unlock()
	SystemClock{}.Sleep(ctx, takes)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy[name] = false
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if fails && !again {
		return nil, &fxfer.Error{Kind: fxfer.KindUnreachable, Err: errors.New("the line is down")}
	}
	return &fxfer.Report{Files: 1, Bytes: 1000, Written: 1000}, nil
}

func (f *fakeTransferrer) Prune(context.Context, *Job) ([]string, error) { return nil, nil }

func (*fakeTransferrer) Snapshots(context.Context, *Job) ([]fxfer.Snapshot, error) { return nil, nil }

func (*fakeTransferrer) Scrub(context.Context, *Job, string, fxfer.Verification) (*fxfer.Comparison, error) {
	return nil, nil
}

// testStore returns a Store that need not survive a loss of power.
func testStore(t *testing.T) *Store {
	s := OpenStore(t.TempDir())
	s.noSync = true
	return s
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// The test covers a year with a leap day, two days on which clocks are set, a week without the
// daemon, restarts, and a host whose clock is set back. Each due run is made exactly once; those of
// the missing week are made as one. The test runs alone: when another test starts a program, the
// child holds this process's file locks until it executes. That is a moment of real time, but hours
// of virtual time, in which the job would count as running.
func TestYear(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, and other tests have its goroutines as well")
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	store := testStore(t)
	synctest.Test(t, func(t *testing.T) {
		config, err := parseConfig("jobs", []byte(`
time-zone: Europe/Berlin
jobs:
- {name: night, schedule: 30 2 * * *, jitter: 10m, sources: [/a], destination: fxfer://h/s/night, retries: 3}
- {name: often, schedule: 15 */6 * * *, time-zone: America/New_York, sources: [/a], destination: fxfer://h/s/often}
- {name: leap, schedule: 0 4 29 2 *, sources: [/a], destination: fxfer://h/s/leap}
- {name: window, schedule: 0 20 * * mon-fri, window: 22:00-06:00, overrun: pause, sources: [/a], destination: fxfer://h/s/window}
`))
		require.NoError(t, err)
		clock := &setClock{}
		transferrer := &fakeTransferrer{clock: clock, rand: rand.New(rand.NewPCG(seed, 0)), busy: map[string]bool{}, begun: map[string][]begun{}}
		daemon := &Daemon{Runner: &Runner{Store: store, Transferrer: transferrer, Clock: clock, Log: quiet()}, Config: config, Look: 6 * time.Hour}
		start := clock.Now()
		require.Equal(t, 2000, start.Year(), "a leap year")

		// until runs the daemon until a time of day.
		until := func(at time.Time) {
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { require.NoError(t, daemon.Run(ctx)) })
			time.Sleep(at.Sub(clock.Now()))
			cancel()
			running.Wait()
		}
		type down struct{ from, to time.Time }
		var downs []down
		day := func(month time.Month, day, hour, minute int) time.Time {
			return time.Date(2000, month, day, hour, minute, 0, 0, config.Jobs[0].Zone)
		}
		until(day(2, 10, 2, 35)) // during a run or before it: the run continues
		until(day(4, 3, 12, 0))
		downs = append(downs, down{clock.Now(), day(4, 10, 12, 0)})
		time.Sleep(day(4, 10, 12, 0).Sub(clock.Now()))
		// The clock is set back over past runs while the daemon runs.
		steps := []struct{ at, to time.Time }{
			{day(6, 1, 4, 0), day(6, 1, 1, 0)}, {day(7, 1, 12, 0), day(6, 30, 13, 0)}, {day(8, 1, 2, 31), day(8, 1, 2, 29)},
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { require.NoError(t, daemon.Run(ctx)) })
		for _, s := range steps {
			time.Sleep(s.at.Sub(clock.Now()))
			clock.set(s.to.Sub(s.at))
		}
		time.Sleep(day(11, 1, 0, 0).Sub(clock.Now()))
		cancel()
		running.Wait()
		// The clock is set back while the daemon does not run.
		clock.set(-5 * time.Hour)
		end := day(12, 31, 23, 0)
		until(end)
		require.False(t, transferrer.over, "a job ran beside itself")

		for _, j := range config.Jobs {
			var want []string
			dues := map[string]time.Time{}
			for due := j.Schedule.Next(start); due.Before(end.Add(-time.Hour)); due = j.Schedule.Next(due) {
				name := due.UTC().Format("2006-01-02T150405Z")
				dues[name] = due
				next := j.Schedule.Next(due)
				missed := false
				for _, d := range downs {
					missed = missed || due.After(d.from) && next.Before(j.Window.Opening(d.to))
				}
				if !missed {
					want = append(want, name)
				}
			}
			var got []string
			late := 0
			for _, b := range transferrer.begun[j.Name] {
				got = append(got, b.snapshot)
				require.False(t, b.at.Before(dues[b.snapshot]), "%s: %s began early, at %v", j.Name, b.snapshot, b.at)
				if after := b.at.Sub(dues[b.snapshot]); after > j.Jitter+time.Second && j.Window.Always() {
					late++
				}
				require.True(t, j.Window.Open(b.at), "%s: %v", j.Name, b.at)
			}
			if n := len(got); n > 0 && n == len(want)+1 { // at the very end
				got = got[:n-1]
			}
			require.Equal(t, want, got, j.Name)
			t.Logf("%s: %d runs of as many due times, %d of them late", j.Name, len(got), late)
			require.LessOrEqual(t, late, 2, "%s: only what was missed is late, and what became due while that was made up for", j.Name)
			st, err := store.State(j.Name)
			require.NoError(t, err)
			require.Equal(t, st.Handled.UTC().Format("2006-01-02T150405Z"), transferrer.begun[j.Name][len(transferrer.begun[j.Name])-1].snapshot)
		}
		require.Len(t, transferrer.begun["leap"], 1)
		history, err := store.History("night", time.Time{})
		require.NoError(t, err)
		good := 0
		for _, r := range history {
			require.Equal(t, Good, r.Outcome, r.Error)
			good++
		}
		require.InDelta(t, 366-7, good, 2)
	})
}

// After a clock was years ahead, backups are made again.
func TestClockFarAhead(t *testing.T) {
	store := testStore(t)
	synctest.Test(t, func(t *testing.T) {
		config, err := parseConfig("jobs", []byte(`jobs: [{name: a, schedule: "@daily", time-zone: UTC, sources: [/a], destination: fxfer://h/s/a}]`))
		require.NoError(t, err)
		clock := &setClock{}
		clock.set(10 * 366 * 24 * time.Hour)
		transferrer := &fakeTransferrer{clock: clock, rand: rand.New(rand.NewPCG(1, 0)), busy: map[string]bool{}, begun: map[string][]begun{}}
		daemon := &Daemon{Runner: &Runner{Store: store, Transferrer: transferrer, Clock: clock, Log: quiet()}, Config: config}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { require.NoError(t, daemon.Run(ctx)) })
		time.Sleep(60 * time.Hour)
		ahead := len(transferrer.begun["a"])
		require.Positive(t, ahead)
		clock.set(-10 * 366 * 24 * time.Hour)
		time.Sleep(48 * time.Hour)
		cancel()
		running.Wait()
		require.Len(t, transferrer.begun["a"], ahead+2)
	})
}

func TestNext(t *testing.T) {
	at := func(s string) time.Time {
		if s == "" {
			return time.Time{}
		}
		return moment(t, "2026-11-"+s+":00Z")
	}
	job := func(text string) *Job {
		c, err := parseConfig("jobs", []byte(fmt.Sprintf("time-zone: UTC\njobs: [{name: a, sources: [/a], destination: fxfer://h/s/a, %s}]", text)))
		require.NoError(t, err)
		return c.Jobs[0]
	}
	const nightly, window = "schedule: 0 2 * * *", "schedule: 0 20 * * *, window: 22:00-06:00, overrun: pause"
	for _, test := range []struct {
		what               string
		job                string
		handled, now, free string
		active             bool
		due, from, to      string // the run begins within from..to
	}{
		{"not yet", nightly, "20T02:00", "20T12:00", "20T10:00", false, "21T02:00", "21T02:00", "21T02:00"},
		{"now", nightly, "20T02:00", "21T02:00", "20T10:00", false, "21T02:00", "21T02:00", "21T02:00"},
		{"missed", nightly, "14T02:00", "21T12:00", "21T12:00", false, "21T02:00", "21T12:00", "21T12:01"},
		{"missed, with jitter", nightly + ", jitter: 1h", "14T02:00", "21T12:00", "21T12:00", false, "21T02:00", "21T12:00", "21T13:00"},
		{"clock set back", nightly, "21T02:00", "21T01:00", "21T01:00", false, "22T02:00", "22T02:00", "22T02:00"},
		{"waits for the window", window, "19T20:00", "20T20:30", "20T10:00", false, "20T20:00", "20T22:00", "20T22:00"},
		{"missed, outside of it", window, "17T20:00", "20T12:00", "20T12:00", false, "19T20:00", "20T22:00", "20T22:00"},
		{"paused", window, "19T20:00", "20T07:00", "20T06:00", true, "19T20:00", "20T22:00", "20T22:00"},
		{"cut off", window, "19T20:00", "20T03:00", "20T03:00", true, "19T20:00", "20T03:00", "20T03:00"},
		{"cut off, continues anyway", "schedule: 0 20 * * *, window: 22:00-06:00", "19T20:00", "20T07:00", "20T07:00", true, "19T20:00", "20T07:00", "20T07:00"},
		{"by hand only", "retries: 1", "", "20T07:00", "20T07:00", false, "", "", ""},
		{"jitter longer than the period", "schedule: '*/10 * * * *', jitter: 3h", "20T00:00", "20T11:00", "19T00:00", false, "", "20T11:00", "20T11:00"},
	} {
		st := &State{Handled: at(test.handled)}
		if test.active {
			st.Active = &Active{Due: st.Handled}
		}
		s := job(test.job).next(st, at(test.now), at(test.free))
		if test.due != "" {
			require.Equal(t, at(test.due), s.due.UTC(), test.what)
		}
		require.Equal(t, test.active, s.resume, test.what)
		require.False(t, s.at.Before(at(test.from)), "%s: %v", test.what, s.at)
		require.False(t, s.at.After(at(test.to)), "%s: %v", test.what, s.at)
	}
	require.True(t, job(nightly).next(&State{Handled: at("25T02:00")}, at("20T00:00"), at("20T00:00")).rewind)
}

func TestStoreIsShared(t *testing.T) {
	store := testStore(t)
	other := OpenStore(filepath.Dir(store.path))
	require.NoError(t, other.view(nil), "nothing there yet")
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() {
			for n := range 10 {
				if err := store.Add(&Record{Verb: "send", Started: time.Unix(int64(i*1000+n), 0)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	records, err := other.History("", time.Unix(1000, 0))
	require.NoError(t, err)
	require.Len(t, records, 30)
	require.True(t, slices.IsSortedFunc(records, func(a, b Record) int { return a.Started.Compare(b.Started) }))
	unlock, err := store.lock("a")
	require.NoError(t, err)
	require.True(t, other.Running("a"))
	unlock()
	require.False(t, other.Running("a"))
}
