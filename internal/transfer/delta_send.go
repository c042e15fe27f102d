package transfer

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fxfer/fxfer/internal/blockset"
	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/wire"
)

// deltaSend is what the sender knows of an entry's old version.
type deltaSend struct {
	how wire.Delta
	old int64 // size, bytes

	mu       sync.Mutex       // guards the following; claims.mu may be held before it
	cond     *sync.Cond       // a differ waits here
	in       []wire.Message   // digests that wait
	patches  map[int64]*patch // of blocks that are released and not written
	compared bool             // all blocks are released
	noRoom   bool             // there was no memory for digests: the differ ends
}

func newDeltaSend(how wire.Delta, old int64) *deltaSend {
	d := &deltaSend{how: how, old: old, patches: make(map[int64]*patch)}
	d.cond = sync.NewCond(&d.mu)
	return d
}

// patchOf returns how a block is sent, nil for whole.
func (d *deltaSend) patchOf(block int64) *patch {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.patches[block]
}

// forget drops the patches of blocks that are written, or that are to be sent whole.
func (d *deltaSend) forget(start, count int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if count == 1 {
		delete(d.patches, start)
	} else {
		maps.DeleteFunc(d.patches, func(b int64, _ *patch) bool { return b >= start && b < start+count })
	}
	d.cond.Broadcast()
}

// wake makes the differ look whether its entry is over.
func (d *deltaSend) wake() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cond.Broadcast()
}

func (d *deltaSend) isCompared() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.compared
}

// queue takes digests in, unless nobody needs them any more. Without room for them, none are needed.
func (d *deltaSend) queue(m wire.Message, room func() bool) (taken bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.compared || d.noRoom:
		return false
	case !room():
		d.noRoom = true
	default:
		d.in = append(d.in, m)
	}
	d.cond.Broadcast()
	return !d.noRoom
}

// finish notes that all blocks are released, and returns the digests that were not used.
func (d *deltaSend) finish() (unused []wire.Message) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.compared = true
	unused, d.in = d.in, nil
	return unused
}

// patch is how a block is sent.
type patch struct {
	stretches []stretch
	fresh     int64        // bytes that are new
	node      *digest.Node // of a block that the old file has as it is, and that is not read again
}

// deltas looks for what entries have in common with their old versions.
type deltas struct {
	side   *side
	claims *claims
	memory *Account     // for digests that wait and for differs, with other sessions; nil for no bound
	held   atomic.Int64 // memory of the digests that wait
}

// errNoRoom ends a differ for which there is no memory: the rest of its file is sent whole.
var errNoRoom = errors.New("no memory for a delta")

// give notes that a message of digests is gone.
func (ds *deltas) give(m wire.Message) {
	n := heldByDigests(m)
	ds.held.Add(-n)
	ds.memory.Give(n)
}

// differEvents hears how a differ ends early. Sender implements it.
type differEvents interface {
	readFailed(*sending, error)
	end(error)
}

// start compares an entry with its old version in the background. todo are the blocks to release.
func (ds *deltas) start(e *sending, d *deltaSend, todo blockset.Set, events differEvents) {
	ds.side.running.Go(func() {
		defer context.AfterFunc(ds.side.ctx, d.wake)()
		x := differ{all: ds, e: e, d: d, todo: todo}
		err := x.run()
		switch {
		case errors.Is(err, errDeltaOver):
		case errors.Is(err, errNoRoom):
			x.send(&wire.Pick{Index: e.index, Delta: wire.DeltaNone})
			x.releaseAll(x.todo)
		case errors.Is(err, errHostile):
			events.end(protocolError("entry %d: %v", e.index, err))
		case err != nil:
			events.readFailed(e, err)
		default:
			x.releaseAll(x.todo)
		}
		for _, m := range d.finish() {
			ds.give(m)
		}
		ds.memory.Give(x.memory)
	})
}

// digests takes digests of an entry's old version in. e is nil if it is resolved. Only the pump's
// reader calls it, which is also the only one to set e.claims.delta.
func (ds *deltas) digests(e *sending, m wire.Message) error {
	if e == nil {
		return nil
	}
	if e.claims.delta == nil {
		return protocolError("entry %d has no old version", e.index)
	}
	n := heldByDigests(m)
	if ds.held.Add(n) > deltaQueue {
		return protocolError("more digests than allowed")
	}
	if !e.claims.delta.queue(m, func() bool { return ds.memory.TryTake(n) }) {
		ds.held.Add(-n)
	}
	return nil
}

