package transfer

import (
	"iter"
	"slices"
	"time"

	"github.com/fxfer/fxfer/internal/compress"
	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

// sendStream is a data stream of the sender.
type sendStream struct {
	id      uint64
	stream  Stream
	dead    bool
	retired bool      // it may claim no more
	ended   bool      // the receiver has closed it: nothing more may be claimed
	flying  int       // blocks not yet acknowledged
	moved   time.Time // last acknowledgement, or first block in flight
}

// flight is a block on its way.
type flight struct {
	owners [2]*sendStream // the second is nil until the block was overdue
	since  time.Time
}

// flights are an entry's blocks on their way. Most files have only one block.
type flights struct {
	first flight
	more  map[int64]flight // blocks but 0
}

func (f *flights) get(block int64) (flight, bool) {
	if block == 0 {
		return f.first, f.first.owners[0] != nil
	}
	x, ok := f.more[block]
	return x, ok
}

func (f *flights) put(block int64, x flight) {
	switch {
	case block == 0:
		f.first = x
	case f.more == nil:
		f.more = map[int64]flight{block: x}
	default:
		f.more[block] = x
	}
}

func (f *flights) drop(block int64) {
	if block == 0 {
		f.first = flight{}
	} else {
		delete(f.more, block)
	}
}

// all iterates over the flights, which may be dropped meanwhile.
func (f *flights) all() iter.Seq2[int64, flight] {
	return func(yield func(int64, flight) bool) {
		if f.first.owners[0] != nil && !yield(0, f.first) {
			return
		}
		for block, x := range f.more {
			if !yield(block, x) {
				return
			}
		}
	}
}

// AddStream lets a data stream claim blocks until the session is over or the stream fails. The sender closes it. Ids are
// not used twice.
func (s *Sender) AddStream(id uint64, stream Stream) {
	st := &sendStream{id: id, stream: stream}
	s.mu.Lock()
	if s.over || s.streams[id] != nil {
		s.mu.Unlock()
		_ = stream.Close()
		return
	}
	defer s.mu.Unlock()
	s.streams[id] = st
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		s.carry(st)
		s.lose(st)
	}()
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		s.awaitEnd(st)
	}()
}

// awaitEnd waits for the end of a stream, which its carrier would learn only when it writes again: what is in flight on it may be lost. The
// receiver says nothing on a stream but why it refuses it.
func (s *Sender) awaitEnd(st *sendStream) {
	var b [1]byte
	_, _ = st.stream.Read(b[:])
	s.mu.Lock()
	defer s.mu.Unlock()
	st.ended = true
	if st.flying > 0 {
		st.dead = true
		s.cond.Broadcast()
		s.parked.Broadcast()
	}
}

// What one stream sends at once of small files: a batch costs one write.
const (
	batchFiles = 64
	batchBytes = 256 << 10
)

// task is what a stream has claimed: a block of a file, or some files of one block.
type task struct {
	entry *sending
	block int64
	kept  []byte     // the data of a block of a stream, which is held in memory
	small []*sending // whole files
}

// carrier is what a stream needs to send.
type carrier struct {
	room    []byte // header and payload of a block, or a batch
	scratch []byte // of a payload with holes
	hash    digest.Hasher
	small   []*sending
	lap     *lap
}

// carry is the way of a block on the sending side: claim, read, digest, one write.
func (s *Sender) carry(st *sendStream) {
	c := carrier{room: make([]byte, wire.BlockHeaderLen+1<<maxBlockLog), lap: s.opt.Clock.start(Idle)}
	defer c.lap.stop()
	for {
		c.lap.enter(Idle)
		t, ok := s.claim(st, &c)
		if !ok {
			return
		}
		c.lap.enter(Read)
		var frame []byte
		if t.entry != nil {
			frame = s.block(st, &c, &t)
		} else {
			frame = s.batch(st, &c, t.small)
		}
		c.lap.enter(Send)
		if len(frame) > 0 && writeBlock(st.stream, frame) != nil {
			return
		}
	}
}

