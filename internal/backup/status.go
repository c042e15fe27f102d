package backup

import (
	"fmt"
	"time"

	"github.com/fxfer/fxfer/internal/units"
)

// Condition is what a job is doing.
type Condition string

// The conditions.
const (
	Idle    Condition = "idle"
	Running Condition = "running"
	Paused  Condition = "paused"
	CutOff  Condition = "interrupted" // its process ended
)

// scrubbingFresh is how long the progress of a verification counts.
const scrubbingFresh = time.Minute

// Status is the state of a job, for people.
type Status struct {
	Job       *Job
	State     State
	Condition Condition
	Age       time.Duration // age of the newest good backup, or of the job if there is none
	Alarm     string        // why the job needs attention, or ""
	Warning   string        // about older snapshots, or ""
	Next      time.Time     // when the job starts or resumes; zero if only by hand
	Forecast  *Forecast     // for the active run, or else for the next; nil if nothing is known
	Hint      string
}

// StatusOf sums up the state of a job. The history contains only this job, oldest first. The
// argument running says whether a process runs the job now.
func StatusOf(j *Job, st State, history []Record, running bool, now time.Time) *Status {
	s := &Status{Job: j, State: st, Condition: Idle}
	var old bool
	s.Age, old = j.alarmed(&st, now)
	switch {
	case old && st.LastGood.IsZero():
		s.Alarm = "there is no good backup yet"
	case old:
		s.Alarm = "the newest good backup is older than max-age"
	case st.Last != nil && (st.Last.Outcome == Failed || st.Last.Outcome == Partial):
		s.Alarm = "the last run " + map[Outcome]string{Failed: "failed", Partial: "left entries out"}[st.Last.Outcome]
	case st.Damage != nil && st.Damage.Newest > 0:
		s.Alarm = "verification: the newest backup has " + units.Count(st.Damage.Newest, "damaged file", "damaged files") + ": the next run sends what is damaged again"
	case st.Scrub != nil && st.Scrub.Error != "" && !healed(&st):
		s.Alarm = "verification: " + st.Scrub.Error
	}
	if st.Damage != nil && len(st.Damage.Older) > 0 {
		s.Warning = fmt.Sprintf("%s files that are damaged: `fxfer backup snapshots %s` lists them", units.Count(int64(len(st.Damage.Older)), "older snapshot has", "older snapshots have"), j.Name)
	}
	if st.Scrubbing != nil && now.Sub(st.Scrubbing.At) > scrubbingFresh {
		s.State.Scrubbing = nil // its process was killed
	}
	seen := st
	if seen.Handled.IsZero() {
		seen.Handled = now
	}
	if step := j.next(&seen, now, now); !step.rewind {
		s.Next = step.at
	}
	var f Forecast
	var known bool
	switch {
	case st.Active == nil:
		f, known = ForecastNext(j, history, s.Next)
	case running:
		s.Condition = Running
		f, known = ForecastActive(j, st.Active, history, now)
	default:
		s.Condition = Paused
		if !st.Active.Leg.IsZero() {
			s.Condition = CutOff
		}
		f, known = ForecastActive(j, st.Active, history, now)
	}
	if known {
		limiter, remedy := "", ""
		if st.Active != nil && st.Active.Now.Limiter != "" {
			limiter = st.Active.Now.Limiter
		} else if st.Last != nil {
			limiter, remedy = st.Last.Limiter, st.Last.Hint
		}
		s.Forecast, s.Hint = &f, f.Hint(j, limiter, remedy)
	}
	return s
}

// healed reports whether all that the last verification found was damage, and a good run followed.
// What is left of it is in State.Damage.
func healed(st *State) bool { return st.Scrub.Damaged > 0 && st.LastGood.After(st.Scrub.At) }
