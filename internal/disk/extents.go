package disk

import (
	"slices"
	"sort"
)

// Extent is a run of blocks.
type Extent struct {
	Start int64 // first block
	Count int64 // blocks
}

// extents is a set of blocks: ascending, disjoint, never adjacent. Blocks are
// claimed in order, so it stays short whatever the size of the file.
type extents struct {
	runs  []Extent
	count int64 // blocks in all runs
}

// search returns the index of the first run that ends after block.
func (e *extents) search(block int64) int {
	if n := len(e.runs); n > 0 && block >= e.runs[n-1].Start {
		if block < e.runs[n-1].Start+e.runs[n-1].Count {
			return n - 1
		}
		return n
	}
	return sort.Search(len(e.runs), func(i int) bool { return block < e.runs[i].Start+e.runs[i].Count })
}

func (e *extents) has(block int64) bool {
	i := e.search(block)
	return i < len(e.runs) && e.runs[i].Start <= block
}

// isFirst reports whether the set is that of the first n blocks.
func (e *extents) isFirst(n int64) bool {
	return e.count == n && (n == 0 || e.runs[0] == Extent{Start: 0, Count: n})
}

func (e *extents) add(block int64) {
	i := e.search(block)
	if i < len(e.runs) && e.runs[i].Start <= block {
		return
	}
	e.count++
	joinsLeft := i > 0 && e.runs[i-1].Start+e.runs[i-1].Count == block
	joinsRight := i < len(e.runs) && e.runs[i].Start == block+1
	switch {
	case joinsLeft && joinsRight:
		e.runs[i-1].Count += 1 + e.runs[i].Count
		e.runs = slices.Delete(e.runs, i, i+1)
	case joinsLeft:
		e.runs[i-1].Count++
	case joinsRight:
		e.runs[i].Start--
		e.runs[i].Count++
	default:
		e.runs = slices.Insert(e.runs, i, Extent{Start: block, Count: 1})
	}
}

func (e *extents) remove(block int64) {
	i := e.search(block)
	if i == len(e.runs) || e.runs[i].Start > block {
		return
	}
	e.count--
	run := e.runs[i]
	left := Extent{Start: run.Start, Count: block - run.Start}
	right := Extent{Start: block + 1, Count: run.Start + run.Count - block - 1}
	switch {
	case left.Count > 0 && right.Count > 0:
		e.runs[i] = left
		e.runs = slices.Insert(e.runs, i+1, right)
	case left.Count > 0:
		e.runs[i] = left
	case right.Count > 0:
		e.runs[i] = right
	default:
		e.runs = slices.Delete(e.runs, i, i+1)
	}
}
