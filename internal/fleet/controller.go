package fleet

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

const (
	// DefaultLease is how long a worker may be silent before another one gets its task. A server ends
	// the session of a silent client after 20 s, so a worker that sleeps longer than its lease has no
	// session any more when it wakes up, and can't change what others have sent meanwhile.
	DefaultLease = 30 * time.Second
	// dedupe is how long JetStream knows the messages that it has. A message that comes later again
	// makes work, and no harm.
	dedupe = 10 * time.Minute
	// deadFor is how long dead tasks are kept.
	deadFor = 90 * 24 * time.Hour
	// failedFor is how long a failed job keeps what lets it go on where it was.
	failedFor = 7 * 24 * time.Hour
	// patience is how long starting and ending may take.
	patience = time.Minute
)

// Controller keeps the jobs of a fleet. Whatever it knows is in its queue, so another process may begin
// where it was killed.
type Controller struct {
	External *NATS // the queue, or nil for one of its own
	// Of a queue of its own: the folder of keys and store, and the address for members.
	Dir    string
	Listen string

	Lines map[string]Line
	Lease time.Duration // as DefaultLease
	Log   *slog.Logger
	Ready func(address string) // called once members can connect
	// Monitor is for those who look at the fleet; nil for nobody.
	Monitor *Monitor

	js      jetstream.JetStream
	tasks   jetstream.Stream
	jobs    jetstream.KeyValue
	records jetstream.KeyValue
	dead    jetstream.KeyValue
	lists   jetstream.ObjectStore
	known   map[string]*progress  // by job, of those that have records
	unbegun map[string]bool       // by key, of tasks that nobody had begun at the last sweep
	queues  map[string]queueState // by job that has one
	idle    *nats.Subscription
}

// Run runs the controller until ctx is done.
func (c *Controller) Run(ctx context.Context) error {
	if c.External != nil {
		return c.run(ctx, c.External, c.External.String())
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	keys, cert, err := controllerKeys(c.Dir)
	if err != nil {
		return err
	}
	s, err := c.serve(keys, cert)
	if err != nil {
		return err
	}
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	return c.run(ctx, &inProcess{s, keys}, s.Addr().String())
}

// run runs the controller of a queue until ctx is done. A queue in this process that fails ends it, and
// any other one comes back.
func (c *Controller) run(ctx context.Context, q Queue, address string) error {
	conn, err := connectPatiently(ctx, q, "controller", func(err error) { c.Log.Warn("waiting", "error", err) })
	if ctx.Err() != nil {
		return nil //nolint:nilerr // somebody ends the controller
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	if c.js, err = jetstream.New(conn); err != nil {
		return err
	}
	if c.idle, err = conn.SubscribeSync(idleSubject); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	stop, err := c.serveLines(ctx, conn)
	if err != nil {
		return err
	}
	defer stop()
	for ready := false; ; {
		if err = c.prepare(ctx); err == nil {
			if !ready {
				c.Ready(address)
				if c.Monitor != nil {
					watching.Go(func() { c.Monitor.run(ctx, q, c.Log) })
				}
			}
			ready = true
			err = c.follow(ctx)
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // somebody ends the controller
		}
		if c.External == nil || refusedFor(err) {
			return err
		}
		c.Log.Warn("begins again", "error", err)
		pause(ctx, time.Second)
	}
}

// refusedFor reports whether the queue said that it will not have this fleet.
func refusedFor(err error) bool {
	return errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount)
}

// serve starts JetStream.
func (c *Controller) serve(keys *Credentials, cert tls.Certificate) (*server.Server, error) {
	host, port, err := probeAddress(c.Listen)
	if err != nil {
		return nil, err
	}
	member, _, err := keys.key()
	if err != nil {
		return nil, err
	}
	s, err := server.NewServer(&server.Options{
		ServerName: serverName, Host: host, Port: port, NoLog: true, NoSigs: true,
		JetStream: true, StoreDir: filepath.Join(c.Dir, "store"), SyncAlways: true,
		TLS: true, TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}}, TLSTimeout: 10,
		Nkeys: []*server.NkeyUser{{Nkey: member}},
	})
	if err != nil {
		return nil, err
	}
	go s.Start() // returns at once or when the server ends, which Shutdown waits for
	if !s.ReadyForConnections(patience) {
		s.Shutdown()
		return nil, fmt.Errorf("the queue did not start within %v", patience)
	}
	return s, nil
}

