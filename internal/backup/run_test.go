package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// transferFunc is a Transferrer whose methods are functions.
type transferFunc func(ctx context.Context, t *Task) (*fxfer.Report, error)

func (c transferFunc) Transfer(ctx context.Context, t *Task) (*fxfer.Report, error) { return c(ctx, t) }
func (c transferFunc) Prune(context.Context, *Job) ([]string, error)                { return nil, nil }

func (transferFunc) Snapshots(context.Context, *Job) ([]fxfer.Snapshot, error) { return nil, nil }

func (transferFunc) Scrub(context.Context, *Job, string, fxfer.Verification) (*fxfer.Comparison, error) {
	return nil, nil
}

// hasty is a clock whose Sleep returns at once.
type hasty struct{ SystemClock }

func (hasty) Sleep(context.Context, time.Duration) {}

func oneJob(t *testing.T, text string) *Job {
	t.Helper()
	c, err := parseConfig("jobs", []byte("time-zone: UTC\njobs:\n- name: a\n  destination: fxfer://h/s/a\n"+text))
	require.NoError(t, err)
	return c.Jobs[0]
}

func needShell(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the hooks are for a POSIX shell")
	}
}

// The rule of a hook decides what its failure means. Hooks after the run always run.
func TestHooks(t *testing.T) {
	needShell(t)
	for _, test := range []struct {
		pre, post string
		transfer  error
		outcome   Outcome
		sent      bool
		told      string // the outcome that the hook after the run got
		warnings  int
	}{
		{pre: "true", post: "cat > /dev/null; true", outcome: Good, sent: true, told: "good"},
		{pre: "echo broken >&2; exit 3", outcome: Failed, told: "failed"},
		{pre: "{command: exit 3, on-failure: skip}", outcome: Skipped, told: "skipped", warnings: 1},
		{pre: "{command: exit 3, on-failure: warn}", outcome: Good, sent: true, told: "good", warnings: 1},
		{pre: "{command: sleep 60, timeout: 50ms}", outcome: Failed, told: "failed"},
		{post: "exit 3", outcome: Good, sent: true, told: "good", warnings: 1},
		{post: "{command: exit 3, on-failure: fail}", outcome: Failed, sent: true, told: "good"},
		{post: "{command: exit 3, when: failure}", outcome: Good, sent: true, told: "good"},
		{post: "{command: exit 3, when: success}", transfer: errors.New("no"), outcome: Failed, sent: true, told: "failed"},
		{pre: `{command: 'test "$MORE" = 1', env: {MORE: 1}}`, outcome: Good, sent: true, told: "good"},
	} {
		told := filepath.Join(t.TempDir(), "told")
		text := "  sources: [/a]\n  mode: mirror\n  retries: 0\n  post:\n  - echo $FXFER_JOB $FXFER_OUTCOME > " + told + "\n"
		if test.post != "" {
			text += "  - " + test.post + "\n"
		}
		if test.pre != "" {
			text += "  pre: " + test.pre + "\n"
		}
		sent := false
		r := &Runner{Store: testStore(t), Clock: hasty{}, Log: quiet(), Transferrer: transferFunc(func(context.Context, *Task) (*fxfer.Report, error) {
			sent = true
			return &fxfer.Report{}, test.transfer
		})}
		record, err := r.Run(t.Context(), oneJob(t, text), time.Now(), true)
		require.NoError(t, err)
		require.Equal(t, test.outcome, record.Outcome, "%+v: %s", test, record.Error)
		require.Equal(t, test.sent, sent, "%+v", test)
		require.Len(t, record.Warnings, test.warnings, "%+v: %v", test, record.Warnings)
		said, err := os.ReadFile(told)
		require.NoError(t, err)
		require.Equal(t, "a "+test.told+"\n", string(said))
		if strings.Contains(test.pre, "broken") {
			require.Contains(t, record.Error, "exit status 3: broken")
		}
	}
}

