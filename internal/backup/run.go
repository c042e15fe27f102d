package backup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/command"
	"github.com/fxfer/fxfer/internal/hint"
	"github.com/fxfer/fxfer/internal/path/diagnose/words"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// Task is one attempt to transfer the files of a job.
type Task struct {
	Job      *Job
	Snapshot string          // the name of the snapshot to make or resume
	Limit    *fxfer.Throttle // the timetable changes it
	Priority *fxfer.LivePriority
	Deadline time.Time                  // the end of the job's window; zero if that does not matter
	Left     func(fxfer.Progress) int64 // bytes to be written still, as in fxfer.Transfer; nil without a Deadline
	Again    bool                       // this is not the first attempt of the run
	// AllowFailed is how many entries a snapshot may lack and still be completed. Then Transfer
	// returns both the Report, which names the snapshot, and an error.
	AllowFailed int64
	Env         []string // of the command whose output is sent
	Progress    func(fxfer.Progress)
	Notice      func(string)
}

// Transferrer transfers the files of jobs. Its methods are safe for concurrent use.
type Transferrer interface {
	// Transfer makes one attempt. It may return both a Report and an error.
	Transfer(ctx context.Context, t *Task) (*fxfer.Report, error)
	// Prune removes the snapshots that the job's retention does not keep, and returns their names.
	Prune(ctx context.Context, j *Job) (removed []string, err error)
	// Snapshots returns the complete snapshots, the oldest first.
	Snapshots(ctx context.Context, j *Job) ([]fxfer.Snapshot, error)
	// Scrub lets the server verify a snapshot, as fxfer.Client.Scrub does.
	Scrub(ctx context.Context, j *Job, snapshot string, call fxfer.Verification) (*fxfer.Comparison, error)
}

// Runner runs jobs. Its methods are safe for concurrent use.
type Runner struct {
	Store       *Store
	Transferrer Transferrer
	Clock       Clock
	Log         *slog.Logger
	// Watch gets the progress of runs, for people. It may be nil.
	Watch func(job string, p fxfer.Progress)

	priorities priorities
}

var (
	// ErrHandled means that a run was started before.
	ErrHandled = errors.New("this run was started before")
	// ErrPaused means that a run resumes when its window opens again.
	ErrPaused = errors.New("the window has closed: it goes on when the window opens")
	// errWindow means that the window has closed, and the job does not pause.
	errWindow = errors.New("it did not end within its window")
	// errSkipped means that a hook skipped the run.
	errSkipped = errors.New("skipped by a hook")
)

const (
	maxBackoff  = time.Hour
	progressGap = 5 * time.Second // time between two progress reports that are stored
	// endingTime is how long hooks may take after the process was asked to end.
	endingTime = 30 * time.Second
)

// Run starts the due run of a job, or resumes the active run, and returns its record when it is
// over. A run that is paused, or interrupted by the end of ctx, stays active; then the record is
// nil. A manual run ignores the window.
func (r *Runner) Run(ctx context.Context, j *Job, due time.Time, manual bool) (*Record, error) {
	unlock, err := r.Store.lock(j.Name)
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", j.Name, err)
	}
	record, err := r.run(ctx, j, due, manual)
	unlock()
	switch {
	case record != nil && record.Outcome == Good:
		r.tell(ctx, j, EventSuccess, record, "")
		r.checkDamage(ctx, j, record.Healing())
	case record != nil && record.Outcome != Skipped:
		r.tell(ctx, j, EventFailure, record, "")
	case errors.Is(err, ErrPaused):
		r.tell(ctx, j, EventPaused, nil, "")
	}
	return record, err
}

