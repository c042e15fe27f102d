package transfer

import (
	"errors"
	"slices"
	"sync"

	"github.com/fxfer/fxfer/internal/blockset"
	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

// receiving is an entry that was announced to the receiver and that is not resolved.
type receiving struct {
	index uint64
	entry wire.Entry
	meta  disk.Meta    // what the target gets; Path is that in the target's tree
	held  int          // bytes of names and attributes
	span  blockset.Run // the blocks of a range; zero for a whole file
	early bool         // part of a file that still grows, which is kept without a name

	// Set by the comparer before the entry is resolved.
	lacks  bool // the target has nothing of this kind there
	over   bool // the target has a file there
	reused bool // linked or copied from the previous snapshot

	// Guarded by table.mu.
	opened bool         // has files of table.files
	folder *folder      // waits for the entry
	links  []*receiving // hard links that wait for the entry

	claimed claimed // of the quota; guarded by usage.mu

	mu       sync.Mutex // guards the following; held before deltaReceive.mu and pump.mu
	resolved bool       // somebody ends the entry, or has ended it
	hashing  bool       // the target's content is being compared or copied, so no data may come yet
	hashed   bool       // the target's digest was sent, and the sender compares
	checking bool       // blocks of an earlier run are being read
	digested bool       // the sender has sent the digest of the whole file
	rejected uint8      // blocks whose digest was wrong; no more than rejectMax and those under way
	digest   [32]byte   // that digest
	part     partialFile
	delta    *deltaReceive // nil without an old version
	blocks   int64         // -1 while unknown
	size     int64         // -1 while unknown
	done     blockset.Set
	busy     []inFlight // blocks of several that streams read and write, at most one for each stream
	tree     digest.Tree
	empty    blockset.Set // blocks without data
	short    int64        // the block of a stream that is not full, or -1
	shortLen int
}

// inFlight is a block that streams read and write. Two may carry the same block, when a dead stream
// is not known to be dead yet.
type inFlight struct {
	block   int64
	digest  [32]byte
	streams int
}

// rejectMax is how many blocks of an entry may arrive damaged. Since TLS protects them, even one is
// a sign of bad memory.
const rejectMax = 8

// errVersions is the error of a block that two streams carry with different digests: its source
// changed in between.
var errVersions = errors.New("a block comes in two versions")

// smallLocked reports whether the file comes whole, with its digest.
func (e *receiving) smallLocked() bool { return e.entry.Size >= 0 && e.blocks <= 1 }

// blockLen is the length of a block of a file whose size was announced.
func (e *receiving) blockLen(block int64) int {
	return lengthOf(e.entry.Size, e.entry.BlockLog, block)
}

// resolve marks the entry as resolved. It returns true once: to the caller who is to end the entry.
func (e *receiving) resolve() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	first := !e.resolved
	e.resolved = true
	return first
}

// partial returns the entry's partial file, nil if there is none.
func (e *receiving) partial() partialFile {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.part
}

// oldVersion returns the entry's old version, nil if there is none.
func (e *receiving) oldVersion() *deltaReceive {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.delta
}

// leavePart ends the partial file of an entry that was not committed. What can be resumed stays,
// unless gone says that its source is not what it was. It may wait for the disk.
func (e *receiving) leavePart(gone bool) {
	e.oldVersion().close()
	part := e.partial()
	switch {
	case part == nil:
	case e.entry.Size < 0 || gone:
		_ = part.Abort()
	default:
		_ = part.Close()
	}
}

// startHashing keeps data away until the target's content is compared or copied.
func (e *receiving) startHashing() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hashing = true
}

// setHashed notes that the sender compares. It returns whether it was so before.
func (e *receiving) setHashed(now bool) (before bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before, e.hashed = e.hashed, now
	return before
}

// expectWhole readies a file of one block at most for its data, which will come whole.
func (e *receiving) expectWhole() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hashing = false
}

// expectBlocks readies a file of several blocks for its data. It returns the blocks that are there
// from an earlier run, and false if the entry is resolved meanwhile.
func (e *receiving) expectBlocks(
	part partialFile, old *deltaReceive,
) (have []wire.Extent, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.resolved {
		return nil, false
	}
	e.part, e.delta = part, old
	for _, h := range part.Have() {
		if len(have) < maxRuns/2 { // the others come again
			have = append(have, wire.Extent(h))
		}
	}
	e.done = blockset.Of(have)
	e.checking = len(have) > 0 && !e.early
	e.hashing = false
	return have, true
}

