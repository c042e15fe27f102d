package disk

import (
	"os"
	"sync"
)

const (
	// behindFrom is the size from which on a file that is read once leaves the page cache again.
	behindFrom = 16 << 20
	// behindUnit is how much of it leaves at a time. The system reads less than that ahead.
	behindUnit = 8 << 20
	// behindCached is the part of a file that may be in the page cache for its reader to be the only
	// one that brings it there. Who looked at its beginning, or broke off, left little.
	behindCached = 1. / 16
	// behindMost is how many units may be read in part. Who reads here and there leaves more, and
	// these stay in the page cache.
	behindMost = 1024
)

// behind lets a file leave the page cache as it is read. A backup would otherwise push out what other
// programs work with, and each page of it costs more to find than to reuse. Its methods are safe for
// concurrent use.
type behind struct {
	size int64
	drop func(off, n int64)

	mu   sync.Mutex
	read map[int64]int64 // bytes of the units that are read in part, by their number
}

// newBehind returns nil for a file that stays in the page cache: it is small, or somebody else has
// brought it there, or the system does not tell.
func newBehind(file *os.File, size int64) *behind {
	if size < behindFrom {
		return nil
	}
	if cached, err := cachedBytes(file); err != nil || float64(cached) > behindCached*float64(size) {
		return nil
	}
	return &behind{size: size, drop: func(off, n int64) { dropCache(file, off, n) }, read: make(map[int64]int64)}
}

// add notes that n bytes from off were read. What is read twice may leave early.
func (b *behind) add(off int64, n int) {
	if b == nil {
		return
	}
	for end := off + int64(n); off < end; {
		unit := off / behindUnit
		next := min(end, (unit+1)*behindUnit)
		if b.complete(unit, next-off) {
			b.drop(unit*behindUnit, behindUnit)
		}
		off = next
	}
}

// complete reports whether n more bytes of a unit are all that was left of it.
func (b *behind) complete(unit, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	read, begun := b.read[unit]
	if read += n; read >= min(behindUnit, b.size-unit*behindUnit) {
		delete(b.read, unit)
		return true
	}
	if begun || len(b.read) < behindMost {
		b.read[unit] = read
	}
	return false
}