func (r *Runner) run(ctx context.Context, j *Job, due time.Time, manual bool) (*Record, error) {
	var a Active
	began := r.Clock.Now()
	err := r.Store.Update(j.Name, func(st *State) error {
		if st.Active == nil {
			if !manual && !due.After(st.Handled) {
				return ErrHandled
			}
			st.Active = &Active{Due: due, Manual: manual, Started: began}
			if j.Mode != Replica { // its snapshots have the names that they have at the source
				st.Active.Snapshot = snapshotName(due, began, st.Snapshot)
			}
			if !manual {
				st.Handled = due
			}
		}
		if st.Since.IsZero() {
			st.Since = began
		}
		st.Active.Leg = began
		a = *st.Active
		return nil
	})
	if err != nil {
		return nil, err
	}
	log := r.Log.With("job", j.Name, "due", a.Due.Format(time.RFC3339))
	log.Info("run begins", "snapshot", a.Snapshot, "attempts before", a.Attempts)
	l := &leg{Runner: r, job: j, active: &a, log: log, began: began}
	l.priority = r.priorities.begin(j)
	err = l.work(ctx)
	r.priorities.end(j)
	a.Working += r.Clock.Now().Sub(began).Seconds() - l.waited.Seconds()
	a.Working = max(0, a.Working)
	a.Leg = time.Time{}
	switch {
	case errors.Is(err, ErrPaused):
		a.Pauses++
		log.Info("run pauses", "bytes", a.Written)
		return nil, errors.Join(err, r.Store.Update(j.Name, func(st *State) error {
			st.Active = &a
			return nil
		}))
	case ctx.Err() != nil:
		log.Info("run is interrupted")
		return nil, errors.Join(ctx.Err(), r.Store.Update(j.Name, func(st *State) error {
			a.Leg = began // distinguishes a run under way from a paused one
			st.Active = &a
			return nil
		}))
	}
	record := l.record(err)
	if err := r.finish(j, record, &a); err != nil {
		return nil, err
	}
	log.Info("run ends", "outcome", record.Outcome, "bytes", record.Written)
	return record, nil
}

// snapshotName returns the name of a run's snapshot: its due time, or a later time if the last
// snapshot is as new, for example because it was made by hand. An append-only server accepts no
// older snapshots. Snapshots of a clock that was far ahead are ignored.
func snapshotName(due, now time.Time, last string) string {
	newest, err := snapshot.ParseName(last)
	if err != nil || snapshot.Name(due) > last || newest.Sub(now) > clockSlack {
		return snapshot.Name(due)
	}
	if snapshot.Name(now) > last {
		return snapshot.Name(now)
	}
	return snapshot.Name(newest.Add(time.Second))
}

// finish stores the outcome of a run.
func (r *Runner) finish(j *Job, record *Record, a *Active) error {
	return r.Store.Finish(record, func(st *State) error {
		st.Active, st.Last = nil, record
		if record.Outcome == Good {
			st.LastGood, st.Snapshot = j.restores(a), a.Snapshot
		}
		return nil
	})
}

// restores returns of when the files are that a good run has backed up. A replica is as old as its
// newest snapshot, also if the source has none that is newer; without any, it is zero.
func (j *Job) restores(a *Active) time.Time {
	if j.Mode != Replica {
		return a.Started
	}
	at, _ := snapshot.ParseName(a.Snapshot)
	return at
}

// leg is the part of a run between its start or resumption and its end or next pause.
type leg struct {
	*Runner
	job    *Job
	active *Active
	log    *slog.Logger
	began  time.Time

	priority *fxfer.LivePriority

	report   *fxfer.Report // report of the last attempt
	waited   time.Duration // time between attempts
	warnings []string
}

// work runs the hooks and the transfers.
func (l *leg) work(ctx context.Context) (err error) {
	inside, closed := l.withinWindow(ctx)
	defer closed()
	if text := command.Warning(l.job.Command); text != "" {
		l.warn(errors.New(text))
	}
	err = l.pre(inside)
	if err == nil {
		err = l.attempts(inside)
	}
	switch {
	case err == nil || ctx.Err() != nil:
	case errors.Is(context.Cause(inside), ErrPaused):
		err = ErrPaused
	case errors.Is(context.Cause(inside), errWindow):
		err = errWindow
	}
	if err == nil && l.job.Command != "" && l.report != nil && l.report.Bytes == 0 {
		l.warn(errors.New(command.Empty))
	}
	l.notStored()
	if err == nil && l.job.Mode != Mirror {
		l.prune(ctx)
	}
	return l.post(ctx, err)
}

// withinWindow returns a context that ends when the job's window closes, if the run has to end
// then.
func (l *leg) withinWindow(ctx context.Context) (context.Context, func()) {
	inside, cancel := context.WithCancelCause(ctx)
	j := l.job
	if j.Overrun == Continue || j.Window.Always() || !j.Window.Open(l.began) {
		return inside, func() { cancel(nil) }
	}
	var watch sync.WaitGroup
	watch.Go(func() {
		for inside.Err() == nil {
			now := l.Clock.Now()
			if !j.Window.Open(now) {
				cause := errWindow
				if j.Overrun == Pause {
					cause = ErrPaused
				}
				cancel(cause)
				return
			}
			l.Clock.Sleep(inside, upTo(j.Window.Change(now), now, lookEvery))
		}
	})
	return inside, func() {
		cancel(nil)
		watch.Wait()
	}
}

