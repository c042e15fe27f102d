package fleet

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// Member asks a fleet about its jobs, and submits them.
type Member struct {
	conn    *nats.Conn
	jobs    jetstream.KeyValue
	records jetstream.KeyValue
	dead    jetstream.KeyValue
}

// Connect connects to a fleet. The caller closes the Member. It is of no use when ctx is done.
func Connect(ctx context.Context, q Queue) (*Member, error) {
	conn, err := connect(ctx, q, "member")
	if err != nil {
		return nil, err
	}
	m := &Member{conn: conn}
	js, err := jetstream.New(conn)
	for bucket, kv := range map[string]*jetstream.KeyValue{jobBucket: &m.jobs, recordBucket: &m.records, deadBucket: &m.dead} {
		if err == nil {
			*kv, err = js.KeyValue(ctx, bucket)
		}
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("%s: %w", q, err)
	}
	return m, nil
}

// Close ends the connection.
func (m *Member) Close() { m.conn.Close() }

// Submit adds a job, which is durable when Submit returns. It returns its ID.
func (m *Member) Submit(ctx context.Context, source, url string, opt Options) (id string, err error) {
	now := time.Now().UTC()
	j := Job{
		Version: Version, ID: now.Format("20060102-150405") + "-" + strings.ToLower(rand.Text()[:6]),
		Source: source, URL: url, Options: opt, Submitted: now, State: New,
	}
	if err := j.Check(); err != nil {
		return "", &fxfer.Error{Kind: fxfer.KindUsage, Err: err}
	}
	text, err := json.Marshal(&j)
	if err == nil {
		_, err = m.jobs.Create(ctx, j.ID, text)
	}
	return j.ID, err
}

// Jobs returns all jobs, the oldest first.
func (m *Member) Jobs(ctx context.Context) (all []*Job, err error) {
	err = each(ctx, m.jobs, "", func(_ string, j *Job) { all = append(all, j) })
	slices.SortFunc(all, func(a, b *Job) int { return strings.Compare(a.ID, b.ID) })
	return all, err
}

// Active returns what is known of the tasks of a job that are running or waiting, by their keys. It is
// empty for a job that has ended.
func (m *Member) Active(ctx context.Context, job string) (map[string]*Record, error) {
	all := make(map[string]*Record)
	err := each(ctx, m.records, job+".>", func(key string, r *Record) {
		if r.Outcome == Running || r.Outcome == Waiting {
			all[key] = r
		}
	})
	return all, err
}

// Lines returns what the controller has given out of lines.
func (m *Member) Lines(ctx context.Context) ([]*LineStatus, error) {
	answer, err := m.conn.RequestWithContext(ctx, statusSubject, nil)
	if err != nil {
		return nil, err
	}
	var all []*LineStatus
	return all, json.Unmarshal(answer.Data, &all)
}

// Dead returns the tasks that were given up, of one job or of all, for "".
func (m *Member) Dead(ctx context.Context, job string) (all []*DeadTask, err error) {
	err = each(ctx, m.dead, "", func(_ string, d *DeadTask) {
		if job == "" || d.Task.Job == job {
			all = append(all, d)
		}
	})
	slices.SortFunc(all, func(a, b *DeadTask) int { return strings.Compare(a.Task.key(), b.Task.key()) })
	return all, err
}

// each calls visit for each value in a bucket whose key fits; "" fits all. It leaves out what it cannot
// read.
func each[T any](ctx context.Context, kv jetstream.KeyValue, keys string, visit func(key string, v *T)) error {
	if keys == "" {
		keys = jetstream.AllKeys
	}
	w, err := kv.Watch(ctx, keys, jetstream.IgnoreDeletes())
	if err != nil {
		return err
	}
	defer w.Stop() //nolint:errcheck // the connection ends soon
	return (&watch{KeyWatcher: w}).all(ctx, func(entry jetstream.KeyValueEntry) {
		if v, err := decode[T](entry.Value()); err == nil {
			visit(entry.Key(), v)
		}
	})
}
