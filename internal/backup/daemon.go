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
	// Config is the first configuration. The daemon reads the file again when it changes.
	Config *Config
	// Reload asks the daemon to read the file now. It may be nil.
	Reload <-chan struct{}
	// Look is the time between two checks of the clock, the states of the jobs, and their file. 0
	// means lookEvery. Runs begin on the second in any case.
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
	k := &jobLoops{Daemon: d, byName: map[string]*jobLoop{}}
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

// keep runs one job whenever it is due, until waiting ends. A run under way then continues until
// ctx ends. Runs of a job never overlap, because one goroutine runs them all.
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

// look returns the state of a job. The first call for a job initialises the state; what was due up
// to before earlier counts as due. If the clock was far ahead when the state was written, look
// corrects the state.
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

// timerSlack is how late a timer may first check a job.
const timerSlack = time.Hour

// RunDue runs a job that is due or was missed, or resumes an interrupted run. It returns when the
// run has ended. If there is nothing to do or the window is closed, both results are nil. The
// caller adds jitter.
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

// watchAge raises or clears the alarm about the age of the newest good backup.
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
