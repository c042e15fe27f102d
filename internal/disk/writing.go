package disk

import "sync"

// writing has the targets that this process writes, from the first byte to the final name. Whoever
// writes the same target later waits for the first, and so the last one wins. Writers in other
// processes see the locks of partial files, but no files without a name: of two, the one wins that
// gives its file the name last. Names are given and moved in one step, so the target is always the
// file of one of them.
var writing = writingTargets{targets: make(map[writingTarget]int64)}

// writingTarget is a name in a folder.
type writingTarget struct {
	folder fileRef
	base   string
}

type writingTargets struct {
	mu sync.Mutex // guards the following
	// The value is how many bytes of a target Usage counts: those that no session that has a range of it
	// open has claimed.
	targets map[writingTarget]int64
}

// begin adds base in f. It returns ErrBusy if somebody writes it already.
func (w *writingTargets) begin(f *folder, base string) (writingTarget, error) {
	x := writingTarget{refOf(f.info), base}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, there := w.targets[x]; there {
		return x, ErrBusy
	}
	w.targets[x] = 0
	return x, nil
}

func (w *writingTargets) end(x writingTarget) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.targets, x)
}

// count sets how many bytes of a target Usage counts.
func (w *writingTargets) count(x writingTarget, bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.targets[x] = bytes
}

// counted returns how many bytes Usage counts of the target with this partial file in f.
func (w *writingTargets) counted(f *folder, partial string) int64 {
	in := refOf(f.info)
	w.mu.Lock()
	defer w.mu.Unlock()
	for x, bytes := range w.targets {
		if bytes > 0 && x.folder == in && reservedName(x.base)+partialSuffix == partial {
			return bytes
		}
	}
	return 0
}
