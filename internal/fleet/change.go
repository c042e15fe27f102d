package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// Change is what a member may do to a job.
type Change string

// The changes.
const (
	Pause  Change = "pause"  // workers give its tasks back, and take none
	Resume Change = "resume" // ends a pause
	Cancel Change = "cancel" // the job ends, and what was sent stays
	Retry  Change = "retry"  // its dead tasks are published again
)

// changed returns a job after a change. dead is how many of its tasks were given up.
func (j Job) changed(c Change, dead int, now time.Time) (Job, error) {
	if j.over() && (c != Retry || j.State != Failed) {
		return j, refusal("job %s has ended: it is %s", j.ID, j.State)
	}
	switch c {
	case Pause:
		j.Paused = true
	case Resume:
		j.Paused = false
	case Cancel:
		j.Paused, j.Retried = false, j.Retries
		j = j.end(Cancelled, "", now)
	case Retry:
		switch {
		case j.Retries > j.Retried: // somebody has asked for it
		case j.State == Finishing:
			return j, refusal("job %s is finishing: its last task sends what dead shards have left", j.ID)
		case j.State != Failed && dead == 0:
			return j, refusal("job %s has no dead shards", j.ID)
		default:
			j.Retries++
		}
	default:
		return j, refusal("there is no change %q", c)
	}
	return j, nil
}

func refusal(format string, a ...any) error {
	return &fxfer.Error{Kind: fxfer.KindUsage, Err: fmt.Errorf(format, a...)}
}

// Change changes a job, which is durable when Change returns. An error of fxfer.KindUsage is a refusal.
func (m *Member) Change(ctx context.Context, id string, c Change) error {
	for {
		entry, err := m.jobs.Get(ctx, id)
		if errors.Is(err, jetstream.ErrKeyNotFound) || errors.Is(err, jetstream.ErrInvalidKey) {
			return refusal("there is no job %s", id)
		}
		if err != nil {
			return err
		}
		job, err := readJob(id, entry.Value())
		if err != nil {
			return fmt.Errorf("job %s: %w", id, err)
		}
		dead, err := m.Dead(ctx, id)
		if err != nil {
			return err
		}
		then, err := job.changed(c, len(dead), time.Now().UTC())
		if err != nil {
			return err
		}
		text, err := json.Marshal(then)
		if err == nil {
			_, err = m.jobs.Update(ctx, id, text, entry.Revision())
		}
		if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) { // somebody else changed it
			return err
		}
	}
}

// revived decides how a job goes on whose dead tasks are tried again. It returns the job as it is then,
// the shards to publish, and the other tasks that count as if they had not been.
func revived(j Job, t *progress) (then Job, shards []*Task, forget []Kind) {
	switch {
	case j.State == Failed && (t.list == nil || t.list.Outcome != Ready): // nothing of it can be used
		j.State, forget = New, []Kind{List, Finish}
	case j.State == Failed:
		j.State, forget = Sending, []Kind{Finish}
	}
	if j.State != New {
		for list, e := range t.shards {
			for number, dead := range e.dead {
				if dead && (j.State == Listing || list == j.List) {
					shards = append(shards, &Task{Version: Version, Job: j.ID, Kind: Send, List: list, Number: number})
				}
			}
		}
	}
	j.Retried, j.Ended, j.Reason = j.Retries, nil, ""
	return j, shards, forget
}

// retry publishes dead tasks again. Their records say so before: the end of a task is final for workers.
// If the controller dies in between, it begins again, or finds that nobody has heard of a task. Another
// controller may do the same.
func (c *Controller) retry(ctx context.Context, j *Job, t *progress) (Job, error) {
	then, shards, forget := revived(*j, t)
	for _, kind := range forget {
		task := &Task{Version: Version, Job: j.ID, Kind: kind}
		err := c.revive(ctx, task, func(revision uint64) error {
			return c.records.Delete(ctx, task.key(), jetstream.LastRevision(revision))
		})
		if err != nil {
			return then, err
		}
		t.forget(place{kind: kind})
	}
	for _, task := range shards {
		r := &Record{Version: Version, Outcome: Waiting, At: time.Now().UTC(), Reason: "it is tried again"}
		text, err := json.Marshal(r)
		if err != nil {
			return then, err
		}
		err = c.revive(ctx, task, func(revision uint64) error {
			_, err := c.records.Update(ctx, task.key(), text, revision)
			return err
		})
		if err != nil {
			return then, err
		}
		t.add(place{task.Kind, task.List, task.Number}, r, time.Now())
		if err := publish(ctx, c.js, task, j.Retries); err != nil {
			return then, err
		}
	}
	return then, nil
}

// revive has change replace the record of a task, if it is dead, and removes it from the dead ones.
func (c *Controller) revive(ctx context.Context, t *Task, change func(revision uint64) error) error {
	entry, err := c.records.Get(ctx, t.key())
	if err == nil {
		if r, bad := decode[Record](entry.Value()); bad != nil || r.Outcome == Dead {
			err = change(entry.Revision())
		}
	}
	if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) && !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return err
	}
	return c.dead.Delete(ctx, t.key())
}