// A replica is as old as its newest snapshot: max-age notices that the source makes none any more. Hooks
// after the run get its name.
func TestAgeOfReplica(t *testing.T) {
	needShell(t)
	told := filepath.Join(t.TempDir(), "told")
	c, err := parseConfig("jobs", fmt.Appendf(nil, "time-zone: UTC\njobs:\n- {name: a, mode: replica, source: fxfer://h/s/a, destination: /a, max-age: 26h, post: 'echo $FXFER_SNAPSHOT. >> %s', pre: 'echo $FXFER_SNAPSHOT. >> %[1]s'}", told))
	require.NoError(t, err)
	job, now := c.Jobs[0], time.Now()
	newest := ""
	r := &Runner{Store: testStore(t), Clock: hasty{}, Log: quiet(), Transferrer: transferFunc(func(context.Context, *Task) (*fxfer.Report, error) {
		return &fxfer.Report{Snapshot: newest}, nil
	})}
	for _, x := range []struct {
		age   time.Duration // of the newest snapshot; 0 for none
		alarm bool
	}{{0, false}, {25 * time.Hour, false}, {27 * time.Hour, true}} {
		if x.age > 0 {
			newest = fxfer.SnapshotName(now.Add(-x.age))
		}
		record, err := r.Run(t.Context(), job, now, true)
		require.NoError(t, err)
		require.Equal(t, Good, record.Outcome)
		st, err := r.Store.State("a")
		require.NoError(t, err)
		require.Equal(t, x.age == 0, st.LastGood.IsZero())
		_, alarm := job.alarmed(&st, now)
		require.Equal(t, x.alarm, alarm, x.age)
		text, err := os.ReadFile(told)
		require.NoError(t, err)
		require.Equal(t, ".\n"+newest+".\n", string(text))
		require.NoError(t, os.Remove(told))
	}
}

// A snapshot that lacks a few entries is good, but only the last attempt may make such a snapshot.
func TestAllowFailed(t *testing.T) {
	lacking := &fxfer.Error{Kind: fxfer.KindPartial, Err: errors.New("2 entries failed")}
	for _, test := range []struct {
		text     string
		attempts []error // the error of each attempt; lacking makes the snapshot if it may
		outcome  Outcome
		allowed  []int64
	}{
		{"", []error{lacking}, Partial, []int64{0, 0, 0}},
		{"  allow-failed: 2\n", []error{lacking}, Good, []int64{0, 0, 2}},
		{"  allow-failed: 2\n  retries: 0\n", []error{lacking}, Good, []int64{2}},
		{"  allow-failed: 1\n", []error{lacking}, Partial, []int64{0, 0, 1}},
		{"  allow-failed: 2\n", []error{lacking, nil}, Good, []int64{0, 0}},
		{"  allow-failed: 2\n", []error{errors.New("lost"), errors.New("lost"), errors.New("lost"), lacking}, Good, []int64{0, 0, 2, 2}},
	} {
		var allowed []int64
		r := &Runner{Store: testStore(t), Clock: hasty{}, Log: quiet(), Transferrer: transferFunc(func(_ context.Context, task *Task) (*fxfer.Report, error) {
			err := test.attempts[min(len(allowed), len(test.attempts)-1)]
			allowed = append(allowed, task.AllowFailed)
			report := &fxfer.Report{}
			if errors.Is(err, lacking) {
				if report.Failed = 2; task.AllowFailed >= 2 {
					report.Snapshot = task.Snapshot
				}
			}
			return report, err
		})}
		job := oneJob(t, "  sources: [/a]\n"+test.text)
		record, err := r.Run(t.Context(), job, time.Now(), true)
		require.NoError(t, err)
		require.Equal(t, test.outcome, record.Outcome, "%+v", test)
		require.Equal(t, test.allowed, allowed, "%+v", test)
		st, err := r.Store.State("a")
		require.NoError(t, err)
		require.Equal(t, test.outcome == Good, !st.LastGood.IsZero())
		m := message{Event: EventSuccess, Job: "a", Host: "h", Run: record}
		if test.outcome == Good && record.Failures > 0 {
			require.Equal(t, []string{"2 entries failed"}, record.Warnings)
			require.Empty(t, record.Error)
			require.Equal(t, "backup a on h: success, without 2 entries that failed", m.text(job))
			require.Empty(t, StatusOf(job, st, nil, false, time.Now()).Alarm)
		}
	}
}

