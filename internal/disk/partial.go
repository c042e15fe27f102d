package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/blockset"
)

const (
	// A checkpoint is due after this time, or after this much data.
	checkpointInterval = time.Second
	checkpointBytes    = 256 << 20
	// Write-back starts after this much data, so a checkpoint finds little left to do: 2 GB and
	// their sync took 1.0 s instead of 1.7 (ext4, virtual disk, with preallocation), and dropping
	// them from the cache afterwards costs nothing.
	writeBackBytes = 16 << 20

	// CheckpointFrom is the size, in bytes, up to which files have no checkpoint: sending them again
	// takes less time than keeping one.
	CheckpointFrom = 4 << 20
)

var (
	// errNoHoles says that a leftover has data where holes belong, and that it cannot be removed.
	errNoHoles = errors.New("cannot make holes")
	// errTakenAway says that somebody removed or replaced the partial file.
	errTakenAway = fmt.Errorf("somebody removed or replaced the partial file: %w", fs.ErrNotExist)
)

// Partial is a target under construction. All methods are safe for concurrent use. Commit, Stage,
// Abort or Close ends it and waits for calls in progress. Later calls return an error that matches
// os.ErrClosed.
//
// A file of more than 4 MiB and more than one block has a checkpoint and can be resumed. A smaller
// file and a stream of unknown length cannot.
type Partial struct {
	// Fixed when opened.
	tree      *Tree
	dir       *folder // released at the end
	folder    *os.Root
	file      *os.File // locked while open
	path      string
	base      string // final name in folder
	target    writingTarget
	size      int64 // -1: unknown
	blockSize int64
	holes     bool  // blocks that nobody writes are zeros
	early     bool  // of a file that still grows; size is only a bound
	least     int64 // bytes that the source of an early one has by now
	opt       TargetOptions
	inMemory  bool           // file system without a medium
	direct    *directWriter  // nil if all writes go through the page cache
	before    moment         // all data that this Partial writes is written after it
	log       *checkpointLog // nil without checkpoint
	earlier   *earlierRun    // nil for a new file

	gate  sync.RWMutex // each use of file holds it for reading
	ended bool         // guarded by gate

	// Linux writes to one file one call at a time and lets the others spin. Waiting here takes 0.37
	// instead of 0.57 CPU s/GB (medians, 8 writers, a new file on tmpfs), and no write waits 30 ms.
	writing      sync.Mutex // guards the following three
	preallocates bool       // the file system claims space without writing it
	claimed      int64      // space up to this offset is claimed
	wrote        int64      // bytes

	mu        sync.Mutex   // guards the following; never held during I/O
	done      blockset.Set // finished blocks
	ranges    blockset.Set // complete ranges, see PartialRange
	unread    blockset.Set // blocks of these to be read before the end, see Unread
	changes   int64        // calls that changed done
	synced    int64        // records under the last sync record
	err       error        // a failed checkpoint, final
	end       int64        // highest offset written
	behind    span         // written since write-back was last started
	dirty     span         // written since the last checkpoint
	behindLen int64        // bytes in writes to behind
	dirtyLen  int64        // bytes in writes to dirty
	risky     time.Time    // of the first mark that no checkpoint covers, zero if there is none
	atRisk    time.Time    // the same, but of those that no finished checkpoint covers

	durable atomic.Int64

	// These belong to the keeper. The channels are nil if there is none.
	kick     chan struct{}   // enough was written for the keeper to act
	requests chan chan error // requested checkpoints
	stop     chan struct{}
	stopped  chan struct{}
	covered  int64 // value of changes at the last checkpoint
	named    bool  // the names of partial file and checkpoint are on the medium
}

// span is the range from the lowest to the highest byte of some writes.
type span struct{ from, to int64 }

func (s *span) include(off, n int64) {
	if s.to == 0 {
		s.from = off
	}
	s.from, s.to = min(s.from, off), max(s.to, off+n)
}