// heldByDigests estimates the memory of a message of digests, bytes.
func heldByDigests(m wire.Message) int64 {
	switch m := m.(type) {
	case *wire.Pieces:
		return int64(64 + 8*len(m.Digests))
	case *wire.Chunks:
		return int64(64 + 16*len(m.Chunks))
	}
	return 64
}

var (
	errDeltaOver = errors.New("the entry is over")
	errHostile   = errors.New("digests out of order")
)

// differ compares an entry with its old version, and releases its blocks to be sent.
type differ struct {
	all  *deltas
	e    *sending
	d    *deltaSend
	todo blockset.Set // blocks that are not released
	buf  []byte       // nil before the first digests
	hash digest.Hasher

	memory int64 // taken for it
}

// begin takes the memory that the differ needs: for a block, the chunks that it knows, and patches. The
// receiver digests few files at a time, so of many entries that wait for digests few have a buffer.
func (d *differ) begin() error {
	block := int64(1) << d.e.item.Entry.BlockLog
	chunks := min(chunkWindow, d.d.old/int64(chunkSize(d.d.old))+1)
	need := block + chunkBuffers*int64(chunkSize(d.d.old)) + chunkMemory*chunks +
		min(deltaWindow, d.e.fixed)*stretchMemory*(block/pieceSize)
	if !d.all.memory.TryTake(need) {
		return errNoRoom
	}
	d.memory, d.buf = need, make([]byte, block)
	return nil
}

func (d *differ) run() error {
	how := d.d.how
	if how == wire.DeltaAuto {
		var err error
		if how, err = d.sample(); err != nil {
			return err
		}
	}
	if how == wire.DeltaChunks && d.e.item.Entry.Holes {
		how = wire.DeltaNone // chunks run through the holes
	}
	d.send(&wire.Pick{Index: d.e.index, Delta: how})
	switch how {
	case wire.DeltaFixed:
		return d.fixed()
	case wire.DeltaChunks:
		return d.chunks()
	case wire.DeltaNone, wire.DeltaAuto:
	}
	return nil
}

func (d *differ) send(m wire.Message) { d.all.side.pump.send(m) }

// over reports whether the session or the entry is over.
func (d *differ) over() bool { return d.all.side.over() || d.e.closed.Load() }

// next waits for the next message of digests.
func (d *differ) next() (wire.Message, error) {
	d.d.mu.Lock()
	defer d.d.mu.Unlock()
	for len(d.d.in) == 0 && !d.over() && !d.d.noRoom {
		d.d.cond.Wait()
	}
	switch {
	case d.over():
		return nil, errDeltaOver
	case d.d.noRoom:
		return nil, errNoRoom
	case d.buf == nil:
		if err := d.begin(); err != nil {
			return nil, err
		}
	}
	m := d.d.in[0]
	d.d.in = d.d.in[1:]
	d.all.give(m)
	return m, nil
}

// release lets a block be sent, as a patch if that pays. It waits while too many patches are not
// written.
func (d *differ) release(block int64, stretches []stretch, node *digest.Node) error {
	var p *patch
	whole := int64(d.e.length(block))
	if size, fresh := patchSize(stretches); len(stretches) > 0 && size < whole-whole/patchLeast {
		p = &patch{slices.Clone(stretches), fresh, node}
	}
	if err := d.addPatch(block, p); err != nil {
		return err
	}
	d.todo.Remove(block)
	d.all.claims.release(d.e, block, 1)
	return nil
}

// addPatch waits for room, and takes the patch of a block in, if it has one.
func (d *differ) addPatch(block int64, p *patch) error {
	d.d.mu.Lock()
	defer d.d.mu.Unlock()
	for len(d.d.patches) >= deltaWindow && !d.over() {
		d.d.cond.Wait()
	}
	if d.over() {
		return errDeltaOver
	}
	if p != nil {
		d.d.patches[block] = p
	}
	return nil
}

// releaseAll lets blocks be sent as they are.
func (d *differ) releaseAll(blocks blockset.Set) {
	for run := range blocks.All() {
		d.all.claims.release(d.e, run.Start, run.Count)
	}
}

