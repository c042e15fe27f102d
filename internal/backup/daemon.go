package backup

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Daemon runs jobs when they are due.
type Daemon struct {
	*Runner
	// Config is the first configuration. Its file is read again when it changes.
	Config *Config
	// Reload asks to read the file now. It may be nil.
	Reload <-chan struct{}
	// Look is how often the clock, the states of the jobs and their file are checked; 0 is
	// lookEvery. Runs begin to the second anyway.
	Look time.Duration
}

// Run runs jobs until ctx ends, and returns when all of them have stopped. Interrupted runs resume
// when the daemon is started again.
func (d *Daemon) Run(ctx context.Context) error {
	if d.Look == 0 {
		d.Look = lookEvery
	}
	unlock, err := d.Store.lock(".daemon")
	if err != nil {
		if errors.Is(err, errBusy) {
			return errors.New("another daemon is running")
		}
		return err
	}
	defer unlock()
	k := &keepers{Daemon: d, byName: map[string]*keeper{}}
	defer k.all.Wait()
	k.change(ctx, d.Config.Jobs)
	d.Log.Info("daemon runs", "jobs", len(d.Config.Jobs))
	tick := time.NewTicker(d.Look)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			k.look(ctx, false)
		case <-d.Reload:
			k.look(ctx, true)
		}
	}
}

// keep runs one job whenever it is due, until waiting ends. A run that is under way then continues
// until ctx ends. A job never overlaps with itself, because one goroutine keeps it.
func (d *Daemon) keep(ctx, waiting context.Context, j *Job) {
	free := d.Clock.Now()
	for last := free; waiting.Err() == nil; {
		now := d.Clock.Now()
		if now.Sub(last) > d.Look+lateFrom || now.Before(last) { // the host slept, or the clock was set
			free = now
		}
		last = now
		st, err := d.look(j, now, 0)
		if err != nil {
			d.Log.Error("state", "job", j.Name, "error", err)
			d.Clock.Sleep(waiting, d.Look)
			continue
		}
		d.watchAge(ctx, j, &st, now)
		s := j.next(&st, now, free)
		if s.at.IsZero() || s.at.After(now) {
			d.Clock.Sleep(waiting, upTo(s.at, now, d.Look))
			continue
		}
		record, err := d.Runner.Run(ctx, j, s.due, false)
		if record != nil && record.Error != "" {
			d.Log.Warn("run failed", "job", j.Name, "outcome", record.Outcome, "error", record.Error)
		}
		free = d.Clock.Now()
		last = free
		if err != nil && !errors.Is(err, ErrPaused) && ctx.Err() == nil {
			d.Log.Warn("no run", "job", j.Name, "error", err)
			d.Clock.Sleep(waiting, d.Look)
		}
	}
}

// look returns the state of a job, after what must be done at the first look at it, or when the clock was found far ahead. What was due
// up to so long before the first look counts as due.
func (r *Runner) look(j *Job, now time.Time, before time.Duration) (State, error) {
	st, err := r.Store.State(j.Name)
	if err != nil {
		return st, err
	}
	rewind := j.next(&st, now, now).rewind
	if !st.Handled.IsZero() && !rewind {
		return st, nil
	}
	if rewind {
		before = 0
		r.Log.Warn("the clock was far ahead: runs until then are made again when they are due", "job", j.Name, "until", st.Handled)
	}
	err = r.Store.Update(j.Name, func(s *State) error {
		s.Handled = now.Add(-before)
		if s.Since.IsZero() || s.Since.After(now) {
			s.Since = now
		}
		if s.LastGood.After(now) {
			s.LastGood = now // the true time is unknown
		}
		st = *s
		return nil
	})
	return st, err
}

// timerSlack is how late a timer may be at its first check of a job.
const timerSlack = time.Hour

// RunDue runs a job if it is due or was missed, or resumes an interrupted run, and returns at its
// end. If there is nothing to do, or the window is closed, both results are nil. The caller adds
// jitter.
func (r *Runner) RunDue(ctx context.Context, j *Job) (*Record, error) {
	now := r.Clock.Now()
	st, err := r.look(j, now, timerSlack+j.Jitter)
	if err != nil {
		return nil, err
	}
	r.watchAge(ctx, j, &st, now)
	s := j.next(&st, now, now)
	if s.at.IsZero() || s.due.After(now) || !s.resume && !j.Window.Open(now) || s.resume && s.at.After(now) {
		return nil, nil
	}
	return r.Run(ctx, j, s.due, false)
}

// watchAge raises or clears the alarm.
func (r *Runner) watchAge(ctx context.Context, j *Job, st *State, now time.Time) {
	_, alarm := j.alarmed(st, now)
	if alarm == !st.Alarmed.IsZero() {
		return
	}
	event, since := EventRecovered, time.Time{}
	if alarm {
		event, since = EventAlarm, now
	}
	if err := r.Store.Update(j.Name, func(s *State) error {
		s.Alarmed = since
		return nil
	}); err != nil {
		r.Log.Error("state", "job", j.Name, "error", err)
		return
	}
	r.Log.Warn(fmt.Sprintf("max-age: %s", event), "job", j.Name)
	r.tell(ctx, j, event, nil, "")
}
