package transfer

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fxfer/fxfer/internal/blockset"
	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

// sending is an entry that the sender has announced and that is not resolved. The manifest numbers
// it, claims hand out its blocks, and carriers digest them.
//
// There are thousands at a time, most of them of small files. So what those do not need is made
// where it is needed: see source and hashesLocked. TestSizeOfEntries bounds the rest.
type sending struct {
	index  uint64 // set by the manifest before anybody else knows the entry, as are the others here
	item   Item   // Entry.Xattrs is nil once the entry was announced
	counts *counters
	tries  int   // how often it changed before
	held   int   // bytes of names and attributes
	fixed  int64 // number of blocks; 0 for a stream

	file atomic.Pointer[sourceFile] // nil until somebody reads it, otherwise than as a whole

	// closed is set once nothing more of the entry is to be sent or said: it is resolved, or it
	// changed and will be announced again.
	closed atomic.Bool

	// The receiver needs the entry; it has asked for a comparison. Only the pump's reader uses them.
	answered, comparing bool

	resolved, changed bool // guarded by manifest.mu

	claims blockClaims // guarded by claims.mu

	mu     sync.Mutex // guards the following; held before claims.mu where both are
	blocks int64      // number of blocks to read; for a stream that has not ended, of those read so far
	size   int64      // bytes; final once ended
	hashes *hashes    // of blocks; nil until one is digested
	digest [32]byte   // of a small file that was read
	read   bool       // it was read
	ended  bool
	told   bool // EndEntry was sent
}

// hashes are the digests of an entry's blocks.
type hashes struct {
	tree  digest.Tree
	full  digest.Tree  // as tree, with the digests of holes; empty where nobody compares it
	holes blockset.Set // blocks without data
}

// hashesLocked returns the digests of the entry's blocks, to read or add some.
func (e *sending) hashesLocked() *hashes {
	if e.hashes == nil {
		e.hashes = new(hashes)
	}
	return e.hashes
}

// blockClaims are the blocks of one entry that can be claimed, or are in flight. claims.mu guards
// it.
type blockClaims struct {
	offered int64            // blocks 0 to offered may be claimed, or were
	queued  bool             // in claims.large or claims.small
	todo    blockset.Set     // to be claimed
	sent    blockset.Set     // claimed at least once
	flying  flights          // claimed and not acknowledged
	place   int              // in traffic.entries, while flying is not empty
	kept    map[int64][]byte // a stream's blocks until they are acknowledged; nil for a file
	delta   *deltaSend       // nil without an old version
}

// newSending returns an entry that is prepared for the manifest.
func newSending(item *Item, tries int) *sending {
	e := new(sending)
	e.begin(item, tries)
	return e
}

// begin prepares an entry that nobody else has for the manifest.
func (e *sending) begin(item *Item, tries int) {
	*e = sending{item: *item, tries: tries, held: heldBy(&item.Entry), size: item.Entry.Size}
}

// measure sets what follows from the entry's kind and size.
func (e *sending) measure(counts *counters) {
	x := &e.item.Entry
	e.counts = counts
	switch {
	case x.Kind != wire.File:
	case e.item.Stream != nil:
		e.claims.kept = make(map[int64][]byte)
	default:
		e.fixed = blocksOf(x.Size, x.BlockLog)
		e.blocks, e.ended = e.fixed, true
		if e.item.part() != nil {
			e.blocks = e.span().Count
		}
	}
}

// source returns the entry's file, which is opened when it is first read.
func (e *sending) source() *sourceFile {
	if f := e.file.Load(); f != nil {
		return f
	}
	f := &sourceFile{
		content: e.item.Content, counts: e.counts, holes: e.item.Entry.Holes, single: e.fixed == 1,
	}
	if !e.file.CompareAndSwap(nil, f) {
		return e.file.Load()
	}
	if e.closed.Load() { // whoever closed the entry may have found no file to close
		f.close()
	}
	return f
}

// small reports whether the entry is a file of one block at most, which travels whole, with its
// digest.
func (e *sending) small() bool {
	return e.item.Entry.Kind == wire.File && e.item.Stream == nil && e.fixed <= 1
}

// canRefresh reports whether the entry can be announced again as it is now.
func (e *sending) canRefresh() bool {
	_, ok := e.item.Content.(refresher)
	return ok
}

// offset is where a block begins in the file.
func (e *sending) offset(block int64) int64 { return block << e.item.Entry.BlockLog }

// length is the length of a block of a file.
func (e *sending) length(block int64) int {
	return lengthOf(e.item.Entry.Size, e.item.Entry.BlockLog, block)
}

