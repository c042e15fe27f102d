package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/fxfer/fxfer/internal/fleet"
)

// crowd is how many members ask at once where the queue is to be busy.
const crowd = 16

// listed is how many paths the list of a shard has at most (internal/fleet/list.go).
const listed = 20_000

// queue is the controller's JetStream as a member sees it. docs/fleet.md has the names.
type queue struct {
	conn    *nats.Conn
	js      jetstream.JetStream
	stream  jetstream.Stream
	tasks   jetstream.Consumer // of one job
	jobs    jetstream.KeyValue
	records jetstream.KeyValue
	lists   jetstream.ObjectStore
}

// openQueue connects as a member. The caller closes the connection.
func openQueue(ctx context.Context, s *site) (q *queue, err error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(s.keys.Certificate)) {
		return nil, errors.New("the credentials have no certificate")
	}
	pair, err := nkeys.FromSeed([]byte(s.keys.Seed))
	if err != nil {
		return nil, err
	}
	public, err := pair.PublicKey()
	if err != nil {
		return nil, err
	}
	q = &queue{}
	q.conn, err = nats.Connect("tls://"+s.address, nats.Nkey(public, pair.Sign),
		nats.Secure(&tls.Config{RootCAs: pool, ServerName: "fxfer-fleet", MinVersion: tls.VersionTLS13}))
	if err != nil {
		return nil, err
	}
	q.js, err = jetstream.New(q.conn)
	if err == nil {
		q.stream, err = q.js.Stream(ctx, "fxfer-v1-tasks")
	}
	if err == nil {
		q.jobs, err = q.js.KeyValue(ctx, "fxfer-v1-jobs")
	}
	if err == nil {
		q.records, err = q.js.KeyValue(ctx, "fxfer-v1-records")
	}
	if err == nil {
		q.lists, err = q.js.ObjectStore(ctx, "fxfer-v1-lists")
	}
	if err != nil {
		q.conn.Close()
	}
	return q, err
}

// each calls f n times, several times at once, and returns the seconds that one takes: if they come one
// by one, until its end, otherwise until the next one's end.
func each(n, atOnce int, f func(i int) error) (float64, error) {
	var next atomic.Int64
	var group sync.WaitGroup
	failed := make(chan error, atOnce)
	began := time.Now()
	for range atOnce {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := f(i); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	group.Wait()
	took := time.Since(began).Seconds() / float64(n)
	select {
	case err := <-failed:
		return 0, err
	default:
		return took, nil
	}
}

// existing is a job that has ended.
const existing = "20260101-000000-eeeeee"

func key(job string, i int) string { return fmt.Sprintf("%s.1-1.%d", job, i) }

// record is what a worker writes about a task.
func record(o fleet.Outcome, i int) []byte {
	text, _ := json.Marshal(&fleet.Record{Version: fleet.Version, Outcome: o, Worker: "node-17-31337", Message: uint64(i + 1), Attempt: 1, At: time.Now().UTC(), Bytes: 32e9}) // never fails
	return text
}

// putJob writes the record of a job whose shards are being sent.
func (q *queue) putJob(ctx context.Context, id string, state fleet.State, shards int) error {
	now := time.Now().UTC()
	j := &fleet.Job{Version: fleet.Version, ID: id, Source: "/data/", URL: "fxfer://nas/files/data", Submitted: now, State: state, List: "1-1", Shards: shards}
	if state.Ended() {
		j.Ended = &now
	}
	text, err := json.Marshal(j)
	if err == nil {
		_, err = q.jobs.Put(ctx, id, text)
	}
	return err
}

// add does what the worker that lists does for a shard.
func (q *queue) add(ctx context.Context, job string, i int, list []byte) error {
	if _, err := q.lists.PutBytes(ctx, key(job, i), list); err != nil {
		return err
	}
	text, err := json.Marshal(&fleet.Task{Version: fleet.Version, Job: job, Kind: fleet.Send, List: "1-1", Number: i})
	if err == nil {
		_, err = q.js.Publish(ctx, "fxfer.v1.task."+key(job, i), text, jetstream.WithMsgID(key(job, i)))
	}
	return err
}

// begin does what a worker does until it sends a shard. It returns the task's key.
func (q *queue) begin(ctx context.Context, i int) (m jetstream.Msg, key string, err error) {
	offers := q.stream.ListConsumers(ctx)
	for range offers.Info() { // a worker compares them
		continue
	}
	if err := offers.Err(); err != nil {
		return nil, "", err
	}
	for m == nil { // a busy disk may take longer than a request does
		batch, err := q.tasks.Fetch(1, jetstream.FetchMaxWait(5*time.Second))
		if err != nil {
			return nil, "", err
		}
		if m = <-batch.Messages(); m == nil && ctx.Err() != nil {
			return nil, "", errors.Join(context.Cause(ctx), batch.Error())
		}
	}
	key = strings.TrimPrefix(m.Subject(), "fxfer.v1.task.")
	if _, err := q.jobs.Get(ctx, existing); err != nil {
		return nil, "", err
	}
	if _, err := q.records.Get(ctx, key); !errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, "", fmt.Errorf("the record of a new task: %w", err)
	}
	if _, err := q.records.Create(ctx, key, record(fleet.Running, i)); err != nil {
		return nil, "", err
	}
	for { // subscribing has a deadline of its own, which a busy disk does not keep
		object, err := q.lists.Get(ctx, key)
		if err == nil {
			_, err = io.Copy(io.Discard, object)
			err = errors.Join(err, object.Close())
		}
		if err == nil || ctx.Err() != nil {
			return m, key, err
		}
	}
}