// admission says what a stream does with a block.
type admission uint8

const (
	refuse admission = iota // nobody needs it
	hold                    // it is there already; acknowledge it
	want                    // read and write it, then call wrote or leave; for a whole file, resolveWhole
)

// admit decides on a block that a stream is about to read.
func (e *receiving) admit(h *wire.BlockHeader) (admission, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.resolved {
		return refuse, nil
	}
	if err := e.checkLocked(h); err != nil {
		return refuse, err
	}
	if e.done.Has(h.Block) {
		return hold, nil
	}
	switch i := e.busyAtLocked(h.Block); {
	case h.Whole: // the first stream that has all of it writes it: see resolveWhole
	case i < 0:
		e.busy = append(e.busy, inFlight{h.Block, h.Digest, 1})
	case e.busy[i].digest != h.Digest:
		return refuse, errVersions
	default:
		e.busy[i].streams++
	}
	return want, nil
}

// busyAtLocked returns where in busy a block is, or -1. This is a slice, because few streams carry
// blocks of one file at a time, and a map makes room for eight.
func (e *receiving) busyAtLocked(block int64) int {
	return slices.IndexFunc(e.busy, func(x inFlight) bool { return x.block == block })
}

// checkLocked compares a header with what is known of the entry.
func (e *receiving) checkLocked(h *wire.BlockHeader) error {
	size := int64(1) << e.entry.BlockLog
	length := int64(h.Length)
	if h.Raw > 0 {
		length = int64(h.Raw)
	}
	switch {
	case e.entry.Kind != wire.File || e.hashing || h.Whole != e.smallLocked():
		return protocolError("entry %d takes no such block", h.Index)
	case e.blocks >= 0 && h.Block >= e.blocks:
		return protocolError("block %d beyond the end of entry %d", h.Block, h.Index)
	case e.isRange() && (h.Block < e.span.Start || h.Block >= e.span.End()):
		return protocolError("block %d is outside of the range of entry %d", h.Block, h.Index)
	case h.Patch:
		if e.delta != nil && length <= int64(e.blockLen(h.Block)) {
			return nil
		}
		return protocolError("block %d of entry %d has no old version", h.Block, h.Index)
	case h.Sparse:
		if e.entry.Holes && e.entry.Size >= 0 && length <= int64(e.blockLen(h.Block)) {
			return nil
		}
		return protocolError("block %d of entry %d has no holes", h.Block, h.Index)
	case e.entry.Size >= 0 && length != int64(e.blockLen(h.Block)):
		return protocolError("block %d of entry %d has %d bytes", h.Block, h.Index, length)
	case length == 0 || length > size || h.Block > (1<<62)>>e.entry.BlockLog:
		return protocolError("block %d of entry %d has %d bytes", h.Block, h.Index, length)
	case e.entry.Size < 0 && length < size:
		if e.short >= 0 && e.short != h.Block {
			return protocolError("entry %d ends twice", h.Index)
		}
		e.short, e.shortLen = h.Block, int(length)
	}
	return nil
}

// ackHeld acknowledges a block that is there already, unless a recheck has found meanwhile that it
// is not: the sender would take the acknowledgement for that of the block that it was asked for.
func (e *receiving) ackHeld(p *pump, block int64) {
	p.ackRoom()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done.Has(block) {
		p.ackNow(e.index, block)
	}
}

// leave gives up a block that admit granted.
func (e *receiving) leave(block int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leaveLocked(block)
}

func (e *receiving) leaveLocked(block int64) {
	i := e.busyAtLocked(block)
	if i < 0 {
		return
	}
	if e.busy[i].streams--; e.busy[i].streams == 0 {
		e.busy = slices.Delete(e.busy, i, i+1)
	}
}

// reject gives up a block whose digest is wrong, and reports whether the entry must fail.
func (e *receiving) reject(block int64) (tooMany bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leaveLocked(block)
	e.rejected++
	return e.rejected > rejectMax || e.entry.Size < 0
}

// wrote notes that a block was written. first is false if it was before. scattered reports that the
// entry's blocks come too scattered to remember.
func (e *receiving) wrote(block int64, node digest.Node) (first, scattered bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leaveLocked(block)
	if first = e.tree.Add(block, node); first && e.delta != nil {
		e.delta.wrote(block)
	}
	e.done.Add(block)
	return first, e.done.Fragments() > maxRuns
}