// All receivers get their notifications. A webhook that is down does not make a run fail.
func TestNotify(t *testing.T) {
	needShell(t)
	var mu sync.Mutex
	var got []message
	refusals := 1
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if refusals--; refusals >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		var m message
		body, _ := io.ReadAll(q.Body)
		if json.Unmarshal(body, &m) == nil && q.Header.Get("Authorization") == "Bearer x" {
			got = append(got, m)
		}
	}))
	defer hook.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	dead := "http://" + listener.Addr().String()
	listener.Close()
	file := filepath.Join(t.TempDir(), "told")
	job := oneJob(t, fmt.Sprintf(`  sources: [/a]
  mode: mirror
  retries: 0
  notify:
  - {webhook: '%s', on: [success, failure], timeout: 1s}
  - {webhook: '%s', on: [success, failure], headers: {Authorization: Bearer x}}
  - {command: 'cat >> %s', on: failure}
  - {command: 'exit 1', on: failure}
`, dead, hook.URL, file))
	var fail error
	r := &Runner{Store: testStore(t), Clock: hasty{}, Log: quiet(), Transferrer: transferFunc(func(context.Context, *Task) (*fxfer.Report, error) {
		return &fxfer.Report{Written: 5}, fail
	})}
	record, err := r.Run(t.Context(), job, time.Now(), true)
	require.NoError(t, err)
	require.Equal(t, Good, record.Outcome)
	require.NoFileExists(t, file)
	fail = &fxfer.Error{Kind: fxfer.KindUnreachable, Err: errors.New("the line is cut")}
	record, err = r.Run(t.Context(), job, time.Now(), true)
	require.NoError(t, err)
	require.Equal(t, Failed, record.Outcome)
	require.Len(t, got, 2, "after one refusal")
	require.Equal(t, EventSuccess, got[0].Event)
	require.Equal(t, EventFailure, got[1].Event)
	require.EqualValues(t, 5, got[0].Run.Written)
	require.Contains(t, got[1].Text, "the line is cut")
	said, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(said), "the line is cut")
}

// A run under way follows the timetable to the second, over midnight and over a change of the
// clocks.
func TestTimetableOfRunningTransfer(t *testing.T) {
	store := testStore(t)
	synctest.Test(t, func(t *testing.T) {
		clock := &setClock{}
		clock.set(moment(t, "2026-10-24T21:59:30Z").Sub(clock.Now())) // clocks are set back that night
		job := oneJob(t, "  time-zone: Europe/Berlin\n  sources: [/a]\n  mode: mirror\n  rate: 23:59:50-00:00:10 1mbit, 02:00-02:30 2mbit, otherwise unlimited\n")
		type change struct {
			at   string
			rate int64
		}
		var changes []change
		r := &Runner{Store: store, Clock: clock, Log: quiet(), Transferrer: transferFunc(func(ctx context.Context, task *Task) (*fxfer.Report, error) {
			for range 6 * 3600 * 10 {
				if rate := task.Limit.Rate(); len(changes) == 0 || changes[len(changes)-1].rate != rate {
					changes = append(changes, change{clock.Now().UTC().Format("15:04:05.0"), rate})
				}
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
			}
			return &fxfer.Report{}, nil
		})}
		_, err := r.Run(t.Context(), job, clock.Now(), true)
		require.NoError(t, err)
		require.Equal(t, []change{
			{"21:59:30.0", 0}, {"21:59:50.0", 1e6}, {"22:00:10.0", 0},
			{"00:00:00.0", 2e6}, {"00:30:00.0", 0}, {"01:00:00.0", 2e6}, {"01:30:00.0", 0},
		}, changes)
	})
}

