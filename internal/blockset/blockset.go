// Package blockset holds sets of block numbers as runs, so that the size of a set follows the
// number of gaps in it and not the number of blocks.
package blockset

import (
	"iter"
	"slices"
	"sort"
)

// Run is the blocks [Start, Start+Count).
type Run struct{ Start, Count int64 }

// End is the first block after the run.
func (r Run) End() int64 { return r.Start + r.Count }

// Set is a set of block numbers. The zero value is empty. Assigning a Set shares its memory: use
// Clone to get one that can be changed alone. A Set is not safe for concurrent use.
type Set struct {
	runs  []Run // ascending, disjoint, never adjacent, none is empty
	count int64 // blocks in all runs
}

// run is any type with the shape of Run, for messages and interfaces that have a type of their own.
type run interface{ ~struct{ Start, Count int64 } }

// Of returns the set of the blocks in runs, which it copies. Runs in ascending order cost O(1)
// each.
func Of[R run](runs []R) Set {
	s := Set{runs: make([]Run, 0, len(runs))}
	for _, r := range runs {
		r := Run(r)
		s.AddRun(r.Start, r.Count)
	}
	return s
}

// Runs returns a copy of the set's runs: ascending, disjoint and never adjacent.
func Runs[R run](s Set) []R {
	var runs []R
	for _, r := range s.runs {
		runs = append(runs, R(r))
	}
	return runs
}

// Clone returns a set that shares no memory with s.
func (s *Set) Clone() Set { return Set{slices.Clone(s.runs), s.count} }

// Count is the number of blocks in the set.
func (s *Set) Count() int64 { return s.count }

// Empty reports whether the set has no blocks.
func (s *Set) Empty() bool { return s.count == 0 }

// Fragments is the number of runs.
func (s *Set) Fragments() int { return len(s.runs) }

// End is the first block after the last one in the set, 0 for an empty set.
func (s *Set) End() int64 {
	if len(s.runs) == 0 {
		return 0
	}
	return s.runs[len(s.runs)-1].End()
}

// Prefix is the number of blocks from 0 on without a gap.
func (s *Set) Prefix() int64 {
	if len(s.runs) == 0 || s.runs[0].Start > 0 {
		return 0
	}
	return s.runs[0].Count
}

// All iterates over the runs. The set must not change meanwhile.
func (s *Set) All() iter.Seq[Run] { return slices.Values(s.runs) }

// Blocks iterates over the blocks in ascending order. The set must not change meanwhile.
func (s *Set) Blocks() iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for _, r := range s.runs {
			for b := r.Start; b < r.End(); b++ {
				if !yield(b) {
					return
				}
			}
		}
	}
}

// search returns the index of the first run that ends after block. Blocks mostly come in ascending
// order, so it looks at the last run first.
func (s *Set) search(block int64) int {
	if n := len(s.runs); n > 0 && block >= s.runs[n-1].Start {
		if block < s.runs[n-1].End() {
			return n - 1
		}
		return n
	}
	return sort.Search(len(s.runs), func(i int) bool { return block < s.runs[i].End() })
}

// RunAt returns the run that contains a block, and false if there is none.
func (s *Set) RunAt(block int64) (Run, bool) {
	i := s.search(block)
	if i == len(s.runs) || s.runs[i].Start > block {
		return Run{}, false
	}
	return s.runs[i], true
}

// Has reports whether a block is in the set.
func (s *Set) Has(block int64) bool {
	_, ok := s.RunAt(block)
	return ok
}

// Add adds a block.
func (s *Set) Add(block int64) { s.AddRun(block, 1) }

// AddRun adds count blocks from start on. Some may be in the set already.
func (s *Set) AddRun(start, count int64) {
	if count <= 0 {
		return
	}
	end := start + count
	i := s.search(start)
	if i > 0 && s.runs[i-1].End() == start {
		i--
	}
	j := i
	for ; j < len(s.runs) && s.runs[j].Start <= end; j++ {
		start, end = min(start, s.runs[j].Start), max(end, s.runs[j].End())
		s.count -= s.runs[j].Count
	}
	s.runs = slices.Replace(s.runs, i, j, Run{start, end - start})
	s.count += end - start
}

// Remove removes a block.
func (s *Set) Remove(block int64) { s.RemoveRun(block, 1) }

// RemoveRun removes count blocks from start on. Some may be missing already.
func (s *Set) RemoveRun(start, count int64) {
	if count <= 0 {
		return
	}
	end := start + count
	i := s.search(start)
	j := i
	var room [2]Run // what is left of the first and the last run that it cuts
	keep := room[:0]
	for ; j < len(s.runs) && s.runs[j].Start < end; j++ {
		r := s.runs[j]
		s.count -= min(end, r.End()) - max(start, r.Start)
		if r.Start < start {
			keep = append(keep, Run{r.Start, start - r.Start})
		}
		if r.End() > end {
			keep = append(keep, Run{end, r.End() - end})
		}
	}
	s.runs = slices.Replace(s.runs, i, j, keep...)
}

// Pop removes and returns the smallest block. The set must not be empty.
func (s *Set) Pop() int64 {
	block := s.runs[0].Start
	s.count--
	if s.runs[0].Count--; s.runs[0].Count == 0 {
		s.runs = s.runs[1:]
	} else {
		s.runs[0].Start++
	}
	return block
}

// Within returns the set's blocks among the count blocks from start on.
func (s *Set) Within(start, count int64) (part Set) {
	end := start + count
	for i := s.search(start); i < len(s.runs) && s.runs[i].Start < end; i++ {
		from := max(s.runs[i].Start, start)
		part.AddRun(from, min(s.runs[i].End(), end)-from)
	}
	return part
}

// Union returns the blocks of both sets in time linear in their runs.
func (s *Set) Union(t Set) (all Set) {
	x, y := s.runs, t.runs
	for len(x)+len(y) > 0 {
		if len(x) == 0 || len(y) > 0 && y[0].Start < x[0].Start {
			x, y = y, x
		}
		all.AddRun(x[0].Start, x[0].Count)
		x = x[1:]
	}
	return all
}
