package web

import (
	"net/http"
	"sync"
	"time"
)

// Job is a backup job of this host as the dashboard shows it. Times are in ms since 1970, 0 for
// none.
type Job struct {
	Name      string `json:"name"`
	Condition string `json:"condition"`
	Alarm     string `json:"alarm"`
	Good      int64  `json:"good"` // time of the newest good backup
	Ended     int64  `json:"ended"`
	Outcome   string `json:"outcome"` // of the last run
	Error     string `json:"error"`
	Limiter   string `json:"limiter"`
	Written   int64  `json:"written"` // bytes written by the last run
	Next      int64  `json:"next"`
	Ends      int64  `json:"ends"` // forecast end of the present or the next run
	Late      bool   `json:"late"` // the forecast end is after the job's window
	Hint      string `json:"hint"`
}

// jobsKept is how long a list of jobs is cached. Their history is in a file that other processes
// use, too, so it is not read for each request.
const jobsKept = 10 * time.Second

// jobList caches the list of jobs.
type jobList struct {
	ask func() ([]Job, error) // nil if there are no jobs

	mu    sync.Mutex // guards what follows
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

// Milli converts a time to the format of Job.
func Milli(t time.Time) int64 { return milli(t) }