// attempts repeats the transfer until it succeeds or another attempt would be useless.
func (l *leg) attempts(ctx context.Context) error {
	limit, done := l.underTimetable(ctx)
	defer done()
	for try := 0; ; try++ {
		l.active.Attempts++
		allowed := 0
		if try >= partialRetries(l.job.Retries) { // the next attempt might be complete
			allowed = l.job.AllowFailed
		}
		report, err := l.attempt(ctx, limit, allowed)
		l.count(report, err)
		if fxfer.KindOf(err) == fxfer.KindPartial && report != nil && report.Snapshot != "" {
			l.warn(err)
			return nil
		}
		if try == 0 && errors.Is(err, fxfer.ErrSnapshotExists) { // the snapshot was made before the clock was set back
			if err = l.rename(); err == nil {
				continue
			}
		}
		more := attemptsLeft(err, try, l.job.Retries)
		if err == nil || ctx.Err() != nil || more == 0 {
			return err
		}
		wait, all := l.job.wait(try), time.Duration(0)
		for i := range more {
			all += l.job.wait(try + i)
		}
		l.log.Warn("attempt failed", "error", err, "again in", wait, GivesUpIn, all)
		from := l.Clock.Now()
		l.Clock.Sleep(ctx, wait)
		l.waited += max(0, l.Clock.Now().Sub(from))
	}
}

// rename names the run's snapshot after the present time.
func (l *leg) rename() error {
	name := snapshot.Name(l.Clock.Now())
	l.active.Snapshot = name
	return l.Store.Update(l.job.Name, func(st *State) error {
		if st.Active != nil {
			st.Active.Snapshot = name
		}
		return nil
	})
}

// GivesUpIn is the attribute by which the log says how long a run that has failed waits for success.
const GivesUpIn = "gives up in"

// wait is the time between an attempt, counted from 0, and the next one.
func (j *Job) wait(try int) time.Duration { return min(j.Backoff<<min(try, 20), maxBackoff) }

// attemptsLeft is how many attempts may follow this one, which failed.
func attemptsLeft(err error, try, retries int) int {
	var known *fxfer.Error
	if errors.As(err, &known) && known.Advice == fxfer.AdviceStandardCrypto { // the processor stays as it is
		return 0
	}
	switch fxfer.KindOf(err) {
	case fxfer.KindUsage, fxfer.KindTrust:
		return 0
	case fxfer.KindPartial: // changing files may be stable now; unreadable files stay unreadable
		retries = partialRetries(retries)
	}
	return max(0, retries-try)
}

// partialRetries is how many attempts may follow one in which some entries failed.
func partialRetries(retries int) int { return min(2, retries) }

// underTimetable returns a limit that follows the job's timetable.
func (l *leg) underTimetable(ctx context.Context) (limit *fxfer.Throttle, done func()) {
	table := l.job.Rate
	limit = fxfer.NewThrottle(table.Rate(l.Clock.Now()))
	ctx, cancel := context.WithCancel(ctx)
	var follow sync.WaitGroup
	follow.Go(func() {
		for table.rates != nil && ctx.Err() == nil {
			now := l.Clock.Now()
			if rate := table.Rate(now); rate != limit.Rate() {
				limit.Set(rate)
				l.log.Info("the timetable changes the rate", "bits_per_second", rate)
			}
			l.Clock.Sleep(ctx, upTo(table.Change(now), now, lookEvery))
		}
	})
	return limit, func() {
		cancel()
		follow.Wait()
	}
}

func (l *leg) attempt(ctx context.Context, limit *fxfer.Throttle, allowed int) (*fxfer.Report, error) {
	var latest atomic.Pointer[fxfer.Progress]
	left := l.left()
	saving, stop := context.WithCancel(ctx)
	var saver sync.WaitGroup
	saver.Go(func() { l.save(saving, &latest) })
	defer saver.Wait()
	defer stop()
	return l.Transferrer.Transfer(ctx, &Task{
		Job: l.job, Snapshot: l.active.Snapshot, Limit: limit, Priority: l.priority, Deadline: l.deadline(), Left: left, Again: l.active.Attempts > 1, Env: l.env(), AllowFailed: int64(allowed),
		Progress: func(p fxfer.Progress) {
			latest.Store(&p)
			if l.Watch != nil {
				l.Watch(l.job.Name, p)
			}
		},
		Notice: func(text string) { l.log.Info(text) },
	})
}