// readBlock fills room with a block and digests it. See sourceFile.read.
func (e *sending) readBlock(
	lap *lap, block int64, room []byte, hash *digest.Hasher,
) ([]byte, []disk.Range, error) {
	payload := room[:e.length(block)]
	hash.Reset(e.offset(block))
	data, err := e.source().read(lap, e.offset(block), payload, hash)
	return payload, data, err
}

// addNode takes the node of a block, and reports whether all blocks are digested now.
func (e *sending) addNode(block int64, n digest.Node) (whole bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.hashesLocked()
	h.tree.Add(block, n)
	if e.item.Compare != nil && e.item.Entry.Holes {
		h.full.Add(block, n)
	}
	return e.wholeLocked()
}

// whole reports whether all blocks are digested.
func (e *sending) whole() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.wholeLocked()
}

func (e *sending) wholeLocked() bool { return e.ended && e.hashesLocked().tree.Count() == e.blocks }

// hasNode reports whether a block is digested.
func (e *sending) hasNode(block int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hashesLocked().tree.Has(block)
}

// setDigest takes the digest of a small file.
func (e *sending) setDigest(d [32]byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.digest, e.read = d, true
}

// grow counts a block that was read from a stream.
func (e *sending) grow() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.blocks++
}

// finish sets the size of a stream that has ended.
func (e *sending) finish(size int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.size, e.ended = size, true
}

// end returns the message that ends the entry, once: nil before all blocks are digested, and later.
func (e *sending) end() *wire.EndEntry {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.told || e.closed.Load() || !e.ended || e.item.Early {
		return nil
	}
	h := e.hashesLocked()
	root, whole := h.tree.Root(e.blocks)
	if e.item.part() != nil {
		root, whole = h.tree.Subtree(e.span().Start, e.blocks)
	}
	if !whole {
		return nil
	}
	e.told = true
	return &wire.EndEntry{
		Index: e.index, Size: e.size, Digest: root, Holes: blockset.Runs[wire.Extent](h.holes),
	}
}

// sentWhole returns the digest of an entry that the receiver may have placed by now; zero for a
// file with holes, or of which others send the rest.
func (e *sending) sentWhole() (d [32]byte, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.item.part() != nil:
		return d, true
	case e.item.Entry.Kind != wire.File || !e.ended:
		return d, false
	case e.small() && e.blocks == 0:
		return digest.Empty(), true
	case e.small():
		return e.digest, e.read
	}
	h := e.hashesLocked()
	if d, ok = h.tree.Root(e.blocks); !h.holes.Empty() {
		d = [32]byte{}
	}
	return d, ok && e.told
}

// compare compares what was read, which m ends, with the file's digest, if that is known. That takes
// the digests of holes.
func (e *sending) compare(m *wire.EndEntry) error {
	if e.item.Compare == nil || len(m.Holes) == 0 {
		return e.item.compare(m.Digest)
	}
	zeros := make([]byte, 1<<e.item.Entry.BlockLog)
	var hash digest.Hasher
	for _, hole := range m.Holes {
		for block := hole.Start; block < hole.Start+hole.Count; block++ {
			if e.closed.Load() {
				return nil
			}
			hash.Reset(e.offset(block))
			hash.Write(zeros[:e.length(block)])
			e.addFull(block, hash.Sum())
		}
	}
	e.mu.Lock()
	root, _ := e.hashesLocked().full.Root(e.blocks)
	e.mu.Unlock()
	return e.item.Compare(root)
}

func (e *sending) addFull(block int64, n digest.Node) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hashesLocked().full.Add(block, n)
}

// holeNode stands in the tree of digests for a block without data. To digest the zeros would take
// as long as to digest data.
var holeNode digest.Node

// skipHole reports whether a block has no data. Then that block, and those behind it that have none
// and are not claimed, are not sent.
func (e *sending) skipHole(c *claims, block int64) (bool, error) {
	size := e.item.Entry.Size
	data, err := e.source().dataFrom(e.offset(block), size)
	if err != nil {
		return false, err
	}
	last := data >> e.item.Entry.BlockLog // the block of the first data
	if data >= size {
		last = e.fixed
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.hashesLocked()
	switch {
	case last <= block || h.holes.Fragments() >= maxHoles:
		return false, nil
	case h.holes.Has(block):
		return true, nil
	case h.tree.Has(block):
		return false, fmt.Errorf("%w: it has a hole where data was", disk.ErrChanged)
	}
	hole := c.takeHole(e, block, last)
	for run := range hole.All() {
		h.tree.AddRun(run.Start, run.Count, holeNode)
		h.holes.AddRun(run.Start, run.Count)
	}
	return true, nil
}
