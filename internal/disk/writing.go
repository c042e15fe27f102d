package disk

import "sync"

// writing has the targets that this process writes, from the first byte to the final name. Whoever
// writes the same target later waits for the first, and so the last one wins. Writers in other
// processes see the locks of partial files, but no files without a name: of two, the one wins that
// gives its file the name last. Names are given and moved in one step, so the target is always the
// file of one of them.
var writing = writingTargets{targets: make(map[writingTarget]struct{})}

// writingTarget is a name in a folder.
type writingTarget struct {
	folder fileRef
	base   string
}

type writingTargets struct {
	mu      sync.Mutex // guards the following
	targets map[writingTarget]struct{}
}

// begin adds base in f. It returns ErrBusy if somebody writes it already.
func (w *writingTargets) begin(f *folder, base string) (writingTarget, error) {
	x := writingTarget{refOf(f.info), base}
	w.mu.Lock()
	defer w.mu.Unlock()
	before := len(w.targets)
	w.targets[x] = struct{}{}
	if len(w.targets) == before { // it was there
		return x, ErrBusy
	}
	return x, nil
}

func (w *writingTargets) end(x writingTarget) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.targets, x)
}