// block reads one block and returns it with its header; nothing if the file failed or the block is a hole.
func (s *Sender) block(st *sendStream, c *carrier, t *task) []byte {
	e, block := t.entry, t.block
	drop := func(err error) []byte {
		s.dropped(e, block, st, err)
		return nil
	}
	if e.item.Entry.Holes {
		hole, err := s.skipHole(e, block)
		if err != nil {
			return drop(err)
		}
		if hole {
			s.mu.Lock()
			e.landLocked(block, time.Time{})
			s.mu.Unlock()
			s.blockRead(e)
			return nil
		}
	}
	n := len(t.kept)
	if t.kept == nil {
		n = lengthOf(e.size, e.item.Entry.BlockLog, block)
	}
	p := s.patchOf(e, block)
	if p != nil && p.node != nil {
		return s.allOld(c, e, block, p)
	}
	payload := c.room[wire.BlockHeaderLen:][:n]
	c.hash.Reset(block << e.item.Entry.BlockLog)
	var data []disk.Range
	if t.kept != nil {
		copy(payload, t.kept) // two streams may carry it
		c.lap.enter(Digest)
		c.hash.Write(payload)
	} else {
		var err error
		if data, err = s.read(c.lap, e, block, payload, &c.hash); err != nil {
			return drop(err)
		}
	}
	node := c.hash.Sum()
	head := wire.BlockHeader{Index: e.index, Block: block, Digest: chaining(&node)}
	if p != nil {
		c.scratch = appendPatch(c.scratch[:0], payload, p.stretches)
		payload, data, head.Patch = payload[:copy(payload, c.scratch)], nil, true
	}
	frame := s.code(c, &head, c.room[:0], payload, block<<e.item.Entry.BlockLog, data)
	s.mu.Lock()
	e.tree.add(block, node)
	s.mu.Unlock()
	s.blockRead(e)
	return frame
}

// patchOf returns how a block is sent that has an old version, nil for whole.
func (s *Sender) patchOf(e *sending, block int64) *patch {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.delta == nil {
		return nil
	}
	return e.delta.patches[block]
}

// allOld returns the patch of a block that was read and is in the old file.
func (s *Sender) allOld(c *carrier, e *sending, block int64, p *patch) []byte {
	c.scratch = appendPatch(c.scratch[:0], nil, p.stretches)
	payload := c.room[wire.BlockHeaderLen:][:len(c.scratch)]
	copy(payload, c.scratch)
	head := wire.BlockHeader{Index: e.index, Block: block, Digest: chaining(p.node), Patch: true, Length: uint32(len(payload))}
	frame := c.room[:wire.BlockHeaderLen+len(payload)]
	head.Put(frame)
	s.mu.Lock()
	e.tree.add(block, *p.node)
	s.stats.Raw += int64(len(payload))
	s.stats.Coded += int64(len(payload))
	s.mu.Unlock()
	s.blockRead(e)
	return frame
}

// dropped takes a block that could not be read from st. That of another stream on its way may be enough.
func (s *Sender) dropped(e *sending, block int64, st *sendStream, err error) {
	s.mu.Lock()
	f, _ := e.flying.get(block)
	enough := f.owners[1] != nil
	e.leaveLocked(block, st)
	s.mu.Unlock()
	if !enough {
		s.sourceFailed(e, err)
	}
}

// blockRead ends an entry whose last block was digested.
func (s *Sender) blockRead(e *sending) {
	s.mu.Lock()
	whole := e.ended && e.tree.count == e.blocks
	s.mu.Unlock()
	if whole {
		s.endEntry(e)
	}
}

// batch reads small files and returns them, each with its header and digest.
func (s *Sender) batch(st *sendStream, c *carrier, files []*sending) []byte {
	frames := c.room[:0]
	for _, e := range files {
		payload := c.room[len(frames)+wire.BlockHeaderLen:][:e.size]
		c.hash.Reset(0)
		data, err := s.readSmall(c, e, payload)
		if err != nil {
			s.dropped(e, 0, st, err)
			continue
		}
		digest := rootDigest(c.hash.Sum())
		s.mu.Lock()
		e.digest, e.read = digest, true
		s.mu.Unlock()
		head := wire.BlockHeader{Whole: true, Index: e.index, Digest: digest}
		frames = s.code(c, &head, frames, payload, 0, data)
	}
	return frames
}