// Partial opens the partial file of the target m.Path, whose folder must exist. It resumes what an
// earlier run left if m.Size, m.ID and blockSize (bytes, at most 1 GiB) are the same, and discards
// any other leftover. A negative m.Size is a stream of unknown length, which always starts anew.
// With m.Holes, Partial claims no space, and blocks that nobody writes become holes: a block that
// is marked but was not written reads as zeros. Partial uses only Path, Size, ID and Holes of m.
//
// Errors: ErrBusy while another Partial or Staged has the target open, ErrExists for a folder of
// that name, ErrNoSpace (a *NoSpaceError) if the file does not fit, ErrPath and ErrNotFolder for a
// bad path. The caller ends the Partial with Commit, Stage, Close or Abort.
func (t *Tree) Partial(m Meta, blockSize int, opt TargetOptions) (p *Partial, err error) {
	if blockSize <= 0 || blockSize > 1<<30 {
		return nil, fmt.Errorf("open partial file %s: block size %d out of range", m.Path, blockSize)
	}
	err = t.withParent(m.Path, func(f *folder, base string) error {
		p = &Partial{
			tree:      t,
			dir:       f,
			folder:    f.root,
			path:      m.Path,
			base:      base,
			size:      max(m.Size, -1),
			blockSize: int64(blockSize),
			holes:     m.Holes,
			opt:       opt,
		}
		if err := p.open(m.ID); err != nil {
			return err
		}
		f.retain()
		return nil
	})
	if err != nil {
		return nil, at("open partial file", m.Path, err)
	}
	return p, nil
}

func (p *Partial) open(source Identity) (err error) {
	if info, err := p.folder.Lstat(p.base); err == nil && info.IsDir() && !p.opt.Replace && !p.early {
		return errFolderExists
	}
	if p.target, err = writing.begin(p.dir, p.base); err != nil {
		return err
	}
	if p.dir.ours != nil {
		p.dir.ours.partials.Store(true)
	}
	file, info, fresh, err := claim(p.folder, p.partialName(), func(info fs.FileInfo) bool {
		return p.resumable() && p.resume(source, info)
	})
	if err != nil {
		writing.end(p.target)
		return err
	}
	p.file = file
	defer func() {
		if err == nil {
			return
		}
		if p.earlier == nil {
			_ = p.removeFiles() // nothing to resume
		}
		p.closeFiles()
	}()
	_, dev := fileID(info)
	if p.before, err = p.tree.volumes.note(dev, p.dir); err != nil {
		return err
	}
	if p.resumable() {
		err = p.openLog(source, info)
	} else if !fresh {
		err = removeIfThere(p.folder, p.checkpointName())
	}
	if err == nil && p.holes && p.size > 0 {
		err = p.openHoles()
	}
	if err != nil || !p.tracked() {
		return err
	}
	if err := p.reserve(); err != nil {
		return err
	}
	p.kick, p.requests = make(chan struct{}, 1), make(chan chan error)
	p.stop, p.stopped = make(chan struct{}), make(chan struct{})
	go p.keep()
	return nil
}

// resumable reports whether there is a checkpoint to resume from.
func (p *Partial) resumable() bool { return p.size > max(p.blockSize, CheckpointFrom) }

// tracked reports whether there is a keeper, for checkpoints and write-back.
func (p *Partial) tracked() bool { return p.size < 0 || p.resumable() }

// counted reports whether all blocks must be marked, because the length of the file does not show
// that it is complete.
func (p *Partial) counted() bool { return p.size < 0 || p.size > p.blockSize || p.holes }

func (p *Partial) partialName() string    { return reservedName(p.base) + partialSuffix }
func (p *Partial) checkpointName() string { return reservedName(p.base) + checkpointSuffix }

// claim makes and locks the partial file name in folder, and reports whether there was none before.
// Only the holder of its lock may write, rename or remove it.
//
// What exists under that name is removed, unless proven, which is called with the lock held, says
// that an earlier run of ours made it: in a folder to which others may write, it may be their file,
// which they would read and change. claim never writes to it: another process may just have made
// it and not have locked it yet. That process then sees that the file has lost its name.
func claim(
	folder *os.Root, name string, proven func(fs.FileInfo) bool,
) (file *os.File, info fs.FileInfo, fresh bool, err error) {
	// Each further turn means that somebody just renamed or removed the file.
	replaced := false
	for range 100 {
		file, err = folder.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL|openNonblock, 0o600)
		created := err == nil
		if errors.Is(err, fs.ErrExist) {
			file, err = openLeftover(folder, name)
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrChanged) {
			if _, gone := folder.Stat("."); gone != nil {
				return nil, nil, false, err
			}
			replaced = true
			continue
		}
		if err != nil {
			return nil, nil, false, err
		}
		if err := lockFile(file); err != nil {
			file.Close()
			return nil, nil, false, err
		}
		if info, err := file.Stat(); err == nil && isNamed(folder, name, info) {
			if created || info.Size() > 0 && isOurs(info) && proven(info) {
				return file, info, created && !replaced, nil
			}
			if err := removeIfThere(folder, name); err != nil {
				file.Close()
				return nil, nil, false, err
			}
			replaced = true
		}
		file.Close()
	}
	if errors.Is(err, fs.ErrNotExist) { // as in /proc
		return nil, nil, false, errNoFiles
	}
	return nil, nil, false, ErrBusy
}