// save stores the progress, for status and for the forecast after a pause.
func (l *leg) save(ctx context.Context, latest *atomic.Pointer[fxfer.Progress]) {
	var saved *fxfer.Progress
	keep := func() {
		p := latest.Load()
		if p == saved {
			return
		}
		saved = p
		l.active.Now = progressOf(p, l.Clock.Now())
		now := l.active.Now
		if err := l.Store.Update(l.job.Name, func(st *State) error {
			if st.Active != nil {
				st.Active.Now = now
			}
			return nil
		}); err != nil {
			l.log.Warn("the progress was not stored", "error", err)
		}
	}
	for first := time.Second; ctx.Err() == nil; first = progressGap {
		l.Clock.Sleep(ctx, first)
		keep()
	}
	keep()
}

func progressOf(p *fxfer.Progress, at time.Time) Progress {
	return Progress{At: at, Walking: p.Walking, Files: p.Files, Bytes: p.Bytes, Done: p.BytesDone, Written: p.Written, Goodput: p.Goodput, Limiter: p.Limiter}
}

// count adds the figures of an attempt, which ended with err, to those of the run.
func (l *leg) count(report *fxfer.Report, err error) {
	if report == nil {
		return
	}
	l.report = report
	if l.job.Mode == Replica {
		l.active.Snapshot = report.Snapshot
	}
	l.active.Now.Written = 0 // it is part of the sum now
	leftNothing := err != nil && l.job.Command != ""
	if !leftNothing {
		l.active.Written += report.Written
	}
	read, sent := traffic(report)
	l.active.Read += read
	l.active.Sent += sent
	l.active.Priorities = append(l.active.Priorities, changesOf(report)...)
}

// changesOf returns the changes of priority in words.
func changesOf(r *fxfer.Report) (all []string) {
	for _, c := range r.Changes {
		all = append(all, c.String())
	}
	return all
}

// traffic returns how many bytes a transfer read, and how many it sent over the network.
func traffic(r *fxfer.Report) (read, sent int64) {
	sent = r.Written + r.Resent
	return sent + r.Copied, sent - r.Raw + r.Coded
}

func (l *leg) prune(ctx context.Context) {
	removed, err := l.Transferrer.Prune(ctx, l.job)
	if err != nil && !errors.Is(err, ErrServerPrunes) {
		l.warn(fmt.Errorf("retention: %w", err))
	}
	if len(removed) > 0 {
		l.log.Info("retention has removed snapshots", "names", removed)
	}
}

// notStored warns of what the target could not store: a restore would not bring it back. A user who
// sends files is their owner, or may not care.
func (l *leg) notStored() {
	if l.report == nil {
		return
	}
	for _, x := range l.report.NotStored {
		if x.What != "owner" || l.job.Pulls() || os.Geteuid() == 0 {
			l.warn(errors.New(x.String()))
		}
	}
}

func (l *leg) warn(err error) {
	l.log.Warn(err.Error())
	l.warnings = append(l.warnings, err.Error())
}

// env returns the environment variables of hooks and commands.
func (l *leg) env() []string {
	return []string{
		"FXFER_JOB=" + l.job.Name, "FXFER_DUE=" + l.active.Due.UTC().Format(time.RFC3339), "FXFER_SNAPSHOT=" + l.active.Snapshot,
		"FXFER_DESTINATION=" + l.job.Target(), "FXFER_ATTEMPT=" + strconv.Itoa(l.active.Attempts),
	}
}

// pre runs the hooks before the transfer.
func (l *leg) pre(ctx context.Context) error {
	for _, h := range l.job.Pre {
		err := command.Run(ctx, h.Command, h.Timeout, append(l.env(), h.Env...), nil)
		if err == nil {
			continue
		}
		err = fmt.Errorf("hook %q: %w", brief(h.Command), err)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case h.Failure == "skip":
			l.warn(err)
			return errSkipped
		case h.Failure == "warn":
			l.warn(err)
		default:
			return err
		}
	}
	return nil
}