// readSmall reads and digests a file of one block, if it stays what it was meanwhile.
func (s *Sender) readSmall(c *carrier, e *sending, payload []byte) ([]disk.Range, error) {
	if e.item.Read == nil || e.item.Entry.Holes {
		data, err := s.read(c.lap, e, 0, payload, &c.hash)
		if err == nil {
			err = e.unchanged()
		}
		return data, err
	}
	if err := e.item.Read(payload); err != nil {
		return nil, err
	}
	c.hash.Write(payload)
	s.mu.Lock()
	s.stats.Read += int64(len(payload))
	s.mu.Unlock()
	return nil, nil
}

// code appends header and payload to frames, behind which payload lies. A block with holes is sent as its ranges of data, and
// what shrinks is compressed if that pays.
func (s *Sender) code(c *carrier, head *wire.BlockHeader, frames, payload []byte, off int64, data []disk.Range) []byte {
	if data != nil {
		c.scratch = appendRanges(c.scratch[:0], payload, off, data)
		if len(c.scratch) < len(payload) {
			head.Sparse = true
			payload = payload[:copy(payload, c.scratch)]
		}
	}
	raw := len(payload)
	if m := s.opt.Coder; m != nil && m.On() {
		c.lap.enter(Code)
		n, spent := compress.Encode(payload)
		c.lap.enter(Read)
		m.Block(len(payload), n, spent)
		if n > 0 {
			head.Raw, payload = uint32(len(payload)), payload[:n]
		}
	}
	head.Length = uint32(len(payload))
	at := len(frames)
	frames = frames[:at+wire.BlockHeaderLen+len(payload)]
	head.Put(frames[at:])
	st := &s.stats
	s.mu.Lock()
	st.Raw += int64(raw)
	st.Coded += int64(len(payload))
	s.mu.Unlock()
	return frames
}

// bufferWriter is a stream that writes a header and a payload at the cost of one copy less. It may alter the payload while it
// does.
type bufferWriter interface {
	WriteBuffers(header, payload []byte) (int, error)
}

// writeBlock sends a header and the payload behind it.
func writeBlock(stream Stream, buf []byte) error {
	if w, ok := stream.(bufferWriter); ok {
		_, err := w.WriteBuffers(buf[:wire.BlockHeaderLen], buf[wire.BlockHeaderLen:])
		return err
	}
	_, err := stream.Write(buf)
	return err
}

// claim waits for something to send. It returns false when the session or the stream is over.
func (s *Sender) claim(st *sendStream, c *carrier) (task, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.over || st.dead || st.ended && len(s.ready)+len(s.small) > 0 || st.retired && st.flying == 0 {
			return task{}, false
		}
		if !s.parkedLocked(st) && !s.enoughLocked(st) {
			if t, ok := s.claimBlockLocked(st); ok {
				return t, true
			}
			if c.small = s.claimSmallLocked(st, c.small[:0]); len(c.small) > 0 {
				return task{small: c.small}, true
			}
		}
		parked := s.parkedLocked(st)
		if e, block := s.overdueLocked(st); e != nil && !st.retired {
			s.flyLocked(e, block, st)
			s.stats.Resent += s.freshLocked(e, block)
			if e.small() {
				c.small = append(c.small[:0], e)
				return task{small: c.small}, true
			}
			return task{entry: e, block: block, kept: e.kept[block]}, true
		}
		if parked {
			c.lap.enter(Parked)
			s.parked.Wait()
		} else {
			c.lap.enter(Idle)
			s.cond.Wait()
		}
	}
}

// claimBlockLocked takes a block of the first large file: large ones go first, so that none is left to one stream at the end.
func (s *Sender) claimBlockLocked(st *sendStream) (task, bool) {
	for len(s.ready) > 0 {
		e := s.ready[0]
		if e.resolved || e.changed || len(e.todo) == 0 {
			e.queued = false
			s.ready = s.ready[1:]
			continue
		}
		block := e.todo.pop()
		s.takeLocked(e, block, st)
		return task{entry: e, block: block, kept: e.kept[block]}, true
	}
	return task{}, false
}