// errNoFiles is the error of a folder that is there, but in which no file can be made.
var errNoFiles = errors.New("this folder takes no files")

func openLeftover(folder *os.Root, name string) (*os.File, error) {
	file, _, err := openRegular(folder, name, os.O_RDWR)
	switch {
	case errors.Is(err, ErrUnsupportedKind):
		// This is nothing of ours. Removing it lets the next turn make the file.
		if err := folder.Remove(name); err != nil {
			return nil, err
		}
		return nil, ErrChanged
	case errors.Is(err, fs.ErrPermission):
		// A commit set the mode and was then interrupted, or it is somebody else's.
		if folder.Chmod(name, 0o600) == nil {
			file, _, err = openRegular(folder, name, os.O_RDWR)
		} else if folder.Remove(name) == nil {
			return nil, ErrChanged
		}
	}
	return file, err
}

// holds reports whether name is still the open file.
func holds(folder *os.Root, name string, file *os.File) bool {
	info, err := file.Stat()
	return err == nil && isNamed(folder, name, info)
}

func isNamed(folder *os.Root, name string, file fs.FileInfo) bool {
	named, err := folder.Lstat(name)
	return err == nil && os.SameFile(file, named)
}

// header returns what the checkpoint of this target says, beside the partial file that info
// describes.
func (p *Partial) header(source Identity, info fs.FileInfo) logHeader {
	ino, _ := fileID(info)
	return logHeader{blockSize: p.blockSize, size: p.size, source: source, name: strings.TrimSuffix(p.base, earlyMark), partial: ino}
}

// resume opens the checkpoint of an earlier run, and reports whether there is one for this target,
// source and partial file.
func (p *Partial) resume(source Identity, info fs.FileInfo) bool {
	log, earlier, err := resumeLog(p.folder, p.checkpointName(), p.header(source, info))
	if err != nil || log == nil {
		return false
	}
	if p.early && earlier.have.End()*p.blockSize > p.least {
		log.file.Close() // the source was cut since
		return false
	}
	if earlier.sealed != changeTime(info) {
		earlier.sealed = 0
	}
	p.log, p.earlier = log, earlier
	return true
}

// openLog goes on with the checkpoint that resume found, or starts a new one.
func (p *Partial) openLog(source Identity, info fs.FileInfo) (err error) {
	if p.log != nil {
		err := p.takeOver()
		if !errors.Is(err, errNoHoles) {
			return err
		}
		p.log.file.Close()
		p.log, p.earlier = nil, nil
		if err := p.file.Truncate(0); err != nil {
			return err
		}
	}
	p.log, err = createLog(p.folder, p.checkpointName(), p.header(source, info))
	return err
}

// takeOver adopts the work of the earlier run.
func (p *Partial) takeOver() error {
	info, err := p.file.Stat()
	if err != nil {
		return err
	}
	// Blocks beyond the end cannot exist, whatever the log says.
	p.clip(&p.earlier.have, info.Size())
	p.clip(&p.earlier.durable, info.Size())
	p.clip(&p.earlier.ranges, info.Size())
	if p.holes {
		if err := p.emptyOthers(&p.earlier.have, 0, p.blocks(p.size), info.Size()); err != nil {
			return err
		}
	}
	p.end = info.Size()
	p.synced = p.earlier.synced
	p.changes = p.earlier.trusted - p.earlier.synced // the first checkpoint has to cover them
	p.done, p.ranges = p.earlier.have.Clone(), p.earlier.ranges.Clone()
	p.durable.Store(p.bytes(&p.earlier.durable))
	return nil
}

// emptyOthers makes holes of the blocks from first to end that are not in have, in a file of fileSize
// bytes. A killed run may have written blocks without marking them, which is old data where this run
// has a hole. The error is errNoHoles if the system cannot make holes.
func (p *Partial) emptyOthers(have *blockset.Set, first, end, fileSize int64) error {
	from := first * p.blockSize
	empty := func(end int64) error { // starts at from
		if n := min(end, fileSize) - from; n > 0 && punch(p.file, from, n) != nil {
			return errNoHoles
		}
		return nil
	}
	within := have.Within(first, end-first)
	for run := range within.All() {
		if err := empty(run.Start * p.blockSize); err != nil {
			return err
		}
		from = run.End() * p.blockSize
	}
	return empty(end * p.blockSize)
}