// At the end of the window a run pauses, fails or continues, as its job says.
func TestOverrun(t *testing.T) {
	for _, overrun := range []Overrun{Continue, Pause, Fail} {
		store := testStore(t)
		synctest.Test(t, func(t *testing.T) {
			clock := &setClock{}
			clock.set(moment(t, "2026-11-20T21:00:00Z").Sub(clock.Now()))
			config, err := parseConfig("jobs", []byte("time-zone: UTC\njobs: [{name: a, schedule: 0 22 * * *, window: 22:00-06:00, overrun: "+string(overrun)+", sources: [/a], destination: fxfer://h/s/a, retries: 2}]"))
			require.NoError(t, err)
			left := 10 * time.Hour
			var names []string
			d := &Daemon{Config: config, Runner: &Runner{Store: store, Clock: clock, Log: quiet(), Transferrer: transferFunc(func(ctx context.Context, task *Task) (*fxfer.Report, error) {
				names = append(names, task.Snapshot)
				began := time.Now()
				SystemClock{}.Sleep(ctx, left)
				done := time.Since(began)
				left -= done
				return &fxfer.Report{Written: int64(done.Seconds())}, ctx.Err()
			})}}
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { require.NoError(t, d.Run(ctx)) })
			state := func() State {
				st, err := store.State("a")
				require.NoError(t, err)
				return st
			}
			time.Sleep(10 * time.Hour) // 07:00
			st := state()
			switch overrun {
			case Continue:
				require.NotNil(t, st.Active)
				require.False(t, st.Active.Leg.IsZero())
			case Pause:
				require.NotNil(t, st.Active)
				require.True(t, st.Active.Leg.IsZero())
				require.Equal(t, 1, st.Active.Pauses)
			case Fail:
				require.Nil(t, st.Active)
				require.Equal(t, Failed, st.Last.Outcome)
				require.Equal(t, 1, st.Last.Attempts)
			}
			time.Sleep(18 * time.Hour) // 01:00
			cancel()
			running.Wait()
			st = state()
			switch overrun {
			case Continue:
				require.Equal(t, "2026-11-21T08:00:00Z", first(store.History("a", time.Time{}))[0].Ended.UTC().Format(time.RFC3339))
			case Pause:
				record := first(store.History("a", time.Time{}))[0]
				require.Equal(t, "2026-11-22T00:00:00Z", record.Ended.UTC().Format(time.RFC3339))
				require.Equal(t, Good, record.Outcome)
				require.Equal(t, []string{"2026-11-20T220000Z", "2026-11-20T220000Z"}, names[:2], "the same snapshot")
				require.InDelta(t, 36000, record.Written, 2)
				require.InDelta(t, 36000, record.Working, 2)
			case Fail:
				require.Equal(t, Good, st.Last.Outcome)
				require.Equal(t, "2026-11-21T220000Z", st.Last.Snapshot)
			}
		})
	}
}

func first[A, B any](a A, _ B) A { return a }