// claimSmallLocked takes a batch of small files, but no more than the stream's share of those there are.
func (s *Sender) claimSmallLocked(st *sendStream, batch []*sending) []*sending {
	streams := len(s.streams)
	if s.active > 0 {
		streams = min(streams, s.active)
	}
	most := min(batchFiles, (len(s.small)+streams-1)/max(1, streams))
	var size int64
	for len(s.small) > 0 && len(batch) < most {
		e := s.small[0]
		if e.resolved || e.changed || len(e.todo) == 0 {
			e.queued = false
			s.small = s.small[1:]
			continue
		}
		if size += e.size + wire.BlockHeaderLen; size > batchBytes && len(batch) > 0 {
			break
		}
		s.small = s.small[1:]
		e.queued = false
		e.todo = nil
		s.takeLocked(e, 0, st)
		batch = append(batch, e)
	}
	return batch
}

// takeLocked counts a block that st has claimed.
func (s *Sender) takeLocked(e *sending, block int64, st *sendStream) {
	s.flyLocked(e, block, st)
	if e.sent.has(block) {
		s.stats.Resent += s.freshLocked(e, block)
	}
	e.sent.add(block, 1)
}

// overdueLocked finds a block for an idle stream when all are claimed: one that takes much longer than blocks did. Its stream
// may be held up by losses, and at the end of a transfer everything waits for it. Twice sent, it is written once.
func (s *Sender) overdueLocked(st *sendStream) (*sending, int64) {
	if !s.walked || s.stats.Written < slowStart || len(s.ready) > 0 || len(s.small) > 0 {
		return nil, 0
	}
	if wait := overdueAfter/4 - time.Since(s.scanned); wait > 0 {
		s.timer.Reset(wait)
		return nil, 0
	}
	s.scanned = time.Now()
	var late *sending
	var block int64
	oldest := time.Now()
	for _, e := range s.entries {
		if e.resolved || e.changed || e.delta != nil && !e.delta.compared { // streams are idle while it is compared
			continue
		}
		for b, f := range e.flying.all() {
			if f.owners[1] == nil && f.owners[0] != st && f.since.Before(oldest) {
				late, block, oldest = e, b, f.since
			}
		}
	}
	if late == nil {
		return nil, 0
	}
	if wait := max(overdueAfter, patience*s.latency) - time.Since(oldest); wait > 0 {
		s.timer.Reset(wait)
		return nil, 0
	}
	return late, block
}

const (
	// patience is how many times the usual latency a block may take before an idle stream sends it as well, but not before
	// overdueAfter, and not before slowStart bytes have shown what is usual.
	patience     = 2
	overdueAfter = 500 * time.Millisecond
	slowStart    = 16 << 20
)

// wake lets idle streams look again.
func (s *Sender) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cond.Broadcast()
	s.parked.Broadcast()
}

// flyLocked records that st carries a block.
func (s *Sender) flyLocked(e *sending, block int64, st *sendStream) {
	now := time.Now()
	if st.flying == 0 {
		st.moved = now
	}
	st.flying++
	f, ok := e.flying.get(block)
	if ok {
		f.owners[1] = st
	} else {
		f = flight{owners: [2]*sendStream{st}, since: now}
	}
	e.flying.put(block, f)
}

// landLocked ends the flight of a block, if it is on one, and returns how long it took. now is the time of its acknowledgement, or zero.
func (e *sending) landLocked(block int64, now time.Time) time.Duration {
	f, _ := e.flying.get(block)
	for _, st := range f.owners {
		if st != nil {
			st.flying--
			if !now.IsZero() {
				st.moved = now
			}
		}
	}
	e.flying.drop(block)
	return now.Sub(f.since)
}

// tookLocked learns from how long a block took.
func (s *Sender) tookLocked(d time.Duration) {
	if s.latency == 0 {
		s.latency = d
	}
	s.latency += (d - s.latency) / 8
}

