package web

import (
	"net/http"
	"sync"
	"time"
)

// Job is a backup job of this host, as the dashboard shows it. Times are in ms since 1970, 0 for none.
type Job struct {
	Name      string `json:"name"`
	Condition string `json:"condition"`
	Alarm     string `json:"alarm"`
	Good      int64  `json:"good"` // when the newest good backup was made
	Ended     int64  `json:"ended"`
	Outcome   string `json:"outcome"` // of the last run
	Error     string `json:"error"`
	Limiter   string `json:"limiter"`
	Written   int64  `json:"written"` // bytes, by the last run
	Next      int64  `json:"next"`
	Ends      int64  `json:"ends"` // as forecast, of the run under way or the next
	Late      bool   `json:"late"` // that is past its window
	Hint      string `json:"hint"`
}

// jobsKept is how long an answer about jobs holds: their history is in a file that others use, too.
const jobsKept = 10 * time.Second

// jobList asks for jobs now and then.
type jobList struct {
	ask func() ([]Job, error) // nil if there are none

	mu    sync.Mutex
	asked time.Time
	jobs  []Job
	fault string
}

func (l *jobList) get() (jobs []Job, fault string) {
	if l.ask == nil {
		return nil, ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.asked) >= jobsKept {
		var err error
		l.fault = ""
		if l.jobs, err = l.ask(); err != nil {
			l.fault = err.Error()
		}
		l.asked = time.Now()
	}
	return l.jobs, l.fault
}

func (p *Pages) backupJobs(w http.ResponseWriter, _ *http.Request) {
	jobs, fault := p.jobs.get()
	answer(w, struct {
		Jobs  []Job  `json:"jobs"`
		Error string `json:"error,omitempty"`
	}{append([]Job{}, jobs...), fault})
}

// Milli is a time as a Job has it.
func Milli(t time.Time) int64 { return milli(t) }
