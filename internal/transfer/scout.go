package transfer

import (
	"sync"
	"sync/atomic"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

// sight is where an entry belongs, what it will look like there, and what the target has there.
type sight struct {
	meta, have disk.Meta
	misplaced  error // it belongs nowhere
	err        error // why have is unknown: misplaced, or the disk's

	taken atomic.Bool // somebody looks, or has looked
}

// look fills a sight.
func (t *target) look(x *wire.Entry, s *sight) {
	s.have, s.err = disk.Meta{}, nil
	if s.meta, s.misplaced = t.place(x); s.misplaced != nil {
		s.err = s.misplaced
		return
	}
	s.have, s.err = t.tree.StatTarget(s.meta.Path)
}

const (
	// scouted is how many entries a scout looks at ahead. They are files in a row, so what becomes
	// of one does not change what the target has of the next.
	scouted = 64
	// leastScouted is for how few nobody is woken.
	leastScouted = 8
)

// scout looks at what the target has of the entries of a message. Where the target has the files
// already, two goroutines look: the caller goes through the entries in order, and the other one
// comes from the end, until they meet. One goroutine calls its methods.
type scout struct {
	look    func(*wire.Entry, *sight)
	entries []wire.Entry
	from    int     // the entries that sights are of
	sights  []sight // no more than scouted
	one     sight   // of an entry that has no place in sights
	found   bool    // the target had the last file
	other   sync.WaitGroup
}

// begin goes through the entries of another message.
func (s *scout) begin(entries []wire.Entry) { s.entries, s.from, s.sights = entries, 0, s.sights[:0] }

// end waits until nobody uses the entries any more.
func (s *scout) end() {
	s.other.Wait()
	s.entries = nil
}

// at returns the sight of an entry. It is called for each in order, and its result is valid until
// the next call.
func (s *scout) at(i int) *sight {
	if i >= s.from+len(s.sights) {
		s.other.Wait()
		s.ahead(i)
	}
	seen := &s.one
	if i < s.from+len(s.sights) {
		seen = &s.sights[i-s.from]
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
func (s *scout) ahead(i int) {
	n := 0
	for s.found && n < scouted && i+n < len(s.entries) && s.entries[i+n].Kind == wire.File {
		n++
	}
	if n < leastScouted {
		n = 0
	}
	if n > cap(s.sights) {
		s.sights = make([]sight, scouted)
	}
	s.from, s.sights = i, s.sights[:n]
	for j := range s.sights {
		s.sights[j].taken.Store(false)
	}
	if n == 0 {
		return
	}
	entries, sights := s.entries[i:i+n], s.sights
	s.other.Go(func() {
		for j := n - 1; j > 0 && !sights[j].taken.Swap(true); j-- {
			s.look(&entries[j], &sights[j])
		}
	})
}
