package transfer

import (
	"time"

	"github.com/fxfer/fxfer/internal/blake3tree"
	"github.com/fxfer/fxfer/internal/wire"
)

// sendStream is a data stream of the sender.
type sendStream struct {
	id     uint64
	stream Stream
	dead   bool
	flying int       // blocks not yet acknowledged
	moved  time.Time // last acknowledgement, or first block in flight
}

// flight is a block on its way.
type flight struct {
	owners [2]*sendStream // the second is nil until the block was overdue
	since  time.Time
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
}

// carry is the way of a block on the sending side: claim, read, digest, one write.
func (s *Sender) carry(st *sendStream) {
	room := make([]byte, wire.BlockHeaderLen+1<<maxBlockLog)
	var hash blake3tree.Hasher
	for {
		e, block, kept := s.claim(st)
		if e == nil {
			return
		}
		n := len(kept)
		if kept == nil {
			n = lengthOf(e.size, e.item.Entry.BlockLog, block)
		}
		buf := room[:wire.BlockHeaderLen+n]
		payload := buf[wire.BlockHeaderLen:]
		hash.Reset(block << e.item.Entry.BlockLog)
		if kept != nil {
			copy(payload, kept) // two streams may carry it
			hash.Write(payload)
		} else if err := s.read(e, block, payload, &hash); err != nil {
			s.sourceFailed(e, err)
			s.mu.Lock()
			e.leaveLocked(block, st)
			s.mu.Unlock()
			continue
		}
		node := hash.Sum()
		head := wire.BlockHeader{Index: e.index, Block: block, Length: uint32(len(payload)), Digest: chaining(&node)}
		head.Put(buf)
		s.mu.Lock()
		e.tree.add(block, node)
		whole := e.ended && e.tree.count == e.blocks
		s.mu.Unlock()
		if whole {
			s.endEntry(e)
		}
		if err := writeBlock(st.stream, buf); err != nil {
			return
		}
	}
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

// claim waits for a block to send. It returns nil when the session or the stream is over. The data is returned
// for blocks of a stream, which are held in memory.
func (s *Sender) claim(st *sendStream) (*sending, int64, []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.over || st.dead {
			return nil, 0, nil
		}
		for len(s.ready) > 0 && !s.parkedLocked(st) && !s.enoughLocked(st) {
			e := s.ready[0]
			if e.resolved || e.changed || len(e.todo) == 0 {
				e.queued = false
				s.ready = s.ready[1:]
				continue
			}
			block := e.todo.pop()
			s.flyLocked(e, block, st)
			n := s.lengthLocked(e, block)
			if e.sent.has(block) {
				s.stats.Resent += n
			}
			e.sent.add(block, 1)
			return e, block, e.kept[block]
		}
		if e, block := s.overdueLocked(st); e != nil {
			s.flyLocked(e, block, st)
			s.stats.Resent += s.lengthLocked(e, block)
			return e, block, e.kept[block]
		}
		s.cond.Wait()
	}
}

// overdueLocked finds a block for an idle stream when all are claimed: one that takes much longer than blocks did. Its stream
// may be held up by losses, and at the end of a transfer everything waits for it. Twice sent, it is written once.
func (s *Sender) overdueLocked(st *sendStream) (*sending, int64) {
	if !s.walked || s.stats.Written < slowStart || len(s.ready) > 0 {
		return nil, 0
	}
	var late *sending
	var block int64
	oldest := time.Now()
	for _, e := range s.entries {
		if e.resolved || e.changed {
			continue
		}
		for b, f := range e.flying {
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
}

// flyLocked records that st carries a block.
func (s *Sender) flyLocked(e *sending, block int64, st *sendStream) {
	now := time.Now()
	if st.flying == 0 {
		st.moved = now
	}
	st.flying++
	f, ok := e.flying[block]
	if ok {
		f.owners[1] = st
	} else {
		f = flight{owners: [2]*sendStream{st}, since: now}
	}
	e.flying[block] = f
}

// landLocked ends the flight of a block, if it is on one, and returns how long it took. now is the time of its acknowledgement, or zero.
func (e *sending) landLocked(block int64, now time.Time) time.Duration {
	f := e.flying[block]
	for _, st := range f.owners {
		if st != nil {
			st.flying--
			if !now.IsZero() {
				st.moved = now
			}
		}
	}
	delete(e.flying, block)
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
	f, ok := e.flying[block]
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
		e.flying[block] = f
		return
	}
	delete(e.flying, block)
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
}

func (s *Sender) parkedLocked(st *sendStream) bool {
	if s.active == 0 || len(s.streams) <= s.active {
		return false
	}
	before := 0
	for id := range s.streams {
		if id < st.id {
			before++
		}
	}
	return before >= s.active
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
	s.cond.Broadcast() // a parked stream may take its place
	if st.flying == 0 || s.over {
		return
	}
	for _, e := range s.entries {
		for block := range e.flying {
			e.leaveLocked(block, st)
		}
		s.queueFrontLocked(e)
	}
}

// queueFrontLocked queues an entry before the others: its blocks are overdue.
func (s *Sender) queueFrontLocked(e *sending) {
	if !e.queued && !e.resolved && !e.changed && len(e.todo) > 0 {
		e.queued = true
		s.ready = append([]*sending{e}, s.ready...)
		s.cond.Broadcast()
	}
}

// Drop ends a stream, so that its blocks go to others. It is safe for streams that are gone.
func (s *Sender) Drop(id uint64) {
	s.mu.Lock()
	st := s.streams[id]
	if st != nil {
		st.dead = true
	}
	s.cond.Broadcast()
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
