package fleet

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Status is the state of a fleet at one moment.
type Status struct {
	Live    bool        // the queue is there, and what it has is known
	Jobs    []JobStatus // the newest first
	Workers []WorkerStatus
	Dead    []DeadTask // the newest first, at most maxDead

	// Since the monitor began:
	Ended     map[Kind]map[Outcome]int64 // tasks
	Retried   int64                      // tasks that failed, and are tried again
	JobsEnded map[State]int64
	Written   int64 // bytes written at servers, as workers report
}

// JobStatus is a job with what its tasks do.
type JobStatus struct {
	Job
	Running, Waiting int           // tasks that a worker has, and that failed and are tried again later
	Written          int64         // bytes, those that were written twice included
	Idle             time.Duration // how long no worker has had a task of it; 0 if one has, or the job is paused or has ended
}

// WorkerStatus is a worker that has said lately that it is there.
type WorkerStatus struct {
	Name    string
	Began   time.Time
	Task    string // key of the task that it has, "" for none
	Since   time.Time
	Written int64 // of this task
}

// maxDead is how many dead tasks a Status has at most.
const maxDead = 100

// Monitor follows the state of a fleet for those who look at it. Its zero value is ready.
type Monitor struct {
	mu      sync.Mutex // guards what follows
	jobs    map[string]*followed
	open    map[string]openTask // running and waiting tasks, by key
	dead    map[string]*DeadTask
	workers map[string]*presentWorker
	live    bool // what comes now has happened since the monitor began
	total   Status
}

// followed is a job with what is known of its tasks.
type followed struct {
	Job
	written int64
	heard   time.Time // of a task of it
}

type openTask struct {
	*Record
	since time.Time // when its worker began
}

type presentWorker struct {
	began, seen time.Time
}

// run follows a queue until ctx is done.
func (m *Monitor) run(ctx context.Context, q Queue, log *slog.Logger) {
	for {
		err := m.follow(ctx, q)
		m.begin(false)
		if ctx.Err() != nil {
			return
		}
		log.Warn("the monitor begins again", "error", err)
		if !pause(ctx, time.Second) {
			return
		}
	}
}

// follow follows a queue until something fails.
func (m *Monitor) follow(ctx context.Context, q Queue) error {
	conn, err := connectPatiently(ctx, q, "monitor", func(error) {})
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the watches
	said := make(chan *nats.Msg, 1000)
	heard, err := conn.ChanSubscribe(presenceSubject, said)
	if err != nil {
		return err
	}
	defer heard.Unsubscribe() //nolint:errcheck // the connection ends with it
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	m.reset()
	buckets := []struct {
		name string
		note func(jetstream.KeyValueEntry)
	}{{jobBucket, m.noteJob}, {recordBucket, m.noteRecord}, {deadBucket, m.noteDead}}
	watches := make([]*watch, len(buckets))
	for i, b := range buckets {
		kv, err := js.KeyValue(ctx, b.name)
		if err != nil {
			return err
		}
		if watches[i], err = newWatch(ctx, js, kv); err != nil {
			return err
		}
		if err := watches[i].all(ctx, b.note); err != nil {
			return err
		}
	}
	m.begin(true)
	looks := time.NewTicker(DefaultLease)
	defer looks.Stop()
	for {
		var entry jetstream.KeyValueEntry
		var from int
		open := true
		select {
		case <-ctx.Done():
			return nil
		case message := <-said:
			m.notePresence(message.Data, time.Now())
			continue
		case <-looks.C:
			for _, w := range watches {
				err = errors.Join(err, w.arrives(ctx, js))
			}
			if err != nil {
				return err
			}
			continue
		case entry, open = <-watches[0].Updates():
		case entry, open = <-watches[1].Updates():
			from = 1
		case entry, open = <-watches[2].Updates():
			from = 2
		}
		if !open {
			return errWatch
		}
		watches[from].see(entry)
		buckets[from].note(entry)
	}
}

// reset forgets everything but the totals.
func (m *Monitor) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.jobs, m.open, m.dead = make(map[string]*followed), make(map[string]openTask), make(map[string]*DeadTask)
	m.live = false
	if m.workers == nil {
		m.workers = make(map[string]*presentWorker)
		m.total.Ended, m.total.JobsEnded = make(map[Kind]map[Outcome]int64), make(map[State]int64)
	}
}

// begin notes whether what comes now is new.
func (m *Monitor) begin(live bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.live = live
}

func (m *Monitor) jobLocked(id string) *followed {
	j := m.jobs[id]
	if j == nil {
		j = new(followed)
		m.jobs[id] = j
	}
	return j
}

// noteJob takes a job.
func (m *Monitor) noteJob(entry jetstream.KeyValueEntry) {
	if entry == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if entry.Operation() != jetstream.KeyValuePut {
		delete(m.jobs, entry.Key())
		return
	}
	job, err := readJob(entry.Key(), entry.Value())
	if err != nil {
		return // the controller has said so
	}
	j := m.jobLocked(job.ID)
	if m.live && job.State.Ended() && !j.State.Ended() {
		m.total.JobsEnded[job.State]++
	}
	j.Job = *job
	if job.State.Ended() { // its records are removed, and nobody tells
		maps.DeleteFunc(m.open, func(key string, _ openTask) bool { return strings.HasPrefix(key, job.ID+".") })
	}
}

