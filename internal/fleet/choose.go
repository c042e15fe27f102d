package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

const (
	// randomOneIn is how many choices there are for each one that is made at random: also a job that always comes
	// last gets a worker now and then.
	randomOneIn = 8
	// lookEvery is how often a free worker looks for tasks that nobody announces, such as those of a
	// worker that is gone.
	lookEvery = 5 * time.Second
	// spread is over what time workers come that a new task wakes up together, so that each one sees what
	// the others have taken.
	spread = 100 * time.Millisecond
)

// offer is what JetStream knows of the tasks of a job.
type offer struct {
	job     string
	weight  int64  // by its priority
	waiting uint64 // tasks that no worker has had
	held    int    // tasks that workers have, or have given back for later
}

// load is how many workers the job has for its weight, with one more.
func (o *offer) load() float64 { return float64(o.held+1) / float64(o.weight) }

// order returns the jobs that may have a task, the one to ask first at the front: the one that would have
// the fewest workers for its weight, and at random where these are equal. One choice of randomOneIn is at random.
func order(offers []offer, random *rand.Rand) []string {
	offers = slices.DeleteFunc(slices.Clone(offers), func(o offer) bool { return o.waiting == 0 && o.held == 0 })
	random.Shuffle(len(offers), func(i, j int) { offers[i], offers[j] = offers[j], offers[i] })
	if random.IntN(randomOneIn) > 0 {
		slices.SortStableFunc(offers, func(a, b offer) int { return cmp.Compare(a.load(), b.load()) })
	}
	jobs := make([]string, len(offers))
	for i, o := range offers {
		jobs[i] = o.job
	}
	return jobs
}

// chooser finds tasks for a worker.
type chooser struct {
	conn   *nats.Conn
	stream jetstream.Stream
	random *rand.Rand
	tasks  map[string]jetstream.Consumer // of jobs that had tasks
	paused map[string]time.Time          // jobs that may be paused, until then: the controller may be away
	lease  time.Duration                 // of the last task
	news   *nats.Subscription            // of new tasks, while there are none
	woken  chan struct{}
	opened chan struct{} // a queue was opened
	opens  *nats.Subscription
}

func newChooser(conn *nats.Conn, stream jetstream.Stream) (*chooser, error) {
	c := &chooser{
		conn: conn, stream: stream, random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), //nolint:gosec // it decides about order only
		tasks: make(map[string]jetstream.Consumer), paused: make(map[string]time.Time),
		woken: make(chan struct{}, 1), opened: make(chan struct{}, 1),
	}
	var err error
	c.opens, err = conn.Subscribe(openSubject, note(c.opened))
	return c, err
}

// note leaves a note in a channel, unless there is one.
func note(in chan struct{}) nats.MsgHandler {
	return func(*nats.Msg) {
		select {
		case in <- struct{}{}:
		default:
		}
	}
}

// next returns a task. Without one, it returns nil after some time, or when somebody published one.
func (c *chooser) next(ctx context.Context) (jetstream.Msg, error) {
	m, err := c.look(ctx)
	if m != nil || err != nil {
		c.rest()
		return m, err
	}
	if c.news == nil { // a task may have come before
		c.news, err = c.conn.Subscribe(taskPrefix+">", note(c.woken))
		return nil, err
	}
	_ = c.conn.Publish(idleSubject, nil) // the controller may look for what was lost
	select {
	case <-ctx.Done():
	case <-time.After(lookEvery):
	case <-c.opened:
		clear(c.paused)
		pause(ctx, rand.N(spread)) //nolint:gosec // it decides about order only
	case <-c.woken:
		pause(ctx, rand.N(spread)) //nolint:gosec // it decides about order only
	}
	return nil, nil
}

// close ends what the chooser has begun. It is called while nobody waits.
func (c *chooser) close() {
	c.rest()
	_ = c.opens.Unsubscribe()
}

// rest ends what next has begun.
func (c *chooser) rest() {
	if c.news != nil {
		_ = c.news.Unsubscribe() // or the connection is gone, and it too
		c.news = nil
	}
}

// avoid asks the job of a task for no more tasks for a moment: it is paused, and its queue does not say so
// yet.
func (c *chooser) avoid(subject string, now time.Time) {
	job, _, _ := strings.Cut(strings.TrimPrefix(subject, taskPrefix), ".")
	c.paused[job] = now.Add(lookEvery)
}

// look asks the jobs for a task, and returns nil if none has one.
func (c *chooser) look(ctx context.Context) (jetstream.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	var offers []offer
	open := make(map[string]bool)
	list := c.stream.ListConsumers(ctx)
	for info := range list.Info() {
		open[info.Name] = true
		if info.Config.Metadata[pausedKey] != "true" && !time.Now().Before(c.paused[info.Name]) {
			weight := weightOf[fxfer.Priority(info.Config.Metadata[priorityKey])]
			offers = append(offers, offer{info.Name, max(1, weight), info.NumPending, info.NumAckPending})
		}
		c.lease = info.Config.AckWait
	}
	if err := list.Err(); err != nil {
		return nil, err
	}
	for job := range c.tasks {
		if !open[job] {
			delete(c.tasks, job)
			delete(c.paused, job)
		}
	}
	var failed error
	for _, job := range order(offers, c.random) {
		m, err := c.take(ctx, job)
		if m != nil {
			return m, nil
		}
		if err != nil {
			delete(c.tasks, job)
			failed = fmt.Errorf("job %s: %w", job, err)
		}
	}
	return nil, failed
}

// take takes a task of a job, nil if there is none.
func (c *chooser) take(ctx context.Context, job string) (m jetstream.Msg, err error) {
	tasks := c.tasks[job]
	if tasks == nil {
		if tasks, err = c.stream.Consumer(ctx, job); err != nil {
			return nil, unlessEnded(err)
		}
		c.tasks[job] = tasks
	}
	batch, err := tasks.FetchNoWait(1)
	if err != nil {
		return nil, err
	}
	for m = range batch.Messages() { // one at most
		continue
	}
	return m, unlessEnded(batch.Error())
}

// unlessEnded returns nil for an error that says that a job has ended meanwhile.
func unlessEnded(err error) error {
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrConsumerDeleted) || errors.Is(err, nats.ErrNoResponders) {
		return nil
	}
	return err
}
