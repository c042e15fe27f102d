package backup

import "time"

const (
	// clockSlack is how far a clock may be set back without repeating runs. If the clock was
	// further ahead, the runs that it dated are ignored.
	clockSlack = 24 * time.Hour
	// lateFrom is how late a run must be for it to count as missed.
	lateFrom = time.Minute
	// catchUpWithin is the time over which missed runs of jobs without jitter are spread.
	catchUpWithin = time.Minute
)

// step is the next thing to do for a job.
type step struct {
	due    time.Time // of the run
	at     time.Time // when to start or resume the run; zero for never
	resume bool      // the active run is resumed
	rewind bool      // the state was written by a clock far ahead, and must be corrected first
}

// next decides what to do for a job. The job could run since free, which is when the daemon began,
// woke up, or ended the previous run. If runs were due before that and missed, one is made for all.
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

// begin returns when a due run begins if the window is open.
func (j *Job) begin(due, free time.Time) time.Time {
	key := j.Name + "\x00" + due.UTC().Format(time.RFC3339)
	if at := due.Add(spread(j.Jitter, key)); !at.Add(lateFrom).Before(free) {
		return at
	}
	return free.Add(spread(max(j.Jitter, catchUpWithin), key))
}

// alarmed returns the age of the newest good backup and reports whether it is too old. If there is
// no good backup, it uses the age of the job.
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
