package transfer

import (
	"slices"

	"github.com/fxfer/fxfer/internal/wire"
)

// extents is a set of block numbers: ascending, disjoint, non-adjacent runs.
type extents []wire.Extent

// find returns the index of the first run that ends after block.
func (x extents) find(block int64) int {
	i, _ := slices.BinarySearchFunc(x, block, func(e wire.Extent, b int64) int {
		if e.Start+e.Count <= b {
			return -1
		}
		return 1
	})
	return i
}

func (x extents) has(block int64) bool {
	i := x.find(block)
	return i < len(x) && x[i].Start <= block
}

// add inserts a run that may overlap or touch others.
func (x *extents) add(start, count int64) {
	if count <= 0 {
		return
	}
	end := start + count
	i := x.find(start)
	if i > 0 && (*x)[i-1].Start+(*x)[i-1].Count == start {
		i--
	}
	j := i
	for j < len(*x) && (*x)[j].Start <= end {
		start = min(start, (*x)[j].Start)
		end = max(end, (*x)[j].Start+(*x)[j].Count)
		j++
	}
	*x = slices.Replace(*x, i, j, wire.Extent{Start: start, Count: end - start})
}

// remove deletes a run, splitting those it cuts.
func (x *extents) remove(start, count int64) {
	end := start + count
	i := x.find(start)
	j := i
	var keep []wire.Extent
	for j < len(*x) && (*x)[j].Start < end {
		e := (*x)[j]
		if e.Start < start {
			keep = append(keep, wire.Extent{Start: e.Start, Count: start - e.Start})
		}
		if e.Start+e.Count > end {
			keep = append(keep, wire.Extent{Start: end, Count: e.Start + e.Count - end})
		}
		j++
	}
	*x = slices.Replace(*x, i, j, keep...)
}

// pop removes and returns the smallest block. The set is not empty.
func (x *extents) pop() int64 {
	block := (*x)[0].Start
	if (*x)[0].Count--; (*x)[0].Count == 0 {
		*x = (*x)[1:]
	} else {
		(*x)[0].Start++
	}
	return block
}

// within returns the part of the set from block start on, of count blocks.
func (x extents) within(start, count int64) (part extents) {
	end := start + count
	for i := x.find(start); i < len(x) && x[i].Start < end; i++ {
		from := max(x[i].Start, start)
		part = append(part, wire.Extent{Start: from, Count: min(x[i].Start+x[i].Count, end) - from})
	}
	return part
}

// union returns the blocks of both sets.
func (x extents) union(y extents) (all extents) {
	for len(x)+len(y) > 0 {
		if len(x) == 0 || len(y) > 0 && y[0].Start < x[0].Start {
			x, y = y, x
		}
		next := x[0]
		x = x[1:]
		if n := len(all); n > 0 && all[n-1].Start+all[n-1].Count >= next.Start {
			all[n-1].Count = max(all[n-1].Count, next.Start+next.Count-all[n-1].Start)
		} else {
			all = append(all, next)
		}
	}
	return all
}