// read reads a block and digests it.
func (d *differ) read(block int64) ([]byte, digest.Node, error) {
	defer d.all.side.checking()()
	data, _, err := d.e.readBlock(nil, block, d.buf, &d.hash)
	if err != nil {
		return nil, digest.Node{}, err
	}
	return data, d.hash.Sum(), nil
}

// sample finds out from the pieces of some blocks whether the two files have much in the same
// places, up to the last block: after bytes that were inserted or removed, nothing is in its place.
func (d *differ) sample() (wire.Delta, error) {
	log := d.e.item.Entry.BlockLog
	var same, sameInLast, all int64
	for {
		m, err := d.next()
		if err != nil {
			return 0, err
		}
		p, ok := m.(*wire.Pieces)
		if !ok || p.Log != wire.PieceLog || p.Start&(1<<log-1) != 0 {
			return 0, errHostile
		}
		if len(p.Digests) == 0 {
			break
		}
		block := p.Start >> log
		if block >= d.e.fixed {
			continue
		}
		data, _, err := d.read(block)
		if err != nil {
			return 0, err
		}
		sameInLast = 0
		for _, x := range d.pieces(p, data) {
			if all += x.n; x.old >= 0 {
				sameInLast += x.n
			}
		}
		same += sameInLast
	}
	if sameInLast > 0 && same*100 >= all*sampleFixed {
		return wire.DeltaFixed, nil
	}
	return wire.DeltaChunks, nil
}

// pieces compares a block with the pieces of the old file in the same place.
func (d *differ) pieces(p *wire.Pieces, data []byte) (all []stretch) {
	for at := int64(0); at < int64(len(data)); at += pieceSize {
		n := min(pieceSize, int64(len(data))-at)
		old := int64(noOldStretch)
		if i := at / pieceSize; i < int64(len(p.Digests)) && min(pieceSize, d.d.old-p.Start-at) == n &&
			p.Digests[i] == shortDigest(data[at:at+n]) {
			old = p.Start + at
		}
		all = appendStretch(all, old, n)
	}
	return all
}