// The alarm is raised once, and cleared by the next good backup.
func TestMaxAge(t *testing.T) {
	needShell(t)
	store, file := testStore(t), filepath.Join(t.TempDir(), "told")
	job := "schedule: 0 2 * * *, max-age: 30h, retries: 0, sources: [/a], destination: fxfer://h/s/a, notify: {command: 'echo $FXFER_EVENT >> " + file + "', on: [alarm, recovered]}"
	config, err := parseConfig("jobs", []byte("time-zone: UTC\njobs: [{name: a, "+job+"}]"))
	require.NoError(t, err)
	clock := &leapingClock{now: moment(t, "2026-11-20T00:00:00Z")}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d := &Daemon{Config: config, Look: time.Hour, Runner: &Runner{Store: store, Clock: clock, Log: quiet(), Transferrer: transferFunc(func(context.Context, *Task) (*fxfer.Report, error) {
		switch day := clock.Now().Day(); {
		case day == 27:
			cancel()
		case day > 20 && day < 25:
			return nil, errors.New("no")
		}
		return &fxfer.Report{}, nil
	})}}
	require.NoError(t, d.Run(ctx))
	said, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "alarm\nrecovered\n", string(said))
	history, err := store.History("a", time.Time{})
	require.NoError(t, err)
	s := StatusOf(config.Jobs[0], State{Since: clock.Now(), LastGood: clock.Now().Add(-31 * time.Hour)}, history, false, clock.Now())
	require.Equal(t, "the newest good backup is older than max-age", s.Alarm)
	require.NotNil(t, s.Forecast)
}

// leapingClock jumps to the end of each sleep. Only one goroutine may sleep.
type leapingClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *leapingClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *leapingClock) Sleep(ctx context.Context, d time.Duration) {
	if ctx.Err() == nil && d != progressGap && d != time.Second { // another goroutine waits this long to look at the progress
		c.mu.Lock()
		defer c.mu.Unlock()
		c.now = c.now.Add(d)
		return
	}
	<-ctx.Done()
}

func TestForecast(t *testing.T) {
	for _, test := range []struct {
		what, job, start string
		bytes            int64
		rate             float64
		overhead         time.Duration
		end              string
		fits             bool
		pauses           int
		left             int64
	}{
		{"plain", "", "20T22:00", 3600e6, 8e6, 0, "20T23:00", true, 0, 0},
		{"overhead", "", "20T22:00", 3600e6, 8e6, 30 * time.Minute, "20T23:30", true, 0, 0},
		{"nothing to send", "", "20T22:00", 0, 0, time.Minute, "20T22:01", true, 0, 0},
		{"fits", "window: 22:00-06:00", "20T22:00", 7 * 3600e6, 8e6, 0, "21T05:00", true, 0, 0},
		{"continues", "window: 22:00-06:00", "20T22:00", 9 * 3600e6, 8e6, 0, "21T07:00", false, 0, 3600e6},
		{"pauses", "window: 22:00-06:00, overrun: pause", "20T22:00", 9 * 3600e6, 8e6, 0, "21T23:00", false, 1, 3600e6},
		{"pauses twice", "window: 22:00-06:00, overrun: pause", "20T22:00", 17 * 3600e6, 8e6, 0, "22T23:00", false, 2, 9 * 3600e6},
		{"timetable", "rate: 08:00-18:00 4mbit", "20T07:00", 2 * 3600e6, 8e6, 0, "20T10:00", true, 0, 0},
		{"timetable faster than the path", "rate: 08:00-18:00 80mbit", "20T07:00", 2 * 3600e6, 8e6, 0, "20T09:00", true, 0, 0},
		{"overhead over a change", "rate: 23:00-24:00 4mbit", "20T22:00", 3600e6, 8e6, 90 * time.Minute, "21T00:45", true, 0, 0},
	} {
		text := "  sources: [/a]\n"
		for part := range strings.SplitSeq(test.job, ", ") {
			if part != "" {
				text += "  " + part + "\n"
			}
		}
		f := forecast(oneJob(t, text), moment(t, "2026-11-"+test.start+":00Z"), test.bytes, test.rate, test.overhead)
		require.Equal(t, "2026-11-"+test.end+":00Z", f.End.UTC().Format(time.RFC3339), test.what)
		require.Equal(t, test.fits, f.Fits, test.what)
		require.Equal(t, test.pauses, f.Pauses, test.what)
		require.InDelta(t, test.left, f.Left, 10, test.what)
	}
	never := forecast(oneJob(t, "  sources: [/a]\n"), time.Now(), 1, 0, 0)
	require.True(t, never.End.IsZero())
}

