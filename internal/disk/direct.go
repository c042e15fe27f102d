package disk

import (
	"os"
	"sync"
	"time"
	"unsafe"
)

const (
	// directFrom is the size from which on a received file does not stay in the page cache. Large blocks
	// are written past it, for which the file is opened once more, and small ones leave it after the sync.
	directFrom = 16 << 20
	// directBlock is the least size of blocks that are written past the page cache: each waits for the
	// disk, and smaller ones wait too often.
	directBlock = 1 << 20
	// directUnit is what memory, offset and length of such a write are multiples of. A device that
	// wants more refuses, and the page cache takes the data.
	directUnit = 4096

	// A disk with less than this many bytes a second for one write at a time may still be fast if it
	// has many at a time, as one at the far end of a network. The page cache sees to that.
	directRate = 200 << 20
	directMean = 32 // writes
	// cachedAfter is how much goes through the page cache then, before the next attempt.
	cachedAfter = 256 << 20
)

// directWriter writes a file past the page cache. Copying data into it, and throwing them away again,
// takes a tenth of the server's CPU seconds. Its methods are safe for concurrent use.
type directWriter struct {
	file *os.File

	mu     sync.Mutex // guards the following
	each   float64    // seconds that a byte takes, a moving mean
	cached int64      // bytes that go through the page cache first
}

// openDirect opens name in folder, which is the open file, for writes past the page cache. It returns
// nil if the file system has no such writes.
func openDirect(folder *os.Root, name string, file *os.File) *directWriter {
	own, err := file.Stat()
	if err != nil {
		return nil
	}
	direct, info, err := openRegular(folder, name, os.O_WRONLY|directFlag)
	if err != nil {
		return nil
	}
	if !os.SameFile(own, info) {
		direct.Close()
		return nil
	}
	return &directWriter{file: direct}
}

// write reports whether it wrote b. Otherwise the page cache has to take it. That is so after errors,
// too: it may do without what the device refused, and else it gives the error again.
func (d *directWriter) write(b []byte, off int64) bool {
	if len(b) == 0 || (off|int64(len(b))|int64(uintptr(unsafe.Pointer(&b[0]))))%directUnit != 0 || !d.may(int64(len(b))) {
		return false
	}
	began := time.Now()
	_, err := d.file.WriteAt(b, off)
	d.took(int64(len(b)), time.Since(began))
	return err == nil
}

// may reports whether n bytes should go past the page cache.
func (d *directWriter) may(n int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cached <= 0 {
		return true
	}
	d.cached -= n
	return false
}

// took notes how long a write of n bytes took. One may wait for the processor, but not all.
func (d *directWriter) took(n int64, long time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.each += (long.Seconds()/float64(n) - d.each) / directMean
	if d.each*directRate > 1 {
		d.each, d.cached = 0, cachedAfter
	}
}