// fixed compares each block, and then the pieces of those that differ.
func (d *differ) fixed() error {
	log := d.e.item.Entry.BlockLog
	beyond := d.todo.Within(blocksOf(d.d.old, log), d.e.fixed)
	for run := range beyond.All() {
		d.todo.RemoveRun(run.Start, run.Count)
	}
	d.releaseAll(beyond)
	var asked blockset.Set
	for !d.todo.Empty() {
		m, err := d.next()
		if err != nil {
			return err
		}
		p, ok := m.(*wire.Pieces)
		if !ok || p.Start >= d.d.old {
			return errHostile
		}
		if p.Log == log {
			err = d.blocks(p, &asked)
		} else {
			err = d.askedPieces(p, &asked)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// askedPieces releases a block whose pieces were asked for.
func (d *differ) askedPieces(p *wire.Pieces, asked *blockset.Set) error {
	log := d.e.item.Entry.BlockLog
	block := p.Start >> log
	if p.Log != wire.PieceLog || p.Start&(1<<log-1) != 0 || !asked.Has(block) {
		return errHostile
	}
	asked.Remove(block)
	data, _, err := d.read(block)
	if err != nil {
		return err
	}
	return d.release(block, d.pieces(p, data), nil)
}

// blocks releases the blocks that are as in the old file, and asks for the pieces of the others.
func (d *differ) blocks(p *wire.Pieces, asked *blockset.Set) error {
	var differ, empty blockset.Set
	defer func() {
		if !empty.Empty() { // otherwise the receiver would wait for them
			d.send(&wire.Empty{Index: d.e.index, Blocks: blockset.Runs[wire.Extent](empty)})
		}
	}()
	for i, want := range p.Digests {
		block := p.Start>>d.e.item.Entry.BlockLog + int64(i)
		if !d.todo.Has(block) {
			continue
		}
		if err := d.block(block, want, &differ, &empty); err != nil {
			return err
		}
	}
	if differ.Empty() {
		return nil
	}
	for run := range differ.All() {
		asked.AddRun(run.Start, run.Count)
	}
	d.send(&wire.Ask{Index: d.e.index, Blocks: blockset.Runs[wire.Extent](differ)})
	return nil
}

// block releases a block if it is a hole, which it adds to empty, or if it is as in the old file.
// Otherwise it adds it to differ.
func (d *differ) block(block int64, want wire.ShortDigest, differ, empty *blockset.Set) error {
	start, length := d.e.offset(block), int64(d.e.length(block))
	if d.d.old-start < length { // the old file ends in it
		differ.Add(block)
		return nil
	}
	if d.e.item.Entry.Holes { // a hole is not sent anyway
		data, err := d.e.source().dataFrom(start, start+length)
		if err != nil {
			return err
		}
		if data == start+length {
			empty.Add(block)
			return d.release(block, nil, nil)
		}
		if want == noData { // all of it is new
			return d.release(block, nil, nil)
		}
	}
	_, node, err := d.read(block)
	if err != nil {
		return err
	}
	if shortNode(&node) != want {
		differ.Add(block)
		return nil
	}
	return d.release(block, []stretch{{start, length}}, &node)
}

// oldChunk is a chunk of the old file.
type oldChunk struct {
	start  int64
	length int32
}

// oldChunks are the chunks of the old file that are known, at most chunkWindow.
type oldChunks struct {
	byDigest map[wire.ShortDigest]oldChunk
	order    []wire.ShortDigest
	end      int64 // of the part that is known
	whole    bool  // there are no more
}

// find returns where the old file has a chunk; noOldStretch if it is not known.
func (k *oldChunks) find(chunk []byte) int64 {
	if old, ok := k.byDigest[shortDigest(chunk)]; ok && int(old.length) == len(chunk) {
		return old.start
	}
	return noOldStretch
}

// chunks looks for the chunks of the old file in the new one.
func (d *differ) chunks() error {
	e := d.e
	f, err := e.source().acquire()
	if err != nil {
		return err
	}
	defer e.source().release()
	known := oldChunks{byDigest: make(map[wire.ShortDigest]oldChunk)}
	if err := d.learn(&known, chunkAhead); err != nil {
		return err
	}
	// Chunk sizes follow the old file's size, as at the receiver.
	cutter, err := newChunked(io.NewSectionReader(f, 0, e.item.Entry.Size), d.d.old)
	if err != nil {
		return err
	}
	var found int64
	cut := blockCutter{d: d}
	for {
		chunk, err := cutter.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := d.learn(&known, cut.at+chunkAhead); err != nil {
			return err
		}
		old := known.find(chunk)
		if old >= 0 {
			found += int64(len(chunk))
		}
		if err := cut.add(old, int64(len(chunk))); err != nil {
			return err
		}
		if d.d.how == wire.DeltaAuto && cut.at >= giveUpAfter && found < cut.at/giveUpBelow {
			d.send(&wire.Pick{Index: e.index, Delta: wire.DeltaNone})
			return nil
		}
	}
	if cut.at != e.item.Entry.Size {
		return errShort
	}
	return nil
}

// blockCutter cuts stretches at the ends of blocks, and releases each block that is complete.
type blockCutter struct {
	d         *differ
	at        int64 // end of what was added
	stretches []stretch
}

// add adds n bytes that the old file has at old; noOldStretch if it does not have them.
func (c *blockCutter) add(old, n int64) error {
	e := c.d.e
	for n > 0 {
		block := c.at >> e.item.Entry.BlockLog
		part := min(n, e.offset(block+1)-c.at)
		c.stretches = appendStretch(c.stretches, old, part)
		c.at, n = c.at+part, n-part
		if old >= 0 {
			old += part
		}
		if c.at != e.offset(block+1) && c.at != e.item.Entry.Size {
			continue
		}
		if c.d.todo.Has(block) {
			if err := c.d.release(block, c.stretches, nil); err != nil {
				return err
			}
		}
		c.stretches = c.stretches[:0]
	}
	return nil
}

// learn takes digests in until the old file is known up to a place.
func (d *differ) learn(k *oldChunks, upTo int64) error {
	for !k.whole && k.end < upTo {
		m, err := d.next()
		if err != nil {
			return err
		}
		c, ok := m.(*wire.Chunks)
		if !ok || c.Start != k.end {
			return errHostile
		}
		k.whole = len(c.Chunks) == 0
		for _, x := range c.Chunks {
			if k.end+x.Length > d.d.old {
				return errHostile
			}
			k.byDigest[x.Digest] = oldChunk{k.end, int32(x.Length)}
			k.order = append(k.order, x.Digest)
			k.end += x.Length
		}
		for len(k.order) > chunkWindow {
			delete(k.byDigest, k.order[0])
			k.order = k.order[1:]
		}
	}
	return nil
}