// renew does what a worker does five times in each lease.
func (q *queue) renew(ctx context.Context, key string, o fleet.Outcome, i int) error {
	entry, err := q.records.Get(ctx, key)
	if err == nil {
		_, err = q.records.Update(ctx, key, record(o, i), entry.Revision())
	}
	return err
}

// measure measures the queue and the controller. The site has no workers.
func (q *queue) measure(ctx context.Context, n int, t *times) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute) // without a deadline, each request has one of 5 s
	defer cancel()
	list := make([]byte, 0, listed*50)
	for i := range listed {
		list = fmt.Appendf(list, "some/folder/of/a/project/d%04d/file-%06d.dat\x00", i/perFolder, i)
	}
	const job = "20260101-000000-aaaaaa" // there is none, so that its records make no work
	if err := q.putJob(ctx, existing, fleet.Done, 0); err != nil {
		return err
	}
	q.tasks, err = q.stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: job, FilterSubject: "fxfer.v1.task." + job + ".>", AckPolicy: jetstream.AckExplicitPolicy, AckWait: fleet.DefaultLease, MaxAckPending: 100_000,
	})
	if err != nil {
		return err
	}
	path := []byte("one/path\x00")
	busy, alone, long := tasksAt{atOnce: crowd, list: path}, tasksAt{atOnce: 1, list: path}, tasksAt{atOnce: 1, list: list}
	for from := 0; from < n; from += round { // before the lease of a task ends
		for i, step := range []struct {
			x *tasksAt
			n int
		}{{&busy, round}, {&alone, round / 20}, {&long, round / 20}} {
			if err := q.round(ctx, job, i*n+from, step.n, step.x); err != nil {
				return err
			}
		}
	}
	t.Add, t.Begin, t.Renew, t.End = busy.add/busy.n, busy.begin/busy.n, busy.renew/busy.n, busy.end/busy.n
	t.AddAlone, t.BeginAlone, t.EndAlone = alone.add/alone.n, alone.begin/alone.n, alone.end/alone.n
	t.AddPath = max(0, long.add/long.n-t.AddAlone) / listed
	t.BeginPath = max(0, long.begin/long.n-t.BeginAlone) / listed
	return q.measureController(ctx, n, t)
}

// round is how many tasks are under way at once.
const round = 200

// tasksAt are tasks that members do at the queue, so many at once, and the seconds of all.
type tasksAt struct {
	atOnce                 int
	list                   []byte
	n                      float64
	add, begin, renew, end float64
}