// post runs all hooks after a transfer that ended with err, even if the process was asked to end.
// It returns the error of the whole run.
func (l *leg) post(ctx context.Context, err error) error {
	env := append(l.env(), "FXFER_OUTCOME="+string(outcomeOf(ctx, err)), "FXFER_BYTES="+strconv.FormatInt(l.active.Written, 10))
	if err != nil {
		env = append(env, "FXFER_ERROR="+err.Error())
	}
	result := err
	for _, h := range l.job.Post {
		if h.When == "success" && err != nil || h.When == "failure" && err == nil {
			continue
		}
		most := h.Timeout
		if ctx.Err() != nil {
			most = min(most, endingTime)
		}
		failed := command.Run(context.WithoutCancel(ctx), h.Command, most, append(env, h.Env...), nil)
		if failed == nil {
			continue
		}
		failed = fmt.Errorf("hook %q: %w", brief(h.Command), failed)
		if h.Failure == "fail" && result == nil {
			result = failed
			continue
		}
		l.warn(failed)
	}
	return result
}

// brief shortens a command for a message.
func brief(command string) string {
	const most = 60
	if len(command) > most {
		return command[:most] + "…"
	}
	return command
}

// outcomeOf returns the outcome of a run that ended with err. Only hooks get to see ErrPaused.
func outcomeOf(ctx context.Context, err error) Outcome {
	switch {
	case err == nil:
		return Good
	case errors.Is(err, ErrPaused):
		return "paused"
	case errors.Is(err, errSkipped):
		return Skipped
	case ctx.Err() != nil:
		return Interrupted
	case fxfer.KindOf(err) == fxfer.KindPartial:
		return Partial
	}
	return Failed
}

// record returns the record of a run that has ended.
func (l *leg) record(err error) *Record {
	a, j := l.active, l.job
	rec := &Record{
		Job: j.Name, Verb: "backup", Target: j.Target(), Due: a.Due, Started: a.Started, Ended: l.Clock.Now(), Working: a.Working,
		Outcome: outcomeOf(context.Background(), err), Warnings: l.warnings, Attempts: a.Attempts, Pauses: a.Pauses,
		Written: a.Written, Read: a.Read, Sent: a.Sent, Priorities: a.Priorities,
	}
	if j.Mode == Snapshots {
		rec.Snapshot = a.Snapshot
		rec.Target += a.Snapshot
	}
	if j.Command != "" {
		rec.Target = strings.TrimSuffix(rec.Target, "/") + "/" + j.File
	}
	if rec.Working > 0 {
		rec.Goodput = float64(rec.Written) * 8 / rec.Working
	}
	if l.report != nil {
		rec.measured(l.report)
	}
	if err != nil {
		rec.Error, rec.Hint, rec.err = err.Error(), hint.Of(err), err
	}
	return rec
}

// measured copies the figures of a report into a record.
func (r *Record) measured(report *fxfer.Report) {
	r.Files, r.Failures, r.Bytes, r.Peak, r.Digest = report.Files, report.Failed, report.Bytes, report.Peak, report.Digest
	for i := range report.Failures[:min(len(report.Failures), mostCauses)] {
		r.Causes = append(r.Causes, report.Failures[i].Failure().Error())
	}
	r.Healed = report.Healed
	r.Priority = string(report.Sharing.Priority)
	if len(report.Limits) > 0 {
		first := &report.Limits[0]
		r.Limiter, r.Hint = words.Name(first), words.Hint(first)
	}
}

// RecordOf returns the record of a plain transfer.
func RecordOf(verb, target string, started time.Time, r *fxfer.Report, err error) *Record {
	rec := &Record{Verb: verb, Target: target, Started: started, Ended: time.Now(), Outcome: outcomeOf(context.Background(), err), Attempts: 1}
	if r != nil {
		rec.measured(r)
		rec.Attempts += r.Reconnects
		rec.Written, rec.Goodput, rec.Working = r.Written, r.Goodput, r.Duration.Seconds()
		rec.Read, rec.Sent = traffic(r)
		rec.Priorities = changesOf(r)
	}
	if err != nil {
		rec.Error = err.Error()
		if fxfer.KindOf(err) == fxfer.KindInterrupted {
			rec.Outcome = Interrupted
		}
	}
	return rec
}
