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
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
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
	// patience is how long starting and ending may take.
	patience = time.Minute
)

// Controller keeps the jobs of a fleet. Whatever it knows is in its folder, so another process may
// begin where it was killed.
type Controller struct {
	Dir    string        // keys and store
	Listen string        // address for members
	Lease  time.Duration // as DefaultLease
	Log    *slog.Logger
	Ready  func(address string) // called once members can connect

	js      jetstream.JetStream
	tasks   jetstream.Stream
	jobs    jetstream.KeyValue
	records jetstream.KeyValue
	lists   jetstream.ObjectStore
	known   map[string]*tally // by job, of those that have not ended
}

// Run runs the controller until ctx is done.
func (c *Controller) Run(ctx context.Context) error {
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
	conn, err := connect("", keys, "controller", nats.InProcessServer(s))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := c.prepare(ctx, conn); err != nil {
		return err
	}
	c.Ready(s.Addr().String())
	return c.follow(ctx)
}

// serve starts JetStream.
func (c *Controller) serve(keys *Credentials, cert tls.Certificate) (*server.Server, error) {
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return nil, err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, fmt.Errorf("%q is not a port", port)
	}
	if number == 0 {
		number = server.RANDOM_PORT
	}
	if host == "" {
		host = "0.0.0.0"
	}
	member, _, err := keys.key()
	if err != nil {
		return nil, err
	}
	s, err := server.NewServer(&server.Options{
		ServerName: serverName, Host: host, Port: number, NoLog: true, NoSigs: true,
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
		return nil, fmt.Errorf("can't listen on %s", c.Listen)
	}
	return s, nil
}

// prepare makes what the fleet needs in JetStream, or finds it there.
func (c *Controller) prepare(ctx context.Context, conn *nats.Conn) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if c.js, err = jetstream.New(conn); err != nil {
		return err
	}
	c.tasks, err = c.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: taskStream, Subjects: []string{taskSubjects}, Retention: jetstream.WorkQueuePolicy, Duplicates: dedupe,
	})
	if err != nil {
		return err
	}
	_, err = c.tasks.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: consumerName, AckPolicy: jetstream.AckExplicitPolicy, AckWait: c.Lease, MaxAckPending: 100_000,
	})
	if err != nil {
		return err
	}
	if c.jobs, err = c.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: jobBucket}); err != nil {
		return err
	}
	if c.records, err = c.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: recordBucket}); err != nil {
		return err
	}
	if _, err = c.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: deadBucket, TTL: deadFor}); err != nil {
		return err
	}
	c.lists, err = c.js.CreateOrUpdateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: listBucket})
	return err
}

// follow decides about jobs as their records change, until ctx is done.
func (c *Controller) follow(ctx context.Context) error {
	c.known = make(map[string]*tally)
	records, err := c.records.WatchAll(ctx)
	if err != nil {
		return err
	}
	defer records.Stop() //nolint:errcheck // the connection ends with it
	for entry := range records.Updates() {
		if entry == nil { // these were all that there are
			break
		}
		c.note(entry)
	}
	jobs, err := c.jobs.WatchAll(ctx)
	if err != nil {
		return err
	}
	defer jobs.Stop() //nolint:errcheck // the connection ends with it
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
			if err := c.sweep(ctx); err != nil && ctx.Err() == nil {
				c.Log.Warn("can't look after tasks", "error", err)
			}
			continue
		case entry, open = <-records.Updates():
			job = c.note(entry)
		case entry, open = <-jobs.Updates():
			if entry != nil {
				job = entry.Key()
			}
		}
		if !open {
			return errors.New("the connection is lost")
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
	if entry == nil || entry.Operation() != jetstream.KeyValuePut {
		return ""
	}
	job, list, number, kind := split(entry.Key())
	r, err := decode[Record](entry.Value())
	if err != nil || job == "" {
		c.Log.Warn("a record makes no sense", "key", entry.Key(), "error", err)
		return ""
	}
	if c.known[job] == nil {
		c.known[job] = new(tally)
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
			t = new(tally)
		}
		then, task := next(*job, t, time.Now().UTC())
		if job.State.Ended() {
			return c.clear(ctx, id)
		}
		if then.State == job.State && then.Done == job.Done && then.Dead == job.Dead {
			return nil
		}
		if task != nil {
			if err := publish(ctx, c.js, task); err != nil {
				return err
			}
		}
		text, err := json.Marshal(then)
		if err != nil {
			return err
		}
		if _, err := c.jobs.Update(ctx, id, text, entry.Revision()); err != nil {
			return err
		}
		if then.State != job.State {
			c.Log.Info("job", "id", id, "state", string(then.State), "shards", then.Shards, "dead", then.Dead, "reason", then.Reason)
		}
	}
}

// sweep publishes again what was begun and is not heard of any more, while workers wait for tasks: its
// message has got lost, or JetStream holds it back. The message is removed first, so nobody gets both.
// If somebody has the old one, the record of the new one makes that worker lose the task.
func (c *Controller) sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	late := map[*Task]*Record{}
	for id, t := range c.known {
		if len(t.open) == 0 {
			continue
		}
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
		for _, task := range overdue(*job, t, c.Lease, time.Now()) {
			late[task] = t.open[place{task.Kind, task.List, task.Number}].record
		}
	}
	if len(late) == 0 {
		return nil
	}
	tasks, err := c.tasks.Consumer(ctx, consumerName)
	if err != nil {
		return err
	}
	if info := tasks.CachedInfo(); info.NumWaiting == 0 || info.NumPending > 0 { // they may wait for a worker
		return nil
	}
	for task, r := range late {
		c.Log.Warn("a task was not heard of again: it is published anew", "key", task.key(), "worker", r.Worker, "message", r.Message, "attempt", r.Attempt)
		// The server refuses to delete a message that is gone.
		if err := c.tasks.DeleteMsg(ctx, r.Message); err != nil && !errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
			return err
		}
		text, err := json.Marshal(task)
		if err == nil {
			_, err = c.js.Publish(ctx, task.subject(), text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// publish publishes a task, once within the time of dedupe.
func publish(ctx context.Context, js jetstream.JetStream, t *Task) error {
	text, err := json.Marshal(t)
	if err == nil {
		_, err = js.Publish(ctx, t.subject(), text, jetstream.WithMsgID(t.key()))
	}
	return err
}

// clear removes what an ended job has left behind: tasks, lists, and at last the records by which the
// controller knows that there is something. The job's own record and its dead tasks stay.
func (c *Controller) clear(ctx context.Context, id string) error {
	if c.known[id] == nil {
		return nil
	}
	if err := c.tasks.Purge(ctx, jetstream.WithPurgeSubject("fxfer.v1.task."+id+".>")); err != nil {
		return err
	}
	lists, err := c.lists.List(ctx)
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		return err
	}
	for _, l := range lists {
		if strings.HasPrefix(l.Name, id+".") {
			if err := c.lists.Delete(ctx, l.Name); err != nil {
				return err
			}
		}
	}
	records, err := c.js.Stream(ctx, "KV_"+recordBucket)
	if err != nil {
		return err
	}
	if err := records.Purge(ctx, jetstream.WithPurgeSubject("$KV."+recordBucket+"."+id+".>")); err != nil {
		return err
	}
	delete(c.known, id)
	return nil
}