// probeAddress listens for a moment, and returns host and port as numbers: NATS says of a port that is
// taken only that it is not ready after a while, and takes no host for that of IPv4.
func probeAddress(listen string) (host string, port int, err error) {
	l, err := net.Listen("tcp", listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return "", 0, &fxfer.Error{Kind: fxfer.KindOther, Err: err}
	}
	if err != nil {
		return "", 0, &fxfer.Error{Kind: fxfer.KindUsage, Err: err}
	}
	host, _, err = net.SplitHostPort(l.Addr().String())
	return host, l.Addr().(*net.TCPAddr).Port, errors.Join(err, l.Close())
}

// follow decides about jobs as their records change, until ctx is done.
func (c *Controller) follow(ctx context.Context) error {
	c.known, c.unbegun = make(map[string]*progress), nil
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the watches
	records, err := newWatch(ctx, c.js, c.records)
	if err != nil {
		return err
	}
	if err := records.all(ctx, func(entry jetstream.KeyValueEntry) { c.note(entry) }); err != nil {
		return err
	}
	jobs, err := newWatch(ctx, c.js, c.jobs)
	if err != nil {
		return err
	}
	sweeps := time.NewTicker(c.Lease)
	defer sweeps.Stop()
	for {
		var entry jetstream.KeyValueEntry
		var job string
		var open bool
		select {
		case <-ctx.Done():
			return nil
		case <-sweeps.C:
			if err := errors.Join(records.arrives(ctx, c.js), jobs.arrives(ctx, c.js)); err != nil {
				return err
			}
			if err := c.sweep(ctx); err != nil && ctx.Err() == nil {
				c.Log.Warn("can't look after tasks", "error", err)
			}
			continue
		case entry, open = <-records.Updates():
			records.see(entry)
			job = c.note(entry)
		case entry, open = <-jobs.Updates():
			if jobs.see(entry); entry != nil {
				job = entry.Key()
			}
		}
		if !open {
			return errWatch
		}
		if job == "" {
			continue
		}
		if err := c.decide(ctx, job); err != nil && ctx.Err() == nil {
			return fmt.Errorf("job %s: %w", job, err)
		}
	}
}

// note takes a record, and returns its job if that may go on with it.
func (c *Controller) note(entry jetstream.KeyValueEntry) (job string) {
	if entry == nil {
		return ""
	}
	job, list, number, kind := split(entry.Key())
	if entry.Operation() != jetstream.KeyValuePut {
		if c.known[job] != nil {
			c.known[job].forget(place{kind, list, number})
		}
		return ""
	}
	r, err := decode[Record](entry.Value())
	if err != nil || job == "" {
		c.Log.Warn("a record makes no sense", "key", entry.Key(), "error", err)
		return ""
	}
	if c.known[job] == nil {
		c.known[job] = new(progress)
	}
	c.known[job].add(place{kind, list, number}, r, entry.Created())
	if r.Outcome != Ready && r.Outcome != Dead {
		return ""
	}
	return job
}

// decide brings a job as far as its records allow.
func (c *Controller) decide(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		entry, err := c.jobs.Get(ctx, id)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		job, err := readJob(id, entry.Value())
		if err != nil {
			c.Log.Warn("a job makes no sense", "job", id, "error", err)
			return nil
		}
		t := c.known[id]
		if t == nil {
			t = new(progress)
			if !job.over() {
				c.known[id] = t
			}
		}
		if job.over() {
			return c.settle(ctx, job)
		}
		if err := c.queue(ctx, job); err != nil {
			return err
		}
		then, err := c.advance(ctx, job, t)
		if err != nil {
			return err
		}
		if then.State == job.State && then.Done == job.Done && then.Dead == job.Dead && then.Retried == job.Retried {
			return nil
		}
		text, err := json.Marshal(then)
		if err != nil {
			return err
		}
		switch _, err := c.jobs.Update(ctx, id, text, entry.Revision()); {
		case errors.Is(err, jetstream.ErrKeyExists): // it has changed, perhaps by an update whose answer got lost
			continue
		case err != nil:
			return err
		}
		if then.State != job.State {
			c.Log.Info("job", "id", id, "state", string(then.State), "shards", then.Shards, "dead", then.Dead, "reason", then.Reason)
		}
	}
}

// advance does the next step of a job, and returns the job as it is then.
func (c *Controller) advance(ctx context.Context, j *Job, t *progress) (Job, error) {
	if j.Retries > j.Retried {
		return c.retry(ctx, j, t)
	}
	then, task := next(*j, t, time.Now().UTC())
	if task == nil {
		return then, nil
	}
	return then, publish(ctx, c.js, task, j.Retried)
}

