package backup

import (
	"sync"
	"time"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// priorities are those of the jobs that run. A new file of jobs changes them. The zero value is
// ready. Its methods are safe for concurrent use.
type priorities struct {
	mu      sync.Mutex // guards running
	running map[string]*fxfer.LivePriority
}

// begin returns the priority of a run of j. It is called once until end.
func (p *priorities) begin(j *Job) *fxfer.LivePriority {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == nil {
		p.running = make(map[string]*fxfer.LivePriority)
	}
	p.running[j.Name] = fxfer.NewLivePriority(j.Priority)
	return p.running[j.Name]
}

func (p *priorities) end(j *Job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.running, j.Name)
}

// follow changes the priorities of runs to those of the jobs. A job without one may have that of its profile, and
// keeps what it has.
func (p *priorities) follow(jobs []*Job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, j := range jobs {
		if live := p.running[j.Name]; live != nil && (j.Priority != "" || j.Profile == "") {
			live.Set(j.Priority)
		}
	}
}

// deadline is the end of the window in which the leg began; zero if there is none.
func (l *leg) deadline() time.Time {
	if w := l.job.Window; !w.Always() && w.Open(l.began) {
		return w.Change(l.began)
	}
	return time.Time{}
}

// left returns a function that estimates what the run still has to write, as its forecast does. It
// returns nil if the leg has no deadline: nobody asks then.
func (l *leg) left() func(fxfer.Progress) int64 {
	if l.deadline().IsZero() {
		return nil
	}
	history, err := l.Store.History(l.job.Name, l.Clock.Now().Add(-ForecastFrom))
	if err != nil {
		l.log.Warn("the deadline does not know earlier runs", "error", err)
	}
	usual, before := estimate(history), *l.active
	return func(p fxfer.Progress) int64 {
		a := before
		a.Now = progressOf(&p, l.Clock.Now())
		bytes, known := leftOf(l.job, &a, &usual)
		if !known {
			return max(0, p.Bytes-p.BytesDone)
		}
		return bytes
	}
}
