package transfer

import (
	"slices"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/blockset"
	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// batchFiles and batchBytes bound the small files that a stream sends at once, with one write.
	batchFiles = 64
	batchBytes = 256 << 10
	// firstBatch bounds the first of them, in bytes: about what a stream sends before the first
	// acknowledgement (RFC 6928). A batch is never more than the stream has carried so far. Otherwise
	// its last files would leave round trips later, and the receiver would wait with the first ones
	// of others for announcements, whose stream starts as slowly.
	firstBatch = 16 << 10

	// An idle stream sends a block that another stream carries if that takes more than patience
	// times the usual latency, and at least overdueAfter. slowStart bytes must have shown what is
	// usual.
	patience     = 2
	overdueAfter = 500 * time.Millisecond
	slowStart    = 16 << 20
)

// claims say which stream sends which block. A stream that is ready claims the next block, so a
// fast stream carries more. A block is in flight until the receiver has written it; what a dead
// stream had in flight can be claimed again.
type claims struct {
	counts    *counters
	clock     *Clock
	planned   int  // streams that will come at once, 0 if unknown
	speculate bool // send first blocks before the receiver's answer

	mu         sync.Mutex // guards the following, and what names it; held before deltaSend.mu
	cond       *sync.Cond // streams wait here for blocks, feeds for room
	parked     *sync.Cond // streams that are not used wait here
	streams    sendStreams
	traffic    traffic
	large      []*sending  // files of several blocks, and streams, with blocks to claim
	small      []*sending  // files of one block to claim
	walked     bool        // no entry follows
	answered   bool        // the receiver has answered at all
	speculated int64       // bytes offered before that
	offered    int64       // blocks that could be claimed so far
	acked      bool        // a block was acknowledged
	timer      *time.Timer // wakes an idle stream that waits for a block to be overdue
	scanned    time.Time   // when an overdue block was last looked for
	over       bool
}

// task is what a stream has claimed: a block of a file, or some small files.
type task struct {
	entry *sending
	block int64
	kept  []byte // the block, if it is of a stream and held in memory
	patch *patch // how to send it, if it has an old version; nil for whole

	small []*sending
}

func newClaims(counts *counters, clock *Clock, planned int, speculate bool) *claims {
	c := &claims{
		counts: counts, clock: clock, planned: planned, speculate: speculate,
		streams: sendStreams{live: make(map[uint64]*sendStream)}, traffic: traffic{began: time.Now()},
	}
	c.cond, c.parked = sync.NewCond(&c.mu), sync.NewCond(&c.mu)
	c.timer = time.AfterFunc(time.Hour, c.wake)
	c.timer.Stop()
	return c
}

// end lets nothing be claimed any more, makes all waits return, and returns the streams that live.
func (c *claims) end() (live []*sendStream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.timer.Stop()
	c.wakeLocked()
	for _, st := range c.streams.live {
		live = append(live, st)
	}
	return live
}

// wake makes all streams look again.
func (c *claims) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wakeLocked()
}

func (c *claims) wakeLocked() {
	c.cond.Broadcast()
	c.parked.Broadcast()
}

// addStream takes a stream in, and calls start before the session can end. It returns false if the
// session is over or the id is taken.
func (c *claims) addStream(id uint64, stream Stream, start func(*sendStream)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || c.streams.live[id] != nil {
		return false
	}
	st := &sendStream{id: id, stream: stream}
	c.streams.live[id] = st
	start(st)
	return true
}

// receiverClosed notes that the receiver has closed a stream. What is in flight on it may be lost.
func (c *claims) receiverClosed(st *sendStream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	st.ended = true
	if st.flying > 0 {
		st.dead = true
		c.wakeLocked()
	}
}

// lose takes a stream out and lets others have what it had in flight.
func (c *claims) lose(st *sendStream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	st.dead = true
	delete(c.streams.live, st.id)
	c.wakeLocked() // a parked stream may take its place
	if st.flying == 0 || c.over {
		return
	}
	for _, e := range slices.Backward(c.traffic.entries) { // which may lose this one
		for block := range e.claims.flying.all() {
			c.traffic.leave(e, block, st)
		}
		c.queueFirstLocked(e)
	}
}

// kill makes a stream claim nothing more, and returns it; nil if it is gone.
func (c *claims) kill(id uint64) *sendStream {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.streams.live[id]
	if st != nil {
		st.dead = true
	}
	c.wakeLocked()
	return st
}

// dead reports whether others send what a stream had in flight.
func (c *claims) dead(st *sendStream) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return st.dead
}