// leaveLocked takes a block from st, and gives it back to be claimed if nobody else carries it.
func (e *sending) leaveLocked(block int64, st *sendStream) {
	f, ok := e.flying.get(block)
	switch {
	case !ok:
		return
	case f.owners[0] == st:
		f.owners[0] = f.owners[1]
	case f.owners[1] != st:
		return
	}
	f.owners[1] = nil
	st.flying--
	if f.owners[0] != nil {
		e.flying.put(block, f)
		return
	}
	e.flying.drop(block)
	e.todo.add(block, 1)
}

// enoughLocked keeps the streams that connect first from claiming all of a short transfer: until the first
// acknowledgement shows how fast each is, all get the same share.
func (s *Sender) enoughLocked(st *sendStream) bool {
	streams := int64(s.opt.Streams)
	return streams > 0 && !s.acked && int64(st.flying) >= max(1, (s.offered+streams-1)/streams)
}

// SetActive lets only n streams claim blocks, those that came first; the others wait. 0 is all. Fewer streams cost less
// work where work is the limit.
func (s *Sender) SetActive(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active = n
	s.cond.Broadcast()
	s.parked.Broadcast()
}

// Retire lets a stream claim no more. It ends when what it has in flight is acknowledged, soon after at the next SetActive. It is safe for
// streams that are gone.
func (s *Sender) Retire(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.streams[id]; st != nil {
		st.retired = true
	}
	s.cond.Broadcast()
	s.parked.Broadcast()
}

func (s *Sender) parkedLocked(st *sendStream) bool {
	if st.retired {
		return true
	}
	if s.active == 0 || len(s.streams) <= s.active {
		return false
	}
	before := 0
	for id, other := range s.streams {
		if id < st.id && !other.retired {
			before++
		}
	}
	return before >= s.active
}

// freshLocked is how much of a block is sent, bytes.
func (s *Sender) freshLocked(e *sending, block int64) int64 {
	if e.delta != nil {
		if p := e.delta.patches[block]; p != nil {
			return p.fresh
		}
	}
	return s.lengthLocked(e, block)
}

func (s *Sender) lengthLocked(e *sending, block int64) int64 {
	if e.kept != nil {
		return int64(len(e.kept[block]))
	}
	return int64(lengthOf(e.size, e.item.Entry.BlockLog, block))
}

// lose closes a stream and lets others have what it had in flight.
func (s *Sender) lose(st *sendStream) {
	_ = st.stream.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	st.dead = true
	delete(s.streams, st.id)
	s.cond.Broadcast()
	s.parked.Broadcast() // one may take its place
	if st.flying == 0 || s.over {
		return
	}
	for _, e := range s.entries {
		for block := range e.flying.all() {
			e.leaveLocked(block, st)
		}
		s.queueFrontLocked(e)
	}
}

// queueFrontLocked queues an entry before the others: its blocks are overdue.
func (s *Sender) queueFrontLocked(e *sending) {
	if e.queued || e.resolved || e.changed || len(e.todo) == 0 {
		return
	}
	e.queued = true
	if e.small() {
		s.small = slices.Insert(s.small, 0, e)
	} else {
		s.ready = slices.Insert(s.ready, 0, e)
	}
	s.cond.Broadcast()
}

// Drop ends a stream, so that its blocks go to others. It is safe for streams that are gone.
func (s *Sender) Drop(id uint64) {
	s.mu.Lock()
	st := s.streams[id]
	if st != nil {
		st.dead = true
	}
	s.cond.Broadcast()
	s.parked.Broadcast()
	s.mu.Unlock()
	if st != nil {
		_ = st.stream.Close()
	}
}

// StreamState tells how a data stream does.
type StreamState struct {
	ID       uint64
	InFlight int       // blocks not yet acknowledged
	Moved    time.Time // of the last acknowledgement, or since when the first block waits for one
}

// Streams returns the state of each data stream that lives.
func (s *Sender) Streams() []StreamState {
	s.mu.Lock()
	defer s.mu.Unlock()
	states := make([]StreamState, 0, len(s.streams))
	for _, st := range s.streams {
		states = append(states, StreamState{st.id, st.flying, st.moved})
	}
	return states
}
