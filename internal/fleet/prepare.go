package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// copies is how many servers of a cluster have each stream. One of three may die.
const copies = 3

// gatherFor is how long a cluster that has just started may take until its servers have found each
// other, and gatherEvery how long between two attempts.
const (
	gatherFor   = 10 * time.Second
	gatherEvery = 200 * time.Millisecond
)

// streams are what the fleet keeps in JetStream. The buckets are made as streams, because all have to be
// read at their leader: a server that follows may answer with what was true a moment ago, and a worker
// that does not find its job there would drop a task.
func streams() []jetstream.StreamConfig {
	bucket := func(name string, keep time.Duration) jetstream.StreamConfig {
		return jetstream.StreamConfig{
			Name: "KV_" + name, Subjects: []string{"$KV." + name + ".>"}, MaxMsgsPerSubject: 1, MaxAge: keep,
			AllowRollup: true, DenyDelete: true, Discard: jetstream.DiscardNew,
		}
	}
	return []jetstream.StreamConfig{
		{Name: taskStream, Subjects: []string{taskPrefix + ">"}, Retention: jetstream.WorkQueuePolicy, Duplicates: dedupe},
		bucket(jobBucket, 0),
		bucket(recordBucket, 0),
		bucket(deadBucket, deadFor),
		bucket(lineBucket, ownerFor),
		{
			Name: "OBJ_" + listBucket, Subjects: []string{"$O." + listBucket + ".C.>", "$O." + listBucket + ".M.>"},
			AllowRollup: true, Discard: jetstream.DiscardNew,
		},
	}
}

// prepare makes what the fleet needs in JetStream, or finds it there.
func (c *Controller) prepare(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	gather, settle := context.WithTimeout(ctx, gatherFor)
	defer settle()
	for _, config := range streams() {
		s, err := provide(ctx, gather, c.js, config)
		if err != nil {
			return err
		}
		if config.Name == taskStream {
			c.tasks = s
			if n := s.CachedInfo().Config.Replicas; n < copies && c.External != nil {
				c.Log.Warn("the cluster has too few servers for copies: the queue is gone if one of them is", "copies", n)
			}
		}
	}
	if err := c.findQueues(ctx); err != nil {
		return err
	}
	if c.jobs, err = c.js.KeyValue(ctx, jobBucket); err != nil {
		return err
	}
	if c.records, err = c.js.KeyValue(ctx, recordBucket); err != nil {
		return err
	}
	if c.dead, err = c.js.KeyValue(ctx, deadBucket); err != nil {
		return err
	}
	c.lists, err = c.js.ObjectStore(ctx, listBucket)
	return err
}

// provide makes a stream, or brings it up to date, with as many copies as the servers allow. It takes
// none away. Until gather is done, the servers of a cluster may not have found each other yet.
func provide(ctx, gather context.Context, js jetstream.JetStream, config jetstream.StreamConfig) (jetstream.Stream, error) {
	config.Replicas = copies
	s, err := js.CreateOrUpdateStream(ctx, config)
	for isAPI(err, noPeers) && gather.Err() == nil {
		select {
		case <-gather.Done():
		case <-time.After(gatherEvery):
			s, err = js.CreateOrUpdateStream(ctx, config)
		}
	}
	if !isAPI(err, noPeers) && !isAPI(err, notClustered) {
		return s, err
	}
	config.Replicas = 1
	if s, err = js.Stream(ctx, config.Name); err == nil {
		config.Replicas = s.CachedInfo().Config.Replicas
	} else if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, err
	}
	return js.CreateOrUpdateStream(ctx, config)
}

// These are JetStream's numbers of the errors where there are not enough servers for the copies of a
// stream: not enough of a cluster, and no cluster at all.
const noPeers, notClustered = 10005, 10074

func isAPI(err error, code jetstream.ErrorCode) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == code
}