// finish takes the end of the entry: its size, its digest, and which blocks have no data. partErr
// is an error of the partial file; it fails the entry only.
func (e *receiving) finish(m *wire.EndEntry) (partErr, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	blocks := blocksOf(m.Size, e.entry.BlockLog)
	if err := e.checkEndLocked(m, blocks); err != nil || e.resolved {
		return nil, err
	}
	for _, x := range m.Holes {
		if err := e.part.Skip(x.Start, x.Count); err != nil {
			return err, nil
		}
		missing := blockset.Of([]wire.Extent{x})
		written := e.done.Within(x.Start, x.Count)
		for have := range written.All() {
			missing.RemoveRun(have.Start, have.Count)
		}
		for run := range missing.All() {
			e.tree.AddRun(run.Start, run.Count, holeNode)
			e.empty.AddRun(run.Start, run.Count)
		}
	}
	e.done = e.done.Union(e.empty)
	e.blocks, e.size, e.digest, e.digested = blocks, m.Size, m.Digest, true
	return nil, nil
}

// checkEndLocked compares the end of an entry with what is known of it.
func (e *receiving) checkEndLocked(m *wire.EndEntry, blocks int64) error {
	known := e.entry.Size >= 0
	log := e.entry.BlockLog
	switch {
	case e.entry.Kind != wire.File || e.smallLocked() || e.hashing || e.early:
		return protocolError("entry %d has no end", m.Index)
	case e.digested:
		return protocolError("entry %d ends twice", m.Index)
	case known && m.Size != e.entry.Size:
		return protocolError("entry %d ends with another size", m.Index)
	case !known && e.short >= 0 && (e.short != blocks-1 || e.shortLen != lengthOf(m.Size, log, e.short)):
		return protocolError("entry %d ends with another size", m.Index)
	case e.done.End() > blocks:
		return protocolError("entry %d ends before its last block", m.Index)
	case len(m.Holes) == 0:
		return nil
	}
	last := m.Holes[len(m.Holes)-1]
	outside := e.isRange() && (m.Holes[0].Start < e.span.Start || last.Start+last.Count > e.span.End())
	if !e.entry.Holes || len(m.Holes) > 2*maxHoles || last.Start+last.Count > blocks || outside {
		return protocolError("entry %d has no such holes", m.Index)
	}
	return nil
}

// complete is resolve for a file of several blocks. It returns false before all of it is there.
func (e *receiving) complete() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.blocks
	if e.isRange() {
		all = e.span.Count
	}
	if e.resolved || e.checking || !e.digested || e.tree.Count() != all {
		return false
	}
	e.resolved = true
	return true
}

// matches reports whether a complete file has the digest and the size that the sender has sent, or a
// range its digest.
func (e *receiving) matches() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.isRange() {
		top, whole := e.tree.Subtree(e.span.Start, e.span.Count)
		return whole && top == e.digest
	}
	root, whole := e.tree.Root(e.blocks)
	if e.entry.Size < 0 { // the last block of a stream must be as long as the size says
		last := int(e.size & (1<<e.entry.BlockLog - 1))
		full := last == 0 && e.short < 0
		whole = whole && (full || last > 0 && e.short == e.blocks-1 && e.shortLen == last)
	}
	return whole && root == e.digest
}

// resolveWhole is resolve for a file that came whole, with its digest.
func (e *receiving) resolveWhole(digest [32]byte) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.resolved {
		return false
	}
	e.resolved, e.digest, e.digested = true, digest, true
	return true
}

// marked returns the blocks that were written.
func (e *receiving) marked() blockset.Set {
	e.mu.Lock()
	defer e.mu.Unlock()
	marked := e.done.Clone()
	for run := range e.empty.All() {
		marked.RemoveRun(run.Start, run.Count)
	}
	return marked
}

// addNode takes the node of a block that was read from the partial file.
func (e *receiving) addNode(block int64, node digest.Node) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tree.Add(block, node)
}

// endCheck ends the recheck of the blocks of an earlier run. bad are to come again.
func (e *receiving) endCheck(bad blockset.Set) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for run := range bad.All() {
		e.done.RemoveRun(run.Start, run.Count)
	}
	e.checking = false
}

// offer notes that a block of the old version is offered. It returns true if the block is written
// already, and is passed over.
func (e *receiving) offer(block int64) (written bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	written = e.done.Has(block)
	e.delta.offer(block, written)
	return written
}

// writtenPrefix is how many bytes are written from the beginning on without a gap.
func (e *receiving) writtenPrefix() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.done.Prefix() << e.entry.BlockLog
}
