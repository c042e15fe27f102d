package transfer

import (
	"iter"
	"time"
)

// flight is a block that was claimed and is not acknowledged.
type flight struct {
	owners [2]*sendStream // the second is nil until the block was overdue
	since  time.Time
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