// retire makes a stream end once nothing of it is in flight.
func (c *claims) retire(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if st := c.streams.live[id]; st != nil {
		st.retired = true
	}
	c.wakeLocked()
}

// setActive lets only n streams claim, 0 for all: those that were used, then those with the lowest ids.
func (c *claims) setActive(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams.active = n
	c.wakeLocked()
}

// states returns the state of each stream that lives.
func (c *claims) states() []StreamState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.streams.states(c.traffic.began)
}

// ending reports whether there is nothing left to claim, and nothing will come.
func (c *claims) ending() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.walked && len(c.large) == 0 && len(c.small) == 0
}

// setWalked notes that no entry follows.
func (c *claims) setWalked() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.walked = true
	c.cond.Broadcast()
}

// claim waits for something to send. batch is room for small files. It returns false when the
// session or the stream is over.
func (c *claims) claim(st *sendStream, batch []*sending, lap *lap) (task, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		left := len(c.large) + len(c.small)
		if c.over || st.dead || st.ended && left > 0 || st.retired && st.flying == 0 {
			return task{}, false
		}
		parked := c.streams.isParked(st)
		if !parked && !c.enoughLocked(st) {
			if t, ok := c.claimBlockLocked(st); ok {
				return t, true
			}
			if small := c.claimSmallLocked(st, batch[:0]); len(small) > 0 {
				return task{small: small}, true
			}
		}
		if t, ok := c.claimOverdueLocked(st, batch[:0]); ok {
			return t, true
		}
		if parked {
			lap.enter(Parked)
			c.parked.Wait()
		} else {
			lap.enter(Idle)
			c.cond.Wait()
		}
	}
}

// enoughLocked keeps the streams that connect first from claiming all of a short transfer. Until
// the first acknowledgement shows how fast each one is, all get the same share.
func (c *claims) enoughLocked(st *sendStream) bool {
	streams := int64(c.planned)
	return streams > 0 && !c.acked && int64(st.flying) >= max(1, (c.offered+streams-1)/streams)
}

// claimBlockLocked takes a block of the first large file. Large files go first, so that none is
// left to one stream at the end.
func (c *claims) claimBlockLocked(st *sendStream) (task, bool) {
	for len(c.large) > 0 {
		e := c.large[0]
		if e.closed.Load() || e.claims.todo.Empty() {
			e.claims.queued = false
			c.large = c.large[1:]
			continue
		}
		block := e.claims.todo.Pop()
		c.takeLocked(e, block, st, c.now())
		return taskLocked(e, block), true
	}
	return task{}, false
}

// taskLocked is the task to send a block.
func taskLocked(e *sending, block int64) task {
	t := task{entry: e, block: block, kept: e.claims.kept[block]}
	if e.claims.delta != nil {
		t.patch = e.claims.delta.patchOf(block)
	}
	return t
}

// claimSmallLocked takes a batch of small files, but no more than the stream's share of those there
// are.
func (c *claims) claimSmallLocked(st *sendStream, batch []*sending) []*sending {
	streams := c.streams.count()
	most := min(batchFiles, (len(c.small)+streams-1)/max(1, streams))
	mostBytes := min(batchBytes, max(firstBatch, st.carried))
	var size int64
	now := c.now()
	for len(c.small) > 0 && len(batch) < most {
		e := c.small[0]
		if e.closed.Load() || e.claims.todo.Empty() {
			e.claims.queued = false
			c.small = c.small[1:]
			continue
		}
		if size += e.item.Entry.Size + wire.BlockHeaderLen; size > mostBytes && len(batch) > 0 {
			break
		}
		c.small = c.small[1:]
		e.claims.queued = false
		e.claims.todo = blockset.Set{}
		c.takeLocked(e, 0, st, now)
		batch = append(batch, e)
	}
	return batch
}

// takeLocked counts a block that a stream claims now.
func (c *claims) takeLocked(e *sending, block int64, st *sendStream, now time.Duration) {
	c.traffic.fly(e, block, st, now)
	if e.claims.sent.Has(block) {
		c.counts.resent.Add(freshLocked(e, block))
	}
	e.claims.sent.Add(block)
}