func TestEstimate(t *testing.T) {
	good := func(written int64, working, peak float64) Record {
		r := Record{Outcome: Good, Written: written, Working: working, Peak: peak}
		if working > 0 {
			r.Goodput = float64(written) * 8 / working
		}
		return r
	}
	require.False(t, estimate(nil).Known)
	require.False(t, estimate([]Record{{Outcome: Failed}}).Known)
	e := estimate([]Record{good(1e9, 100, 100e6), good(1.1e9, 110, 100e6), good(90e9, 9000, 100e6), {Outcome: Failed}})
	require.Equal(t, Estimate{Known: true, Bytes: 1.1e9, Rate: 80e6}, e, "one odd night counts little")
	e = estimate([]Record{good(1e6, 60, 80e6)})
	require.InEpsilon(t, 80e6, e.Rate, 1e-9)
	require.InDelta(t, 59.9, e.Overhead.Seconds(), 0.01, "looking for what has changed")
	e = estimate([]Record{good(0, 60, 0)})
	require.Equal(t, time.Minute, e.Overhead)
}

// The newest snapshot is verified each time, the others in turn.
func TestTurn(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	var st State
	verify := func(names []string) (other string) {
		chosen := turn(names, st.Snapshots)
		require.Equal(t, names[len(names)-1], chosen[0])
		st.noteRead(chosen)
		return chosen[1]
	}
	var got []string
	for range 5 {
		got = append(got, verify(names))
	}
	require.Equal(t, []string{"a", "b", "c", "a", "b"}, got)
	require.Equal(t, []string{"a"}, turn([]string{"a"}, st.Snapshots))
	require.Empty(t, turn(nil, nil))

	// Each night a snapshot comes and one goes. An old one that stays has its turn all the same.
	got = nil
	for n := range 8 {
		got = append(got, verify([]string{"a", fmt.Sprint("e", n), fmt.Sprint("e", n+1), fmt.Sprint("e", n+2)}))
	}
	for n := range len(got) - 3 {
		require.Contains(t, got[n:n+3], "a")
	}
}

func TestSnapshotName(t *testing.T) {
	due := moment(t, "2026-11-20T02:00:00Z")
	for last, want := range map[string]string{
		"":                   "2026-11-20T020000Z",
		"2026-11-19T020000Z": "2026-11-20T020000Z",
		"2026-11-20T020000Z": "2026-11-20T020500Z",
		"2026-11-20T020300Z": "2026-11-20T020500Z",
		"2026-11-20T020500Z": "2026-11-20T020501Z",
		"2036-11-20T020500Z": "2026-11-20T020000Z",
	} {
		require.Equal(t, want, snapshotName(due, due.Add(5*time.Minute), last), last)
	}
}

// TestAttemptsLeft: what will hardly go away by itself is tried less often, or not at all.
func TestAttemptsLeft(t *testing.T) {
	j := &Job{Retries: 5, Backoff: time.Minute}
	for kind, want := range map[fxfer.Kind]int{fxfer.KindUnreachable: 5, fxfer.KindPartial: 2, fxfer.KindUsage: 0, fxfer.KindTrust: 0} {
		err := &fxfer.Error{Kind: kind, Err: errors.New("x")}
		var all time.Duration
		for try := range 7 {
			require.Equal(t, max(0, want-try), attemptsLeft(err, try, j.Retries))
			if attemptsLeft(err, try, j.Retries) > 0 {
				all += j.wait(try)
			}
		}
		require.Equal(t, time.Minute<<want-time.Minute, all, "each time twice as long")
	}
	require.Equal(t, time.Hour, j.wait(100))
	require.Zero(t, attemptsLeft(&fxfer.Error{Advice: fxfer.AdviceStandardCrypto, Err: io.EOF}, 0, 5))
}
