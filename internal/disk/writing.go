package disk

import (
	"hash/maphash"
	"sync"
)

// writing has the targets that this process writes, from the first byte to the final name. Whoever
// writes the same target later waits for the first, and so the last one wins. Writers in other
// processes see the locks of partial files, but no files without a name: of two, the one wins that
// gives its file the name last. Names are given and moved in one step, so the target is always the
// file of one of them.
var writing = writingTargets{
	seed: maphash.MakeSeed(), targets: make(map[uint64]struct{}), counts: make(map[writingTarget]int64),
}

// writingTarget is a name in a folder.
type writingTarget struct {
	folder fileRef
	base   string
	hash   uint64 // of both
}

type writingTargets struct {
	seed maphash.Seed

	mu sync.Mutex // guards the following
	// targets has a hash of each: that takes a third of the time, for each file. Two targets with the
	// same hash would wait for one another. Nobody can choose such names, and by chance there are none.
	targets map[uint64]struct{}
	// counts is how many bytes of a target Usage counts, if any: those that no session that has a range
	// of it open has claimed.
	counts map[writingTarget]int64
}

func (w *writingTargets) target(folder fileRef, base string) writingTarget {
	hash := maphash.String(w.seed, base) + folder.ino*0x9e3779b97f4a7c15 + folder.dev*0xd1342543de82ef95
	return writingTarget{folder, base, hash}
}

// begin adds base in f. It returns ErrBusy if somebody writes it already.
func (w *writingTargets) begin(f *folder, base string) (writingTarget, error) {
	x := w.target(refOf(f.info), base)
	w.mu.Lock()
	defer w.mu.Unlock()
	before := len(w.targets)
	if w.targets[x.hash] = struct{}{}; len(w.targets) == before {
		return x, ErrBusy
	}
	return x, nil
}

func (w *writingTargets) end(x writingTarget) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.targets, x.hash)
	if len(w.counts) > 0 {
		delete(w.counts, x)
	}
}

// count sets how many bytes of a target Usage counts.
func (w *writingTargets) count(x writingTarget, bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[x] = bytes
}

// counted returns how many bytes Usage counts of the target with this partial file in f.
func (w *writingTargets) counted(f *folder, partial string) int64 {
	in := refOf(f.info)
	w.mu.Lock()
	defer w.mu.Unlock()
	for x, bytes := range w.counts {
		if bytes > 0 && x.folder == in && reservedName(x.base)+partialSuffix == partial {
			return bytes
		}
	}
	return 0
}