// claimOverdueLocked finds a block for an idle stream when all are claimed: one that takes much
// longer than blocks did. Its stream may be held up by losses, and at the end of a transfer
// everything waits for it. It is sent twice, and written once.
func (c *claims) claimOverdueLocked(st *sendStream, batch []*sending) (task, bool) {
	busy := len(c.large) > 0 || len(c.small) > 0
	if !c.walked || busy || st.retired || c.counts.written.Load() < slowStart {
		return task{}, false
	}
	if wait := overdueAfter/4 - time.Since(c.scanned); wait > 0 {
		c.timer.Reset(wait)
		return task{}, false
	}
	c.scanned = time.Now()
	e, block, since := c.traffic.oldest(st)
	if e == nil {
		return task{}, false
	}
	if wait := max(overdueAfter, patience*c.traffic.latency) - (c.traffic.now() - since); wait > 0 {
		c.timer.Reset(wait)
		return task{}, false
	}
	c.traffic.fly(e, block, st, c.now())
	c.counts.resent.Add(freshLocked(e, block))
	if e.small() {
		return task{small: append(batch, e)}, true
	}
	return taskLocked(e, block), true
}

// land ends the flight of a block that needs no acknowledgement.
func (c *claims) land(e *sending, block int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.traffic.land(e, block, unseen)
}

// leave takes a block that could not be read from a stream. It returns whether another stream
// carries it.
func (c *claims) leave(e *sending, block int64, st *sendStream) (carried bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, _ := e.claims.flying.get(block)
	c.traffic.leave(e, block, st)
	return f.owners[1] != nil
}

// speculateOn offers the first blocks of a file before the receiver's answer, if that may be worth
// it: a short transfer saves a round trip, a long one would send what the receiver has.
func (c *claims) speculateOn(e *sending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.fixed == 0 || e.item.part() != nil || !c.speculate || c.answered || c.speculated >= speculate {
		return
	}
	e.claims.offered = min(e.fixed, max(1, (speculate-c.speculated)>>e.item.Entry.BlockLog))
	c.speculated += min(e.item.Entry.Size, e.offset(e.claims.offered))
	c.offerLocked(e, 0, e.claims.offered)
}

// offerLocked adds blocks to those that can be claimed.
func (c *claims) offerLocked(e *sending, start, count int64) {
	e.claims.todo.AddRun(start, count)
	c.offered += count
	c.queueLocked(e)
}

// need offers what the receiver lacks of a file of which it has some blocks.
func (c *claims) need(e *sending, have blockset.Set) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered = true
	e.claims.todo.AddRun(e.claims.offered, e.fixed-e.claims.offered)
	c.offered += e.fixed - e.claims.offered
	e.claims.offered = e.fixed
	for run := range have.All() {
		e.claims.todo.RemoveRun(run.Start, run.Count)
	}
	c.queueLocked(e)
}

// needDelta is need for a file with an old version. It returns the blocks that are offered later,
// by release.
func (c *claims) needDelta(e *sending, have blockset.Set, d *deltaSend) (todo blockset.Set) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered = true
	todo.AddRun(e.claims.offered, e.fixed-e.claims.offered) // the others are on their way
	e.claims.offered = e.fixed
	for run := range have.All() {
		e.claims.todo.RemoveRun(run.Start, run.Count)
		todo.RemoveRun(run.Start, run.Count)
	}
	e.claims.delta = d
	return todo
}

// release offers blocks of a file with an old version.
func (c *claims) release(e *sending, start, count int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offerLocked(e, start, count)
}

// setAnswered notes that the receiver has answered.
func (c *claims) setAnswered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered = true
}

// takeHole takes the blocks before last that are to be claimed, and block, out of those to be sent.
// Streams that have claimed others find out for themselves.
func (c *claims) takeHole(e *sending, block, last int64) blockset.Set {
	c.mu.Lock()
	defer c.mu.Unlock()
	hole := e.claims.todo.Within(block, last-block)
	hole.Add(block)
	for run := range hole.All() {
		e.claims.todo.RemoveRun(run.Start, run.Count)
	}
	return hole
}

// keptBlocks bounds the blocks of a stream that are read and not acknowledged. It is the window of
// such a transfer.
const keptBlocks = 64

// waitKept waits until one more block of a stream may be kept. It returns false when the session or
// the entry is over.
func (c *claims) waitKept(e *sending) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.over && !e.closed.Load() && len(e.claims.kept) >= keptBlocks {
		c.cond.Wait()
	}
	return !c.over && !e.closed.Load()
}

// keep offers a block of a stream.
func (c *claims) keep(e *sending, block int64, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.claims.kept[block] = data
	c.offerLocked(e, block, 1)
}

