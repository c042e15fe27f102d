package backup

import "time"

const (
	// clockSlack is how far a clock may be set back for runs that are done not to be done again. If it was further ahead, what was done
	// by it counts no more.
	clockSlack = 24 * time.Hour
	// lateFrom is how late a run must be for it to count as missed.
	lateFrom = time.Minute
	// catchUpWithin spreads runs that were missed if the job has no jitter of its own.
	catchUpWithin = time.Minute
)

// step is what is to be done about a job next.
type step struct {
	due    time.Time // of the run
	at     time.Time // when it is to be begun, or gone on with; zero for never
	resume bool      // it is the active one
	rewind bool      // the clock was far ahead when the state was written: that must be forgotten first
}

// next decides what is to be done about a job in a state. free is since when it could be done: when the daemon began, woke up, or ended
// the run before. What was due before that, and not done, is made up for once.
func (j *Job) next(st *State, now, free time.Time) step {
	switch {
	case st.Handled.Sub(now) > clockSlack:
		return step{rewind: true}
	case st.Active != nil:
		at := now
		if j.Overrun != Continue {
			at = j.Window.Opening(now)
		}
		return step{due: st.Active.Due, at: at, resume: true}
	case j.Schedule == nil:
		return step{}
	}
	due := j.Schedule.Last(st.Handled, now)
	if due.IsZero() {
		from := now
		if st.Handled.After(now) { // the clock was set back
			from = st.Handled
		}
		if due = j.Schedule.Next(from); due.IsZero() {
			return step{}
		}
	}
	at := j.begin(due, free)
	if at.After(now) && !due.After(now) { // jitter may be longer than the time between two runs
		if before := j.Schedule.Last(st.Handled, now.Add(-j.Jitter)); !before.IsZero() && !j.begin(before, free).After(now) {
			due, at = before, now
		}
	}
	if at.Before(now) {
		at = now
	}
	return step{due: due, at: j.Window.Opening(at)}
}

// begin is when a run that is due begins, but for the window.
func (j *Job) begin(due, free time.Time) time.Time {
	key := j.Name + "\x00" + due.UTC().Format(time.RFC3339)
	if at := due.Add(spread(j.Jitter, key)); !at.Add(lateFrom).Before(free) {
		return at
	}
	return free.Add(spread(max(j.Jitter, catchUpWithin), key))
}

// alarmed tells whether the newest good backup is too old, and how old it is; without one, the job is as old as that.
func (j *Job) alarmed(st *State, now time.Time) (age time.Duration, alarm bool) {
	from := st.LastGood
	if from.IsZero() {
		from = st.Since
	}
	if from.IsZero() {
		return 0, false
	}
	age = max(0, now.Sub(from))
	return age, j.MaxAge > 0 && age > j.MaxAge
}
