package fleet

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
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
	js      jetstream.JetStream
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
	m.js, err = jetstream.New(conn)
	for bucket, kv := range map[string]*jetstream.KeyValue{jobBucket: &m.jobs, recordBucket: &m.records, deadBucket: &m.dead} {
		if err == nil {
			*kv, err = m.js.KeyValue(ctx, bucket)
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
	err = each(ctx, m.js, m.jobs, jetstream.AllKeys, func(_ string, j *Job) { all = append(all, j) })
	slices.SortFunc(all, func(a, b *Job) int { return strings.Compare(a.ID, b.ID) })
	return all, err
}

// Active returns what is known of the tasks of a job that are running or waiting, by their keys. It is
// empty for a job that has ended.
func (m *Member) Active(ctx context.Context, job string) (map[string]*Record, error) {
	all := make(map[string]*Record)
	err := each(ctx, m.js, m.records, job+".>", func(key string, r *Record) {
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
	err = each(ctx, m.js, m.dead, jetstream.AllKeys, func(_ string, d *DeadTask) {
		if job == "" || d.Task.Job == job {
			all = append(all, d)
		}
	})
	slices.SortFunc(all, func(a, b *DeadTask) int { return strings.Compare(a.Task.key(), b.Task.key()) })
	return all, err
}

// each calls visit once for each value in a bucket whose key fits. It leaves out what it cannot read.
func each[T any](ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, keys string, visit func(key string, v *T)) error {
	all, err := entries(ctx, js, kv, keys)
	for key, entry := range all {
		if entry.Operation() != jetstream.KeyValuePut {
			continue
		}
		if v, err := decode[T](entry.Value()); err == nil {
			visit(key, v)
		}
	}
	return err
}

// entries returns what a bucket has, deleted entries included. A watch that begins is over after as many
// entries as there were: one that changes meanwhile counts twice, and the last ones are missing. So they
// are asked for.
func entries(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, keys string) (map[string]jetstream.KeyValueEntry, error) {
	w, err := kv.Watch(ctx, keys)
	if err != nil {
		return nil, err
	}
	defer w.Stop() //nolint:errcheck // the connection ends soon
	all := make(map[string]jetstream.KeyValueEntry)
	if err := (&watch{KeyWatcher: w}).all(ctx, func(entry jetstream.KeyValueEntry) { all[entry.Key()] = entry }); err != nil {
		return nil, err
	}
	s, err := js.Stream(ctx, "KV_"+kv.Bucket())
	if err != nil {
		return nil, err
	}
	prefix := "$KV." + kv.Bucket() + "."
	there, err := s.Info(ctx, jetstream.WithSubjectFilter(prefix+keys))
	if err != nil {
		return nil, err
	}
	for subject := range there.State.Subjects {
		key := strings.TrimPrefix(subject, prefix)
		if all[key] != nil {
			continue
		}
		entry, err := kv.Get(ctx, key)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all[key] = entry
	}
	return all, nil
}