// noteRecord takes the record of a task.
func (m *Monitor) noteRecord(entry jetstream.KeyValueEntry) {
	if entry == nil {
		return
	}
	if entry.Operation() != jetstream.KeyValuePut { // the job is tried again
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.open, entry.Key())
		return
	}
	id, _, _, kind := split(entry.Key())
	r, err := decode[Record](entry.Value())
	if err != nil || !nameForm.MatchString(id) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	j := m.jobLocked(id)
	if j.State.Ended() {
		return
	}
	j.heard = entry.Created()
	before, was := m.open[entry.Key()]
	again := was && before.Message == r.Message && before.Attempt == r.Attempt
	written := max(r.Bytes, 0)
	if kind == List && r.Outcome == Ready {
		written = 0 // these were listed, and not written
	}
	if again {
		written = max(written-before.Bytes, 0)
	}
	j.written += written
	if m.live {
		m.total.Written += written
		if r.Reason != errPaused.Error() { // given back, it has not failed
			m.countLocked(kind, r.Outcome)
		}
	}
	switch {
	case r.Outcome != Running && r.Outcome != Waiting:
		delete(m.open, entry.Key())
	case again:
		m.open[entry.Key()] = openTask{r, before.since}
	default:
		m.open[entry.Key()] = openTask{r, entry.Created()}
	}
}

// countLocked counts the end of a task, or of an attempt.
func (m *Monitor) countLocked(kind Kind, outcome Outcome) {
	switch outcome {
	case Waiting:
		m.total.Retried++
	case Ready, Dead:
		if kind != List && kind != Finish {
			kind = Send // members can write what they like
		}
		if m.total.Ended[kind] == nil {
			m.total.Ended[kind] = make(map[Outcome]int64)
		}
		m.total.Ended[kind][outcome]++
	}
}

// noteDead takes a dead task.
func (m *Monitor) noteDead(entry jetstream.KeyValueEntry) {
	if entry == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	d, err := decode[DeadTask](entry.Value())
	if err != nil || entry.Operation() != jetstream.KeyValuePut {
		delete(m.dead, entry.Key())
		return
	}
	m.dead[entry.Key()] = d
}

// notePresence takes what a worker says of itself.
func (m *Monitor) notePresence(data []byte, now time.Time) {
	p, err := decode[Presence](data)
	if err != nil || p.Name == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.workers[p.Name]
	if w == nil {
		if len(m.workers) >= maxWorkers { // Status makes room
			return
		}
		w = new(presentWorker)
		m.workers[p.Name] = w
	}
	w.began, w.seen = p.Began, now
}

// Status returns the state of the fleet.
func (m *Monitor) Status() *Status { return m.status(time.Now()) }

func (m *Monitor) status(now time.Time) *Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.workers, func(_ string, w *presentWorker) bool { return now.Sub(w.seen) > presentFor })
	s := &Status{Live: m.live, Retried: m.total.Retried, Written: m.total.Written, JobsEnded: maps.Clone(m.total.JobsEnded), Ended: make(map[Kind]map[Outcome]int64)}
	for kind, n := range m.total.Ended {
		s.Ended[kind] = maps.Clone(n)
	}
	type tasks struct{ running, waiting int }
	of, has := make(map[string]tasks), make(map[string]string)
	for key, r := range m.open {
		id, _, _, _ := split(key)
		n := of[id]
		if r.Outcome == Running {
			n.running++
			has[r.Worker] = key
		} else {
			n.waiting++
		}
		of[id] = n
	}
	for id, j := range m.jobs {
		if j.ID == "" { // its record comes soon, or never
			continue
		}
		x := JobStatus{Job: j.Job, Running: of[id].running, Waiting: of[id].waiting, Written: j.written}
		if x.Running == 0 && !j.State.Ended() && !j.Paused {
			x.Idle = max(now.Sub(later(j.Submitted, j.heard)), 0)
		}
		s.Jobs = append(s.Jobs, x)
	}
	slices.SortFunc(s.Jobs, func(a, b JobStatus) int { return strings.Compare(b.ID, a.ID) })
	for name, w := range m.workers {
		x := WorkerStatus{Name: name, Began: w.began, Task: has[name]}
		if x.Task != "" {
			x.Since, x.Written = m.open[x.Task].since, m.open[x.Task].Bytes
		}
		s.Workers = append(s.Workers, x)
	}
	slices.SortFunc(s.Workers, func(a, b WorkerStatus) int { return strings.Compare(a.Name, b.Name) })
	for _, d := range m.dead {
		s.Dead = append(s.Dead, *d)
	}
	slices.SortFunc(s.Dead, func(a, b DeadTask) int {
		return cmp.Or(b.At.Compare(a.At), strings.Compare(a.Task.key(), b.Task.key()))
	})
	s.Dead = s.Dead[:min(len(s.Dead), maxDead)]
	return s
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