// openHoles gives the file its full size, so blocks that nobody writes read as zeros.
func (p *Partial) openHoles() error {
	if err := p.file.Truncate(p.size); err != nil {
		return err
	}
	info, err := p.file.Stat()
	if err == nil && p.earlier == nil && allocated(info) >= p.size {
		p.opt.warn(p.path, "holes", errors.ErrUnsupported)
	}
	return err
}

// clip removes the blocks from e that a file of fileSize bytes cannot hold in full.
func (p *Partial) clip(e *blockset.Set, fileSize int64) {
	full := fileSize / p.blockSize
	if fileSize >= p.size {
		full = p.blocks(p.size)
	}
	e.RemoveRun(full, max(0, e.End()-full))
}

// blocks returns the number of blocks in size bytes.
func (p *Partial) blocks(size int64) int64 {
	n := size / p.blockSize
	if size%p.blockSize > 0 {
		n++
	}
	return n
}

// bytes returns the number of bytes in the blocks of e.
func (p *Partial) bytes(e *blockset.Set) int64 {
	n := e.Count() * p.blockSize
	if p.size < 0 {
		return min(n, p.end)
	}
	if last := p.blocks(p.size) - 1; e.Has(last) {
		n -= (last+1)*p.blockSize - p.size
	}
	return n
}

// reserve checks that the target fits, and claims the space where that is cheap.
func (p *Partial) reserve() error {
	volume, err := volumeOf(p.file)
	if err != nil {
		return err
	}
	p.inMemory = volume.inMemory
	if p.size < 0 || p.holes {
		return nil
	}
	info, err := p.file.Stat()
	if err != nil {
		return err
	}
	if p.early { // the file needs room beside it once it is complete
		if room := (volume.free + allocated(info)) / 2; volume.freeKnown && p.least > room {
			return &NoSpaceError{Need: p.least, Free: room}
		}
		return nil
	}
	need := p.size - allocated(info)
	if volume.freeKnown && need > volume.free {
		return &NoSpaceError{Need: need, Free: volume.free}
	}
	p.preallocates, p.claimed = volume.preallocates, info.Size()
	if p.preallocates && p.size >= directFrom && p.blockSize >= directBlock {
		p.direct = openDirect(p.folder, p.partialName(), p.file)
	}
	return nil
}

// claimAhead bounds the space that is claimed beyond what was written.
const claimAhead = 64 << 20

// claimSpace claims space for a write of n bytes at off, and as much again as was written before: a
// peer that announces a large file and sends little takes little. p.writing is held.
func (p *Partial) claimSpace(off, n int64) error {
	p.wrote += n
	if !p.preallocates || off+n <= p.claimed {
		return nil
	}
	from := p.claimed
	if off > from+claimAhead { // blocks may come in any order
		from = off
	}
	to := min(p.size, off+n+min(claimAhead, p.wrote))
	// Only one write at a time can make a file longer, so that is done ahead of those past the page cache.
	if err := preallocate(p.file, from, to-from, p.direct != nil); isNoSpace(err) {
		return &NoSpaceError{Need: to - from, Free: 0}
	}
	p.claimed = to
	return nil
}

// Extent is a run of blocks.
type Extent struct {
	Start int64 // first block
	Count int64 // blocks
}

// Have returns the blocks that an earlier run finished, as far as the checkpoint can be trusted,
// ascending and merged. The result stays the same while the Partial is open. The caller should
// still compare the content with Recorded.
func (p *Partial) Have() []Extent {
	if p.earlier == nil {
		return nil
	}
	return blockset.Runs[Extent](p.earlier.have)
}

// Recorded calls visit with each block of Have and its recorded digest, in the order in which the
// blocks were finished. It stops at visit's first error. It reads the checkpoint file in constant
// memory. visit may call other methods.
func (p *Partial) Recorded(visit func(block int64, cv [32]byte) error) error {
	if p.earlier == nil {
		return nil
	}
	return at("read checkpoint of", p.path, p.earlier.recorded(p.log, visit))
}

