package transfer

import (
	"sync"
	"sync/atomic"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

// destination is where an entry belongs, what it will look like there, and what the target has there.
type destination struct {
	meta, have disk.Meta
	misplaced  error // it belongs nowhere
	err        error // why have is unknown: misplaced, or the disk's

	taken atomic.Bool // somebody looks, or has looked
}

// look fills a destination.
func (t *target) look(x *wire.Entry, s *destination) {
	if s.misplaced = t.place(x, &s.meta); s.misplaced != nil {
		s.have, s.err = disk.Meta{}, s.misplaced
		return
	}
	s.have, s.err = t.tree.StatTarget(s.meta.Path)
}

const (
	// lookaheadMost is how many entries a lookahead looks at ahead. They are files in a row, so what becomes
	// of one does not change what the target has of the next.
	lookaheadMost = 256
	// lookaheadLeast is for how few nobody is woken.
	lookaheadLeast = 8
)

// lookahead looks at what the target has of the entries of a message. Where the target has the files
// already, two goroutines look: the caller goes through the entries in order, and the other one
// comes from the end, until they meet. One goroutine calls its methods.
type lookahead struct {
	look         func(*wire.Entry, *destination)
	entries      []wire.Entry
	from         int           // the entries that destinations are of
	destinations []destination // no more than lookaheadMost
	one          destination   // of an entry that has no place in destinations
	found        bool          // the target had the last file
	other        sync.WaitGroup
}

// begin goes through the entries of another message.
func (s *lookahead) begin(entries []wire.Entry) {
	s.entries, s.from, s.destinations = entries, 0, s.destinations[:0]
}

// end waits until nobody uses the entries any more.
func (s *lookahead) end() {
	s.other.Wait()
	s.entries = nil
}

// at returns the destination of an entry. It is called for each in order, and its result is valid until
// the next call.
func (s *lookahead) at(i int) *destination {
	if i >= s.from+len(s.destinations) {
		s.other.Wait()
		s.ahead(i)
	}
	seen := &s.one
	if i < s.from+len(s.destinations) {
		seen = &s.destinations[i-s.from]
	}
	if seen != &s.one && seen.taken.Swap(true) {
		s.other.Wait() // it has come from the end to here, or is about to
	} else {
		s.look(&s.entries[i], seen)
	}
	if s.entries[i].Kind == wire.File {
		s.found = seen.err == nil
	}
	return seen
}

// ahead lets the other goroutine look at the entries from i on, if that pays.
func (s *lookahead) ahead(i int) {
	n := 0
	for s.found && n < lookaheadMost && i+n < len(s.entries) && s.entries[i+n].Kind == wire.File {
		n++
	}
	if n < lookaheadLeast {
		n = 0
	}
	if n > cap(s.destinations) {
		s.destinations = make([]destination, lookaheadMost)
	}
	s.from, s.destinations = i, s.destinations[:n]
	for j := range s.destinations {
		s.destinations[j].taken.Store(false)
	}
	if n == 0 {
		return
	}
	entries, destinations := s.entries[i:i+n], s.destinations
	s.other.Go(func() {
		for j := n - 1; j > 0 && !destinations[j].taken.Swap(true); j-- {
			s.look(&entries[j], &destinations[j])
		}
	})
}
