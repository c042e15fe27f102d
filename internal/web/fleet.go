package web

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// Fleet is the state of a fleet as its pages show it. Times are in ms since 1970, 0 for none.
type Fleet struct {
	Ready   bool          `json:"ready"` // the controller has its queue
	Host    string        `json:"host"`
	Queue   string        `json:"queue"` // where it is
	At      int64         `json:"at"`
	Jobs    []FleetJob    `json:"jobs"` // the newest first
	Workers []FleetWorker `json:"workers"`
	Dead    []FleetDead   `json:"dead"` // the newest first
	Written int64         `json:"written"`
	Rate    int64         `json:"rate"` // bit/s, over the last seconds; the pages fill it in

	// For metrics alone:
	States    []string                    `json:"-"` // of jobs
	TaskEnds  map[string]map[string]int64 `json:"-"` // by kind and outcome
	JobEnds   map[string]int64            `json:"-"` // by state
	Retried   int64                       `json:"-"`
	TaskKinds []string                    `json:"-"`
}

// FleetJob is a job of a fleet.
type FleetJob struct {
	ID        string  `json:"id"`
	State     string  `json:"state"`
	Over      bool    `json:"over"` // nothing follows
	Source    string  `json:"source"`
	URL       string  `json:"url"`
	Submitted int64   `json:"submitted"`
	Ended     int64   `json:"ended"`
	Files     int64   `json:"files"`
	Bytes     int64   `json:"bytes"`
	Shards    int     `json:"shards"`
	Done      int     `json:"done"`
	Dead      int     `json:"dead"`
	Running   int     `json:"running"` // tasks
	Retrying  int     `json:"retrying"`
	Written   int64   `json:"written"`
	Idle      float64 `json:"idle"` // seconds for which no worker has had a task of it
	Reason    string  `json:"reason"`
}

// FleetWorker is a worker of a fleet.
type FleetWorker struct {
	Name    string `json:"name"`
	Began   int64  `json:"began"`
	Task    string `json:"task"` // "" for none
	Since   int64  `json:"since"`
	Written int64  `json:"written"` // of this task
}

// FleetDead is a task that was given up.
type FleetDead struct {
	Task    string `json:"task"`
	Worker  string `json:"worker"`
	Attempt uint64 `json:"attempt"`
	At      int64  `json:"at"`
	Reason  string `json:"reason"`
}

// FleetPages are the web pages of a fleet's controller. ListenFleet creates them.
type FleetPages struct {
	*endpoint
	version string
	ask     func() *Fleet

	mu     sync.Mutex // guards what follows
	totals []total
	last   *Fleet // when the last total was noted
}

// ListenFleet opens the address of the pages. ask returns the state of the fleet, and is called
// concurrently. Of opt, jobs and queues are ignored. The caller calls Serve next.
func ListenFleet(addr string, ask func() *Fleet, opt Options) (*FleetPages, error) {
	e, err := newEndpoint(addr, opt.Home, opt.Names, opt.Log)
	if err != nil {
		return nil, err
	}
	return &FleetPages{endpoint: e, version: opt.Version, ask: ask}, nil
}

// Serve answers requests until ctx is done.
func (p *FleetPages) Serve(ctx context.Context) error { return p.serve(ctx, p.handler(), p.keep) }

func (p *FleetPages) handler() http.Handler {
	g := p.guard
	mux := p.pages("fleet.html", newRegistry(append([]*metric{&buildInfo}, allFleet...), p.report), func() string {
		if p.ask().Ready {
			return ""
		}
		return "the queue is away"
	})
	mux.Handle("GET /api/fleet", g.private(func(w http.ResponseWriter, _ *http.Request) { answer(w, p.now()) }))
	mux.Handle("GET /api/totals", g.private(func(w http.ResponseWriter, _ *http.Request) { answer(w, p.past()) }))
	return mux
}

// keep notes totals for pages that open later, until ctx is done.
func (p *FleetPages) keep(ctx context.Context) {
	tick := time.NewTicker(totalsEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			p.note(p.ask())
		}
	}
}

// note notes the totals of a moment.
func (p *FleetPages) note(f *Fleet) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := total{At: f.At, Out: between(p.last, f)}
	for _, w := range f.Workers {
		if w.Task != "" {
			x.Runs++
		}
	}
	if len(p.totals) >= maxTotals {
		p.totals = append(p.totals[:0], p.totals[1:]...)
	}
	p.totals = append(p.totals, x)
	p.last = f
}

// between is the rate between two moments, in bit/s.
func between(a, b *Fleet) int64 {
	if a == nil || b.At <= a.At || b.Written < a.Written {
		return 0
	}
	return int64(float64(b.Written-a.Written) * 8e3 / float64(b.At-a.At))
}

// now returns the present state, with the rate of the last totals: workers report each few seconds.
func (p *FleetPages) now() *Fleet {
	f := p.ask()
	p.mu.Lock()
	defer p.mu.Unlock()
	const recent = 10 // totals
	last := p.totals[max(0, len(p.totals)-recent):]
	for _, t := range last {
		f.Rate += t.Out / int64(len(last))
	}
	return f
}

func (p *FleetPages) past() []total {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]total{}, p.totals...)
}