// ReadAt implements io.ReaderAt.
func (p *Partial) ReadAt(b []byte, off int64) (int, error) {
	p.gate.RLock()
	defer p.gate.RUnlock()
	if p.ended {
		return 0, at("read", p.path, os.ErrClosed)
	}
	return p.file.ReadAt(b, off)
}

// WriteAt implements io.WriterAt. It refuses data outside the target and then writes nothing. A
// full file system gives ErrNoSpace.
func (p *Partial) WriteAt(b []byte, off int64) (int, error) {
	p.gate.RLock()
	defer p.gate.RUnlock()
	if p.ended {
		return 0, at("write", p.path, os.ErrClosed)
	}
	length := int64(len(b))
	if off < 0 || off+length < off || p.size >= 0 && off+length > p.size {
		return 0, at("write", p.path, fmt.Errorf("%d bytes at %d are outside the target of %d bytes", length, off, p.size))
	}
	n, err := p.write(b, off)
	if p.tracked() && n > 0 {
		p.account(off, int64(n))
	}
	return n, at("write", p.path, err)
}

// write writes b, which lies in the target.
func (p *Partial) write(b []byte, off int64) (int, error) {
	p.writing.Lock()
	err := p.claimSpace(off, int64(len(b)))
	p.writing.Unlock()
	if err != nil {
		return 0, err
	}
	if p.direct != nil && p.direct.write(b, off) {
		return len(b), nil
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	return p.file.WriteAt(b, off)
}

// CopyFrom copies n bytes from offset from of source to offset off. The files share the data where
// the file system can do that. Errors are those of WriteAt, or of reading.
func (p *Partial) CopyFrom(source *Source, from, off, n int64) error {
	p.gate.RLock()
	defer p.gate.RUnlock()
	if p.ended {
		return at("write", p.path, os.ErrClosed)
	}
	if off < 0 || n < 0 || off+n < off || p.size >= 0 && off+n > p.size {
		return at("write", p.path, fmt.Errorf("%d bytes at %d are outside the target of %d bytes", n, off, p.size))
	}
	p.writing.Lock()
	p.wrote += n
	err := copyRange(p.file, source.file, off, from, n)
	p.writing.Unlock()
	if p.tracked() && err == nil && n > 0 {
		p.account(off, n)
	}
	return at("write", p.path, err)
}

// Truncate cuts a stream to size bytes. What is written behind them later has a hole before it.
func (p *Partial) Truncate(size int64) error {
	p.gate.RLock()
	defer p.gate.RUnlock()
	switch {
	case p.ended:
		return at("cut", p.path, os.ErrClosed)
	case p.size >= 0 || size < 0:
		return at("cut", p.path, fmt.Errorf("%d bytes can't be the size of the target of %d bytes", size, p.size))
	}
	p.writing.Lock()
	err := p.file.Truncate(size)
	p.writing.Unlock()
	if err == nil {
		p.mu.Lock()
		p.end = min(p.end, size)
		p.mu.Unlock()
	}
	return at("cut", p.path, err)
}

// Clone makes the n bytes at off share the data at offset from of source, and reports whether the
// file system can do that. All numbers are multiples of its block size.
func (p *Partial) Clone(source *Source, from, off, n int64) bool {
	p.gate.RLock()
	defer p.gate.RUnlock()
	if p.ended || off < 0 || n <= 0 || p.size < 0 || n > p.size-off {
		return false
	}
	p.writing.Lock()
	err := cloneRange(p.file, source.file, off, from, n)
	p.writing.Unlock()
	if err == nil && p.tracked() {
		p.account(off, n)
	}
	return err == nil
}

// copyThrough copies a range by reading and writing it.
func copyThrough(to, from *os.File, off, at, n int64) error {
	buf := make([]byte, min(n, 256<<10))
	for n > 0 {
		part := buf[:min(n, int64(len(buf)))]
		got, err := from.ReadAt(part, at)
		if got < len(part) {
			if err == nil || errors.Is(err, io.EOF) {
				err = ErrChanged
			}
			return err
		}
		if _, err := to.WriteAt(part, off); err != nil {
			return err
		}
		off, at, n = off+int64(got), at+int64(got), n-int64(got)
	}
	return nil
}

// account notes a write, and wakes the keeper when enough has gathered.
func (p *Partial) account(off, n int64) {
	p.mu.Lock()
	p.end = max(p.end, off+n)
	p.dirty.include(off, n)
	p.dirtyLen += n
	p.behind.include(off, n)
	p.behindLen += n
	due := p.behindLen >= writeBackBytes
	p.mu.Unlock()
	if due {
		select {
		case p.kick <- struct{}{}:
		default: // the keeper is already awake
		}
	}
}

// Mark records that block was written in full, with its digest. The record goes to the kernel, not
// to the medium: the next checkpoint, about a second later, makes it durable. After a checkpoint
// failed, Mark returns that error.
func (p *Partial) Mark(block int64, cv [32]byte) error {
	return p.change(recordDone, block, cv)
}

// Drop undoes Mark for a block whose content differs from its record. With Holes, it also empties
// the block. Errors are those of Mark.
func (p *Partial) Drop(block int64) error {
	err := p.change(recordDrop, block, [32]byte{})
	if err == nil && p.holes {
		err = at("empty block of", p.path, p.empty(block))
	}
	return err
}

// empty sets the content of block to zeros.
func (p *Partial) empty(block int64) error {
	p.gate.RLock()
	defer p.gate.RUnlock()
	if p.ended {
		return os.ErrClosed
	}
	from, to := block*p.blockSize, (block+1)*p.blockSize
	if p.size >= 0 {
		to = min(to, p.size)
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	if punch(p.file, from, to-from) == nil {
		return nil
	}
	zeros := make([]byte, min(to-from, 1<<20))
	for ; from < to; from += int64(len(zeros)) {
		zeros = zeros[:min(to-from, int64(len(zeros)))]
		if _, err := p.file.WriteAt(zeros, from); err != nil {
			return err
		}
	}
	return nil
}

func (p *Partial) change(kind byte, block int64, cv [32]byte) error {
	p.gate.RLock()
	defer p.gate.RUnlock()
	switch {
	case p.ended:
		return at("mark", p.path, os.ErrClosed)
	case block < 0 || p.size >= 0 && block >= p.blocks(p.size):
		return at("mark", p.path, fmt.Errorf("no block %d", block))
	}
	p.mu.Lock()
	err := p.err
	if err == nil {
		if kind == recordDone {
			p.done.Add(block)
		} else {
			p.done.Remove(block)
		}
		p.ranges.Remove(block)
		p.unread.Remove(block)
		p.changes++
		if p.risky.IsZero() {
			p.risky = time.Now()
		}
		if p.log != nil {
			p.log.append(record{kind: kind, number: block, value: cv})
		}
	}
	p.mu.Unlock()
	if err == nil && p.log != nil {
		flush := p.log.tryFlush
		if kind == recordDrop {
			flush = p.log.flush // before somebody writes the block again
		}
		if err = flush(); err != nil {
			err = p.fail(err)
		}
	}
	return at("mark", p.path, err)
}

// Durable returns how many bytes of finished blocks are on the medium, including those of earlier
// runs. It stays 0 for a file without checkpoint.
func (p *Partial) Durable() int64 { return p.durable.Load() }

// AtRisk returns how long a finished block has waited to become durable. It stays 0 for a file
// without checkpoint.
func (p *Partial) AtRisk() time.Duration {
	if !p.tracked() {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	since := p.atRisk
	if since.IsZero() {
		since = p.risky
	}
	if since.IsZero() {
		return 0
	}
	return time.Since(since)
}

// Checkpoint makes all blocks marked so far durable. If ctx ends first, the checkpoint continues in
// the background. Checkpoint returns nil for a small file, which has none.
func (p *Partial) Checkpoint(ctx context.Context) error {
	if !p.tracked() {
		return nil
	}
	reply := make(chan error, 1)
	select {
	case p.requests <- reply:
	case <-p.stop:
		return at("checkpoint", p.path, os.ErrClosed)
	case <-ctx.Done():
		return at("checkpoint", p.path, ctx.Err())
	}
	select {
	case err := <-reply:
		return at("checkpoint", p.path, err)
	case <-ctx.Done():
		return at("checkpoint", p.path, ctx.Err())
	}
}

// keep makes checkpoints until stop is closed.
func (p *Partial) keep() {
	defer close(p.stopped)
	ticker := time.NewTicker(checkpointInterval)
	defer ticker.Stop()
	for {
		select {
		case <-p.stop:
			return
		case reply := <-p.requests:
			reply <- p.checkpoint()
		case <-ticker.C:
			_ = p.checkpoint() // p.err keeps the error
		case <-p.kick:
			if p.writeBack() >= checkpointBytes {
				_ = p.checkpoint()
			}
		}
	}
}

// writeBack makes the kernel start writing the data since the last call. It returns how many bytes
// were written since the last checkpoint.
func (p *Partial) writeBack() (dirtyLen int64) {
	p.mu.Lock()
	behind := p.behind
	p.behind, p.behindLen = span{}, 0
	dirtyLen = p.dirtyLen
	p.mu.Unlock()
	if !p.inMemory && behind.to > 0 {
		startWriteBack(p.file, behind.from, behind.to-behind.from)
	}
	return dirtyLen
}

// checkpoint makes all blocks marked so far durable. Only the keeper calls it, or a caller that has
// ended the keeper.
func (p *Partial) checkpoint() error {
	p.mu.Lock()
	if p.err != nil {
		defer p.mu.Unlock()
		return p.err
	}
	dirty, changes, bytes := p.dirty, p.changes, p.bytes(&p.done)
	p.dirty, p.dirtyLen = span{}, 0
	p.atRisk, p.risky = p.risky, time.Time{}
	records := int64(0)
	if p.log != nil {
		records = p.log.length()
	}
	p.mu.Unlock()
	if dirty.to == 0 && changes == p.covered {
		return nil
	}
	if err := syncData(p.file); err != nil {
		return p.fail(fmt.Errorf("sync: %w", err))
	}
	if p.log != nil {
		if err := p.makeSynced(records); err != nil {
			return p.fail(err)
		}
		p.mu.Lock()
		p.synced = records
		p.mu.Unlock()
	}
	p.mu.Lock()
	p.atRisk = time.Time{}
	p.mu.Unlock()
	p.covered = changes
	p.durable.Store(bytes)
	if !p.inMemory && dirty.to > 0 {
		dropCache(p.file, dirty.from, dirty.to-dirty.from)
	}
	return nil
}

func (p *Partial) makeSynced(records int64) error {
	if err := p.log.markSynced(records); err != nil {
		return err
	}
	if !p.named {
		if err := syncFolder(p.folder); err != nil {
			return fmt.Errorf("sync folder: %w", err)
		}
		p.named = true
	}
	return nil
}

// fail makes err the result of all further marks, unless there is one already, and cuts the log
// back to what is on the medium. It returns the lasting error.
func (p *Partial) fail(err error) error {
	p.mu.Lock()
	first := p.err == nil
	if first {
		p.err = err
	}
	err, synced := p.err, p.synced
	p.mu.Unlock()
	if first && p.log != nil {
		p.log.giveUp(synced)
	}
	return err
}

// Commit completes the target. It cuts the file to m.Size, gives it m's metadata (owner and
// extended attributes if asked for), syncs it unless Sync is SyncNone, renames it to its final
// name, over an existing file or symlink, and removes the checkpoint. m.Size must be the size that
// the Partial was opened with, or is the length of the stream. Commit returns ErrIncomplete and
// does nothing if data is missing, or if a block is not marked in a stream, or in a file of several
// blocks or with holes. It returns ErrExists for a folder of the final name.
//
// After an error the Partial is still open, with one exception: if only syncing the folder failed,
// the target already has its name.
func (p *Partial) Commit(m Meta) error {
	p.gate.Lock()
	defer p.gate.Unlock()
	if p.ended {
		return at("commit", p.path, os.ErrClosed)
	}
	if err := p.complete(m); err != nil {
		return at("commit", p.path, err)
	}
	if err := p.finish(m, p.opt.Sync != SyncNone); err != nil {
		return at("commit", p.path, err)
	}
	if !holds(p.folder, p.partialName(), p.file) {
		return at("commit", p.path, errTakenAway)
	}
	if err := p.tree.renameOver(p.dir, p.partialName(), p.base); err != nil {
		return at("commit", p.path, err)
	}
	var err error
	if p.opt.Sync != SyncNone {
		err = p.opt.syncing(func() error { return syncFolder(p.folder) })
	}
	p.endLocked()
	if p.log != nil {
		_ = removeIfThere(p.folder, p.checkpointName()) // Sweep would find it
	}
	p.closeFiles()
	p.dir.release()
	return at("sync folder of", p.path, err)
}

// Stage completes the target like Commit, but leaves its name to a Batch. It syncs a file with a
// checkpoint and a stream, unless Sync is SyncNone. A file with a checkpoint keeps it until it has
// its name. After an error the Partial is still open. Errors are those of Commit.
func (p *Partial) Stage(m Meta) (*Staged, error) {
	p.gate.Lock()
	defer p.gate.Unlock()
	if p.ended {
		return nil, at("stage", p.path, os.ErrClosed)
	}
	if err := p.complete(m); err != nil {
		return nil, at("stage", p.path, err)
	}
	synced := p.opt.Sync == SyncFile || p.opt.Sync == SyncBatch && p.tracked()
	if err := p.finish(m, synced); err != nil {
		return nil, at("stage", p.path, err)
	}
	info, err := p.file.Stat()
	if err != nil {
		return nil, at("stage", p.path, err)
	}
	p.endLocked()
	s := newStaged(p.tree, p.path, p.file, info, p.before)
	s.target, s.synced, s.log = p.target, synced, p.log
	p.dir.release()
	return s, nil
}

// complete reports whether all data of m.Size bytes is written.
func (p *Partial) complete(m Meta) error {
	if p.early {
		return fmt.Errorf("its source still grows: %w", fs.ErrInvalid)
	}
	if m.Size < 0 || p.size >= 0 && m.Size != p.size {
		return fmt.Errorf("size %d is not that of the target, %d", m.Size, p.size)
	}
	if !p.counted() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	if blocks := p.blocks(m.Size); p.done.Count() != blocks || p.done.Prefix() != blocks {
		return fmt.Errorf("%w: %d of %d blocks", ErrIncomplete, p.done.Count(), blocks)
	}
	return nil
}

// finish gives the file its size and metadata, and syncs it if asked for.
func (p *Partial) finish(m Meta, sync bool) error {
	info, err := p.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() < m.Size && !p.holes {
		return fmt.Errorf("%w: %d of %d bytes", ErrIncomplete, info.Size(), m.Size)
	}
	if info.Size() != m.Size {
		if err := p.file.Truncate(m.Size); err != nil {
			return err
		}
	}
	m.Path, m.Kind = p.path, File
	if err := p.opt.dress(fileHandle(p.folder, p.partialName(), p.file), nil, m); err != nil {
		return err
	}
	if sync {
		if err := p.opt.syncing(p.file.Sync); err != nil {
			return p.fail(err)
		}
		if m.Size >= directFrom && !p.inMemory {
			dropCache(p.file, 0, m.Size)
		}
	}
	return nil
}

// Close ends the Partial and keeps it for a later run, if it has a checkpoint and a finished block.
// Otherwise it acts like Abort. Marked blocks survive the end of the process. Call Checkpoint first
// if they have to survive the end of the system. After the Partial has ended, Close does nothing.
func (p *Partial) Close() error {
	p.gate.Lock()
	defer p.gate.Unlock()
	if p.ended {
		return nil
	}
	p.endLocked()
	var err error
	if p.log == nil || p.done.Count() == 0 {
		err = p.removeFiles()
	} else if bootID() == ([32]byte{}) {
		err = p.checkpoint() // otherwise the next run could not trust the rest
	} else if err = p.err; err == nil {
		err = p.log.flush()
	}
	p.closeFiles()
	p.dir.release()
	return at("close", p.path, err)
}

// Abort ends the Partial, and removes it with its checkpoint. After the Partial has ended, Abort
// does nothing.
func (p *Partial) Abort() error {
	p.gate.Lock()
	defer p.gate.Unlock()
	if p.ended {
		return nil
	}
	p.endLocked()
	err := p.removeFiles()
	p.closeFiles()
	p.dir.release()
	return at("abort", p.path, err)
}

// endLocked refuses further use and waits for the keeper. The caller holds the gate.
func (p *Partial) endLocked() {
	p.ended = true
	if p.stop != nil {
		close(p.stop)
		<-p.stopped
	}
	if p.direct != nil {
		p.direct.file.Close()
		p.direct = nil
	}
}

// removeFiles removes checkpoint and partial file, if they are still ours.
func (p *Partial) removeFiles() error {
	if !holds(p.folder, p.partialName(), p.file) {
		return nil
	}
	return errors.Join(
		removeIfThere(p.folder, p.checkpointName()),
		removeIfThere(p.folder, p.partialName()))
}

func (p *Partial) closeFiles() {
	if p.log != nil {
		p.log.file.Close()
	}
	p.file.Close() // also unlocks
	writing.end(p.target)
}

// removeIfThere removes an entry. It is no error if the entry is gone.
func removeIfThere(folder *os.Root, name string) error {
	if err := folder.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