// round adds tasks, begins them, renews their leases and ends them.
func (q *queue) round(ctx context.Context, job string, from, n int, x *tasksAt) error {
	held, keys := make([]jetstream.Msg, n), make([]string, n)
	for _, step := range []struct {
		name  string
		spent *float64
		do    func(i int) error
	}{
		{"add", &x.add, func(i int) error { return q.add(ctx, job, from+i, x.list) }},
		{"begin", &x.begin, func(i int) (err error) {
			held[i], keys[i], err = q.begin(ctx, i)
			return err
		}},
		{"renew", &x.renew, func(i int) error {
			return errors.Join(q.renew(ctx, keys[i], fleet.Running, i), held[i].InProgress())
		}},
		{"end", &x.end, func(i int) error {
			return errors.Join(q.renew(ctx, keys[i], fleet.Ready, i), held[i].DoubleAck(ctx))
		}},
	} {
		took, err := each(n, x.atOnce, step.do)
		if err != nil {
			return fmt.Errorf("%s tasks: %w", step.name, err)
		}
		*step.spent += took * float64(n)
	}
	x.n += float64(n)
	return nil
}

// measureController has shards end as fast as they can, and waits until the controller has counted them.
// Then the job ends, and the controller removes their lists.
func (q *queue) measureController(ctx context.Context, n int, t *times) error {
	const job = "20260101-000001-bbbbbb"
	_, err := each(n, crowd, func(i int) error {
		_, err := q.lists.PutBytes(ctx, key(job, i), []byte("one/path\x00"))
		return err
	})
	if err != nil {
		return fmt.Errorf("put lists: %w", err)
	}
	if err := q.putJob(ctx, job, fleet.Sending, n); err != nil {
		return err
	}
	began := time.Now()
	wrote, err := each(n, crowd, func(i int) error {
		_, err := q.records.Put(ctx, key(job, i), record(fleet.Ready, i))
		return err
	})
	if err != nil {
		return fmt.Errorf("end shards: %w", err)
	}
	if err := q.await(ctx, job, func(j *fleet.Job) bool { return j.State == fleet.Finishing }); err != nil {
		return err
	}
	t.Controller, t.RecordPut = time.Since(began).Seconds()/float64(n), wrote
	began = time.Now()
	if err := q.putJob(ctx, job, fleet.Done, n); err != nil {
		return err
	}
	for { // the controller removes the records last
		_, err := q.records.Get(ctx, key(job, 0))
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			break
		}
		if err != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Clear = time.Since(began).Seconds() / float64(n)
	return nil
}

// await waits until a job's record is as wanted.
func (q *queue) await(ctx context.Context, job string, wanted func(*fleet.Job) bool) error {
	for {
		entry, err := q.jobs.Get(ctx, job)
		if err != nil {
			return err
		}
		var j fleet.Job
		if err := json.Unmarshal(entry.Value(), &j); err != nil {
			return err
		}
		if wanted(&j) {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// measureMemory has a controller of its own hold shards that have ended, and then jobs. Its store is in
// memory, because nothing depends on how long that takes, and its collector is eager, so that garbage
// counts little.
func (s *site) measureMemory(ctx context.Context, shards, jobs int, t *times) (err error) {
	m := &site{program: s.program, dir: s.fast, env: []string{"GOGC=10"}}
	defer func() {
		for _, d := range m.all {
			d.kill()
		}
	}()
	if err := m.control(ctx); err != nil {
		return err
	}
	defer m.member.Close()
	q, err := openQueue(ctx, m)
	if err != nil {
		return err
	}
	defer q.conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	put := func(n int, f func(i int) error) (grown float64, err error) {
		before, err := resident(m.controller.cmd.Process.Pid)
		if err == nil {
			_, err = each(n, crowd, f)
		}
		if err != nil {
			return 0, err
		}
		t.MemoryBase = cmp.Or(t.MemoryBase, float64(before))
		after, err := resident(m.controller.cmd.Process.Pid)
		return float64(after-before) / float64(n), err
	}
	const unknown = "20260101-000002-cccccc" // so no record of the job changes
	t.MemoryPerShard, err = put(shards, func(i int) error {
		_, err := q.records.Put(ctx, key(unknown, i), record(fleet.Ready, i))
		return err
	})
	if err != nil {
		return err
	}
	t.MemoryPerJob, err = put(jobs, func(i int) error {
		return q.putJob(ctx, fmt.Sprintf("20260101-%06d-dddddd", i), fleet.Done, 100)
	})
	return err
}