// sweep publishes again what is not heard of any more, while workers wait for tasks: its message has got
// lost, or JetStream holds it back. The message is removed first, so nobody gets both. If somebody has
// the old one, the record of the new one makes that worker lose the task.
func (c *Controller) sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	idle := c.isIdle()
	late, unbegun := map[*Task]*Record{}, map[string]bool{}
	for id, t := range c.known {
		entry, err := c.jobs.Get(ctx, id)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		job, err := readJob(id, entry.Value())
		if err != nil {
			continue // decide has said so
		}
		if job.over() {
			if !c.quiet(job) {
				continue
			}
			if err := c.settle(ctx, job); err != nil {
				return err
			}
			continue
		}
		if job.Paused || !idle || c.waiting(ctx, id) { // its tasks may wait for a worker
			continue
		}
		for _, task := range overdue(*job, t, c.Lease, time.Now()) {
			late[task] = t.open[place{task.Kind, task.List, task.Number}].record
		}
		for _, task := range unheard(*job, t) {
			if unbegun[task.key()] = true; c.unbegun[task.key()] { // for the time between two sweeps
				late[task] = nil
			}
		}
	}
	c.unbegun = unbegun
	for task, r := range late {
		if err := c.again(ctx, task, r); err != nil {
			return err
		}
	}
	return nil
}

// again publishes a task anew. r is its record, or nil if nobody has begun it.
func (c *Controller) again(ctx context.Context, task *Task, r *Record) error {
	if r == nil {
		c.Log.Warn("nobody has begun a task: it is published anew", "key", task.key())
	} else {
		c.Log.Warn("a task was not heard of again: it is published anew", "key", task.key(), "worker", r.Worker, "message", r.Message, "attempt", r.Attempt)
		if err := c.tasks.DeleteMsg(ctx, r.Message); err != nil && !errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) { // it is gone
			return err
		}
	}
	text, err := json.Marshal(task)
	if err == nil {
		_, err = c.js.Publish(ctx, task.subject(), text)
	}
	return err
}

// publish publishes a task, once within the time of dedupe and for each time that its job is retried.
func publish(ctx context.Context, js jetstream.JetStream, t *Task, retried int) error {
	text, err := json.Marshal(t)
	if err == nil {
		_, err = js.Publish(ctx, t.subject(), text, jetstream.WithMsgID(fmt.Sprint(t.key(), ".", retried)))
	}
	return err
}

// settle removes what a job that is over has left behind. What can be retried keeps its lists and
// records for some time.
func (c *Controller) settle(ctx context.Context, j *Job) error {
	if j.State == Failed && j.Ended != nil && time.Since(*j.Ended) < failedFor {
		if _, queued := c.queues[j.ID]; !queued && c.quiet(j) {
			return nil
		}
		return c.close(ctx, j.ID)
	}
	return c.clear(ctx, j.ID, c.quiet(j))
}

// quiet reports whether no worker can be left that does not know that the job is over.
func (c *Controller) quiet(j *Job) bool { return j.Ended == nil || time.Since(*j.Ended) > 3*c.Lease }

// removedAtOnce is how many lists are removed before other jobs have their turn. Each takes some 13 ms,
// and a large job has tens of thousands.
const removedAtOnce = 1000

// portionOf returns the names of lists of a job that are to be removed now, and whether there are more.
func portionOf(lists []*jetstream.ObjectInfo, job string) (now []string, more bool) {
	for _, l := range lists {
		if !strings.HasPrefix(l.Name, job+".") {
			continue
		}
		if len(now) == removedAtOnce {
			return now, true
		}
		now = append(now, l.Name)
	}
	return now, false
}

// clear removes what an ended job has left behind: tasks, lists, and at last the records. The job's own
// record and its dead tasks stay. The controller comes back to it until all is removed, and until the last
// time: a worker that lists may have published more meanwhile.
func (c *Controller) clear(ctx context.Context, id string, last bool) error {
	if _, queued := c.queues[id]; c.known[id] == nil && !queued {
		return nil
	}
	if err := c.close(ctx, id); err != nil {
		return err
	}
	lists, err := c.lists.List(ctx)
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		return err
	}
	now, more := portionOf(lists, id)
	for _, name := range now {
		if err := c.lists.Delete(ctx, name); err != nil {
			return err
		}
	}
	if more {
		if c.known[id] == nil {
			c.known[id] = new(progress)
		}
		return nil
	}
	records, err := c.js.Stream(ctx, "KV_"+recordBucket)
	if err != nil {
		return err
	}
	if err := records.Purge(ctx, jetstream.WithPurgeSubject("$KV."+recordBucket+"."+id+".>")); err != nil {
		return err
	}
	if c.known[id] = new(progress); last {
		delete(c.known, id)
	}
	return nil
}