// queueLocked lets streams find the entry's blocks.
func (c *claims) queueLocked(e *sending) {
	switch {
	case e.claims.queued || e.closed.Load() || e.claims.todo.Empty():
		return
	case !e.small():
		c.large = append(c.large, e)
		c.cond.Broadcast()
	case c.acked:
		c.small = append(c.small, e)
		c.cond.Signal()
	default:
		c.small = append(c.small, e)
		c.cond.Broadcast() // some may have their share already
	}
	e.claims.queued = true
}

// queueFirstLocked is queueLocked before the others: the entry's blocks are overdue.
func (c *claims) queueFirstLocked(e *sending) {
	if e.claims.queued || e.closed.Load() || e.claims.todo.Empty() {
		return
	}
	e.claims.queued = true
	if e.small() {
		c.small = slices.Insert(c.small, 0, e)
	} else {
		c.large = slices.Insert(c.large, 0, e)
	}
	c.cond.Broadcast()
}

// now returns the time of the session.
func (c *claims) now() time.Duration { return c.traffic.now() }

// written counts an acknowledged block. It returns its length, 0 if it was counted before, and how
// much of it was sent.
func (c *claims) written(e *sending, block int64, now time.Duration) (n, fresh int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, flying := e.claims.flying.get(block)
	switch {
	case flying:
		n, fresh = c.countWrittenLocked(e, block)
		took := c.traffic.land(e, block, now)
		if fresh == n { // otherwise short patches would make whole blocks look late
			c.traffic.learn(took)
		}
		c.clock.block(took)
		if e.claims.kept != nil || !c.acked {
			c.acked = true
			c.cond.Broadcast()
		}
	case !e.claims.sent.Has(block):
		return 0, 0, protocolError("block %d of entry %d was never sent", block, e.index)
	case e.claims.todo.Has(block): // it was written, though its stream died
		n, fresh = c.countWrittenLocked(e, block)
		e.claims.todo.Remove(block)
	}
	return n, fresh, nil
}

func (c *claims) countWrittenLocked(e *sending, block int64) (n, fresh int64) {
	n, fresh = lengthLocked(e, block), freshLocked(e, block)
	if e.claims.delta != nil {
		e.claims.delta.forget(block, 1)
	}
	delete(e.claims.kept, block)
	c.counts.written.Add(fresh)
	c.counts.copied.Add(n - fresh)
	return n, fresh
}

// resend offers blocks that the receiver found damaged. They come whole, without patch.
func (c *claims) resend(e *sending, blocks []wire.Extent) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range blocks {
		if e.claims.kept != nil || x.Start+x.Count > e.fixed || e.outside(blockset.Of([]wire.Extent{x})) {
			return protocolError("entry %d has no such blocks", e.index)
		}
		c.counts.rejected.Add(x.Count)
		for b := range e.claims.flying.all() {
			if b >= x.Start && b < x.Start+x.Count {
				c.traffic.land(e, b, unseen)
			}
		}
		if e.claims.delta != nil {
			e.claims.delta.forget(x.Start, x.Count)
		}
		e.claims.todo.AddRun(x.Start, x.Count)
	}
	c.queueFirstLocked(e)
	return nil
}

// close lets nothing of an entry be claimed any more. Whoever waits for it looks again.
func (c *claims) close(e *sending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeLocked(e)
}

func (c *claims) closeLocked(e *sending) {
	e.closed.Store(true)
	e.claims.todo = blockset.Set{}
	if e.claims.delta != nil {
		e.claims.delta.wake()
	}
	if e.claims.kept != nil {
		c.cond.Broadcast()
	}
}

// forget closes entries that are resolved, and ends what is in flight of them. A nil entry is none.
func (c *claims) forget(entries ...*sending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range entries {
		if e == nil {
			continue
		}
		c.closeLocked(e)
		for block := range e.claims.flying.all() {
			c.traffic.land(e, block, unseen)
		}
		clear(e.claims.kept)
	}
}

// dropShared replaces resolved entries by nil that others may still have: carriers, a feed, or whoever
// compares or rechecks them.
func (c *claims) dropShared(all []*sending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, e := range all {
		if e != nil && (e.answered || e.comparing || e.item.Stream != nil || e.claims.offered > 0) {
			all[i] = nil
		}
	}
}

// freshLocked is how many bytes of a block are sent.
func freshLocked(e *sending, block int64) int64 {
	if e.claims.delta != nil {
		if p := e.claims.delta.patchOf(block); p != nil {
			return p.fresh
		}
	}
	return lengthLocked(e, block)
}

func lengthLocked(e *sending, block int64) int64 {
	if e.claims.kept != nil {
		return int64(len(e.claims.kept[block]))
	}
	return int64(e.length(block))
}
