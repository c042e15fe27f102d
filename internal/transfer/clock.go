package transfer

import (
	"sync"
	"sync/atomic"
	"time"
)

// Stage is what a goroutine of a session does at one time.
type Stage uint8

// The stages of both sides. A Clock sums up those of all goroutines, so one second may hold many
// seconds of a stage.
const (
	Parked  Stage = iota // a stream that is not used
	Idle                 // a stream without a block to send
	Read                 // reading the source
	Digest               // computing digests
	Code                 // compressing, decompressing
	Send                 // in a data stream's Write
	Receive              // in a data stream's Read
	Write                // writing to the target
	Full                 // a stream waits, since too many files have no name yet
	Walk                 // listing the source
	Room                 // the walk waits: too much is announced and not resolved
	Feed                 // waiting for a source that is a stream, such as standard input
	Compare              // looking at what the target has
	Check                // reading files that are there, to compare, check or remove them
	Name                 // giving files their names, including Sync
	Sync                 // making the target durable while something waits for that
	stages
)

// Stages is the number of stages.
const Stages = int(stages)

// Times is how long the goroutines of one side were in each stage.
type Times [Stages]time.Duration

// Clock takes the times of one side. A nil Clock takes none.
type Clock struct {
	began time.Time

	mu    sync.Mutex // guards the following; held before lap.mu
	laps  map[*lap]struct{}
	ended Times
	syncs int           // syncs under way
	since time.Duration // by now, as those of laps

	blocks [len(BlockBounds) + 1]atomic.Int64
	spent  atomic.Int64 // ns, all blocks together
}

// BlockBounds are the upper bounds of the classes into which a Clock sorts blocks, by how long each
// took.
var BlockBounds = [...]time.Duration{
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
}

// Blocks counts blocks by how long they took: at the sender from the claim to the acknowledgement, at the
// receiver from the header to the written data.
type Blocks struct {
	// Counts has the blocks that took at most BlockBounds[i] and more than the bound before. The last
	// ones took longer than all bounds.
	Counts [len(BlockBounds) + 1]int64
	Spent  time.Duration // by all blocks together
}

// Blocks returns the counts so far.
func (c *Clock) Blocks() (b Blocks) {
	if c == nil {
		return b
	}
	for i := range c.blocks {
		b.Counts[i] = c.blocks[i].Load()
	}
	b.Spent = time.Duration(c.spent.Load())
	return b
}

// block counts a block that is done.
func (c *Clock) block(took time.Duration) {
	if c == nil {
		return
	}
	i := 0
	for i < len(BlockBounds) && took > BlockBounds[i] {
		i++
	}
	c.blocks[i].Add(1)
	c.spent.Add(int64(max(0, took)))
}

// NewClock starts a Clock.
func NewClock() *Clock { return &Clock{began: time.Now(), laps: make(map[*lap]struct{})} }

// now is the time of the clock. It costs half of time.Now, and each block needs it several times.
func (c *Clock) now() time.Duration {
	if c == nil {
		return 0
	}
	return time.Since(c.began)
}

// Times returns the times until now, including those of stages under way.
func (c *Clock) Times() Times {
	if c == nil {
		return Times{}
	}
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.countSyncsLocked(now)
	t := c.ended
	for l := range c.laps {
		l.mu.Lock()
		l.addTo(&t, now)
		l.mu.Unlock()
	}
	return t
}

// lap is one goroutine's part of a Clock. Only that goroutine changes it. A nil lap does nothing.
type lap struct {
	clock *Clock

	mu    sync.Mutex // guards the following; a leaf
	spent Times
	stage Stage
	since time.Duration // by clock.now
}

// start begins a lap, which must be stopped.
func (c *Clock) start(s Stage) *lap {
	if c == nil {
		return nil
	}
	l := &lap{clock: c, stage: s, since: c.now()}
	c.mu.Lock()
	c.laps[l] = struct{}{}
	c.mu.Unlock()
	return l
}

// enter begins the next stage, and returns the time of the clock.
func (l *lap) enter(s Stage) (now time.Duration) {
	if l == nil {
		return 0
	}
	now = l.clock.now()
	l.mu.Lock()
	l.spent[l.stage] += now - l.since
	l.stage, l.since = s, now
	l.mu.Unlock()
	return now
}

func (l *lap) stop() {
	if l == nil {
		return
	}
	c := l.clock
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addTo(&c.ended, now)
	delete(c.laps, l)
}

func (l *lap) addTo(t *Times, now time.Duration) {
	for i, d := range l.spent {
		t[i] += d
	}
	t[l.stage] += max(0, now-l.since)
}

// syncing counts a sync until done is called. Syncs at the same time count once.
func (c *Clock) syncing() (done func()) {
	if c == nil {
		return func() {}
	}
	change := func(n int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.countSyncsLocked(c.now())
		c.syncs += n
	}
	change(1)
	return func() { change(-1) }
}

func (c *Clock) countSyncsLocked(now time.Duration) {
	if c.syncs > 0 {
		c.ended[Sync] += max(0, now-c.since)
	}
	c.since = now
}
