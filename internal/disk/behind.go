package disk

import (
	"maps"
	"os"
	"slices"
	"sync"
)

const (
	// behindFrom is the size from which on a file that is sent leaves the page cache again.
	behindFrom = 16 << 20
	// behindUnit is how much of it leaves at a time.
	behindUnit = 8 << 20
	// If more than this part of a file is in the page cache when it is opened, or more than this many
	// bytes, others use it, and it stays.
	behindShare, behindCached = 16, 64 << 20
	// behindMost is how many units may be under way, or have holes, which nobody sends. The first of
	// more leaves as it is.
	behindMost = 64
)

// behind lets a file leave the page cache as it is sent. A backup would otherwise push out what other
// programs work with, and a free page costs more to get than one that was just used. Its methods are
// safe for concurrent use.
type behind struct {
	size int64
	drop func(off, n int64)

	mu   sync.Mutex
	sent map[int64]int64 // bytes of the units that were sent in part, by their number
}

// newBehind returns nil for a file that stays in the page cache: it is small, or others use it, or the
// system does not tell.
func newBehind(file *os.File, size int64) *behind {
	if size < behindFrom {
		return nil
	}
	if cached, err := cachedBytes(file); err != nil || cached > min(size/behindShare, behindCached) {
		return nil
	}
	return &behind{size: size, drop: func(off, n int64) { dropCache(file, off, n) }, sent: make(map[int64]int64)}
}

// add notes that n bytes from off were sent. What is sent twice may leave early.
func (b *behind) add(off, n int64) {
	for n > 0 {
		part := min(n, behindUnit-off%behindUnit)
		if unit := b.complete(off/behindUnit, part); unit >= 0 {
			b.drop(unit*behindUnit, behindUnit)
		}
		off, n = off+part, n-part
	}
}

// complete takes n more bytes of a unit, and returns the unit that leaves now, -1 for none.
func (b *behind) complete(unit, n int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sent[unit] += n
	if b.sent[unit] < min(behindUnit, b.size-unit*behindUnit) {
		if len(b.sent) <= behindMost {
			return -1
		}
		unit = slices.Min(slices.Collect(maps.Keys(b.sent)))
	}
	delete(b.sent, unit)
	return unit
}
