package disk

import (
	"fmt"
	"os"
	"slices"
)

// Skip notes that count blocks from start on have no data: the file, opened with
// Holes, is complete without them. It is not recorded, so a later run has to say
// it again. Blocks marked before may be among them.
func (p *Partial) Skip(start, count int64) error {
	p.gate.RLock()
	defer p.gate.RUnlock()
	switch {
	case p.ended:
		return at("skip", p.path, os.ErrClosed)
	case !p.holes || start < 0 || count < 0 || start > p.blocks(p.size)-count:
		return at("skip", p.path, fmt.Errorf("no hole of %d blocks at %d", count, start))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done.addRun(start, count)
	return nil
}

// addRun adds the blocks [start, start+count).
func (e *extents) addRun(start, count int64) {
	if count == 0 {
		return
	}
	end := start + count
	i := e.search(start)
	if i > 0 && e.runs[i-1].Start+e.runs[i-1].Count == start {
		i--
	}
	j := i
	for ; j < len(e.runs) && e.runs[j].Start <= end; j++ {
		run := e.runs[j]
		start, end = min(start, run.Start), max(end, run.Start+run.Count)
		e.count -= run.Count
	}
	e.runs = slices.Replace(e.runs, i, j, Extent{Start: start, Count: end - start})
	e.count += end - start
}
