package fleet

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Each job has a queue of its own, a consumer of the stream of tasks with the job's ID as its name. So
// workers can choose a job, and those of a paused job stay where they are.

// queueState is what a controller knows of a queue: "" for one that an earlier controller made, and
// otherwise what is in its metadata under pausedKey.
type queueState string

// pausedKey is where the queue of a job says whether workers may take its tasks.
const pausedKey = "fxfer-paused"

// findQueues notes which queues there are.
func (c *Controller) findQueues(ctx context.Context) error {
	c.queues = make(map[string]queueState)
	names := c.tasks.ConsumerNames(ctx)
	for name := range names.Name() {
		c.queues[name] = ""
	}
	return names.Err()
}

// queue makes the queue of a job as the job says, unless it is so.
func (c *Controller) queue(ctx context.Context, j *Job) error {
	is, should := c.queues[j.ID], queueState(strconv.FormatBool(j.Paused))
	if is == should {
		return nil
	}
	_, err := c.tasks.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: j.ID, FilterSubject: taskPrefix + j.ID + ".>", AckPolicy: jetstream.AckExplicitPolicy, AckWait: c.Lease, MaxAckPending: 100_000,
		Metadata: map[string]string{pausedKey: string(should), priorityKey: string(j.Options.Priority)},
	})
	if err != nil {
		return err
	}
	c.queues[j.ID] = should
	if j.Paused {
		return nil
	}
	if t := c.known[j.ID]; t != nil {
		t.resumed = time.Now()
	}
	return c.js.Conn().Publish(openSubject, nil) // free workers need not wait until they look again
}

// close removes the tasks of a job and their queue.
func (c *Controller) close(ctx context.Context, id string) error {
	if err := c.tasks.Purge(ctx, jetstream.WithPurgeSubject(taskPrefix+id+".>")); err != nil {
		return err
	}
	if err := c.tasks.DeleteConsumer(ctx, id); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return err
	}
	delete(c.queues, id)
	return nil
}

// isIdle reports whether a worker has found no task since the last call. What comes meanwhile is for the
// next one: members may say so as often as they like.
func (c *Controller) isIdle() bool {
	said, _, err := c.idle.Pending()
	for range said {
		_, _ = c.idle.NextMsg(time.Millisecond) // it is there, or was one too many for the client to keep
	}
	return err == nil && said > 0
}

// waiting reports whether tasks of a job wait for a worker, as far as the queue says.
func (c *Controller) waiting(ctx context.Context, id string) bool {
	tasks, err := c.tasks.Consumer(ctx, id)
	return err != nil || tasks.CachedInfo().NumPending > 0
}
