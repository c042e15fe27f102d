package transfer

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/disk"
)

// sparseFile is a File that knows where it has data.
type sparseFile interface {
	Data(off, n int64) ([]disk.Range, error)
}

// leavingFile is a File that may leave the page cache as it is sent.
type leavingFile interface {
	Sent(off, n int64)
}

// sourceFile reads a file that is sent. The file is opened when it is first read, and closed when
// the entry is resolved; one of a single block is closed after each use, since it is read once. A
// nil sourceFile is that of an entry without a file.
type sourceFile struct {
	content Content
	holes   bool // the file may have holes
	single  bool // it has one block
	counts  *counters

	mu     sync.Mutex // guards the following; a leaf, and held while the file is opened
	handle File
	users  int
	unused bool // close when the last user leaves
}

// acquire opens the file if it is not open. Each call that succeeds needs one of release.
func (f *sourceFile) acquire() (File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.handle == nil {
		handle, err := f.content.Open()
		if err != nil {
			return nil, err
		}
		f.handle = handle
	}
	f.users++
	return f.handle, nil
}

// release undoes acquire.
func (f *sourceFile) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.users--
	f.closeLocked()
}

// close closes the file when its last user leaves.
func (f *sourceFile) close() {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unused = true
	f.closeLocked()
}

func (f *sourceFile) closeLocked() {
	if f.handle != nil && f.users == 0 && (f.unused || f.single) {
		_ = f.handle.Close()
		f.handle = nil
	}
}

// unchanged returns an error that wraps disk.ErrChanged if the file is not what it was when it was
// listed.
func (f *sourceFile) unchanged() error {
	handle, err := f.acquire()
	if err != nil {
		return err
	}
	defer f.release()
	return handle.Unchanged()
}

// read fills payload from offset off on and digests it meanwhile. It returns the ranges that hold
// data, in offsets of the file, nil if all does.
func (f *sourceFile) read(
	lap *lap, off int64, payload []byte, hash *digest.Hasher,
) ([]disk.Range, error) {
	handle, err := f.acquire()
	if err != nil {
		return nil, err
	}
	defer f.release()
	f.counts.read.Add(int64(len(payload)))
	if sparse, ok := handle.(sparseFile); ok && f.holes {
		data, err := sparse.Data(off, int64(len(payload)))
		if err != nil {
			return nil, err
		}
		if data == nil {
			data = []disk.Range{} // no data is not all data
		}
		if len(data) != 1 || data[0].Len < int64(len(payload)) {
			return data, readRanges(handle, off, data, payload, hash)
		}
	}
	for at := 0; at < len(payload); at += piece {
		part := payload[at:min(len(payload), at+piece)]
		if err := readFull(handle, part, off+int64(at)); err != nil {
			return nil, err
		}
		lap.enter(Digest)
		hash.Write(part)
		lap.enter(Read)
	}
	return nil, nil
}

// sent says that n bytes from off were read to send them.
func (f *sourceFile) sent(off int64, n int) {
	f.mu.Lock()
	leaving, ok := f.handle.(leavingFile)
	if !ok {
		f.mu.Unlock()
		return
	}
	f.users++
	f.mu.Unlock()
	defer f.release()
	leaving.Sent(off, int64(n))
}

// readRanges fills payload, which begins at off, with the ranges of data and with zeros between
// them.
func readRanges(
	f io.ReaderAt, off int64, data []disk.Range, payload []byte, hash *digest.Hasher,
) error {
	clear(payload)
	for _, r := range data {
		if err := readFull(f, payload[r.Off-off:][:r.Len], r.Off); err != nil {
			return err
		}
	}
	hash.Write(payload)
	return nil
}

// holeScan is how many bytes are searched for data at once.
const holeScan = 1 << 30

// dataFrom returns where the next data is from offset off on, size if there is none before that. It
// returns off itself for a file that does not know its holes.
func (f *sourceFile) dataFrom(off, size int64) (int64, error) {
	handle, err := f.acquire()
	if err != nil {
		return 0, err
	}
	defer f.release()
	sparse, ok := handle.(sparseFile)
	if !ok {
		return off, nil
	}
	for off < size {
		n := min(holeScan, size-off)
		data, err := sparse.Data(off, n)
		if err != nil {
			return 0, err
		}
		if len(data) > 0 {
			return data[0].Off, nil
		}
		off += n
	}
	return size, nil
}

var errShort = fmt.Errorf("%w: it is shorter than it was", disk.ErrChanged)

// readFull fills part from offset off on. A file that ends before has changed.
func readFull(f io.ReaderAt, part []byte, off int64) error {
	if n, err := f.ReadAt(part, off); n < len(part) {
		if err == nil || errors.Is(err, io.EOF) {
			err = errShort
		}
		return err
	}
	return nil
}
