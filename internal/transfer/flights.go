package transfer

import (
	"iter"
	"time"
)

// traffic is what all streams have in flight. claims.mu guards it.
type traffic struct {
	began   time.Time     // of the session
	entries []*sending    // with blocks in flight, each at its blockClaims.place
	latency time.Duration // of a block, from claim to acknowledgement, smoothed
}

// now returns the time of the session. It costs half of time.Now, and takes a third of its room.
func (t *traffic) now() time.Duration { return time.Since(t.began) }

// unseen is the time of an acknowledgement that did not come.
const unseen time.Duration = -1

// fly records that a stream carries a block from now on.
func (t *traffic) fly(e *sending, block int64, st *sendStream, now time.Duration) {
	if st.flying == 0 {
		st.moved = now
	}
	st.flying++
	f, ok := e.claims.flying.get(block)
	if ok {
		f.owners[1] = st
	} else {
		f = flight{owners: [2]*sendStream{st}, since: now}
	}
	if e.claims.flying.empty() {
		e.claims.place = len(t.entries)
		t.entries = append(t.entries, e)
	}
	e.claims.flying.put(block, f)
}

// land ends the flight of a block, if it is in flight, and returns how long it took. now is the
// time of its acknowledgement, or unseen.
func (t *traffic) land(e *sending, block int64, now time.Duration) time.Duration {
	f, _ := e.claims.flying.get(block)
	for _, st := range f.owners {
		if st != nil {
			st.flying--
			if now != unseen {
				st.moved = now
				st.carried += lengthLocked(e, block)
			}
		}
	}
	t.drop(e, block)
	return now - f.since
}

// leave takes a block from a stream, and lets it be claimed again if no other stream carries it.
func (t *traffic) leave(e *sending, block int64, st *sendStream) {
	f, ok := e.claims.flying.get(block)
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
		e.claims.flying.put(block, f)
		return
	}
	t.drop(e, block)
	e.claims.todo.Add(block)
}

// drop ends a flight, if the block is in flight. The last entry takes the place of one that has none
// left.
func (t *traffic) drop(e *sending, block int64) {
	if e.claims.flying.empty() {
		return
	}
	e.claims.flying.drop(block)
	if !e.claims.flying.empty() {
		return
	}
	end := len(t.entries) - 1
	last := t.entries[end]
	t.entries[e.claims.place], last.claims.place = last, e.claims.place
	t.entries[end] = nil
	t.entries = t.entries[:end]
}

// oldest returns the block that is longest in flight on one stream that is not st.
func (t *traffic) oldest(st *sendStream) (oldest *sending, block int64, since time.Duration) {
	since = t.now()
	for _, e := range t.entries {
		if e.closed.Load() || e.claims.delta != nil && !e.claims.delta.isCompared() {
			continue // streams are idle during the comparison
		}
		for b, f := range e.claims.flying.all() {
			if f.owners[1] == nil && f.owners[0] != st && f.since < since {
				oldest, block, since = e, b, f.since
			}
		}
	}
	return oldest, block, since
}

// learn learns from how long a block took.
func (t *traffic) learn(took time.Duration) {
	if t.latency == 0 {
		t.latency = took
	}
	t.latency += (took - t.latency) / 8
}

// sendStreams are the sender's data streams. claims.mu guards them.
type sendStreams struct {
	live   map[uint64]*sendStream
	active int // how many may claim, 0 for all
}

// sendStream is a data stream of the sender. claims.mu guards its fields below stream.
type sendStream struct {
	id     uint64
	stream Stream

	dead    bool          // it carries nothing any more
	retired bool          // it may claim no more
	ended   bool          // the receiver has closed it, so nothing more may be claimed
	flying  int           // blocks not acknowledged
	carried int64         // bytes of blocks that were acknowledged
	moved   time.Duration // of the last acknowledgement, or since when the first block is in flight
}

// used reports whether a stream has carried something. A new one would begin with a window that it does not pace.
func (st *sendStream) used() bool { return st.flying > 0 || st.carried > 0 }

// isParked reports whether a stream must not claim: it is retired, or others are active. Those that were used go first.
func (s *sendStreams) isParked(st *sendStream) bool {
	if st.retired {
		return true
	}
	if s.active == 0 || len(s.live) <= s.active {
		return false
	}
	before, used := 0, st.used()
	for id, other := range s.live {
		if first := other.used(); !other.retired && (first && !used || first == used && id < st.id) {
			before++
		}
	}
	return before >= s.active
}

// count is how many streams may claim.
func (s *sendStreams) count() int {
	if s.active > 0 {
		return min(len(s.live), s.active)
	}
	return len(s.live)
}

// states returns the state of each stream in a session that began then.
func (s *sendStreams) states(began time.Time) []StreamState {
	states := make([]StreamState, 0, len(s.live))
	for _, st := range s.live {
		states = append(states, StreamState{st.id, st.flying, began.Add(st.moved)})
	}
	return states
}

// flight is a block that was claimed and is not acknowledged.
type flight struct {
	owners [2]*sendStream // the second is nil until the block was overdue
	since  time.Duration  // by traffic.now
}

// flights are an entry's blocks in flight. Most files have only block 0, which needs no map.
type flights struct {
	first flight
	more  map[int64]flight // blocks but 0
}

func (f *flights) empty() bool { return f.first.owners[0] == nil && len(f.more) == 0 }

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
