package fleet

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Each job has a queue of its own, a consumer of the stream of tasks with the job's ID as its name. So
// workers can choose a job, and those of a paused job stay where they are.

// findQueues notes which queues there are. What they are like is not known yet.
func (c *Controller) findQueues(ctx context.Context) error {
	c.queues = make(map[string]bool)
	names := c.tasks.ConsumerNames(ctx)
	for name := range names.Name() {
		c.queues[name] = false
	}
	return names.Err()
}

// queue makes the queue of a job.
func (c *Controller) queue(ctx context.Context, id string) error {
	if c.queues[id] {
		return nil
	}
	_, err := c.tasks.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: id, FilterSubject: taskPrefix + id + ".>", AckPolicy: jetstream.AckExplicitPolicy, AckWait: c.Lease, MaxAckPending: 100_000,
	})
	c.queues[id] = err == nil
	return err
}

// isIdle reports whether a worker has found no task since the last call.
func (c *Controller) isIdle() (idle bool) {
	for {
		if _, err := c.idle.NextMsg(time.Millisecond); err != nil { // none came
			return idle
		}
		idle = true
	}
}

// waiting reports whether tasks of a job wait for a worker, as far as the queue says.
func (c *Controller) waiting(ctx context.Context, id string) bool {
	tasks, err := c.tasks.Consumer(ctx, id)
	return err != nil || tasks.CachedInfo().NumPending > 0
}
