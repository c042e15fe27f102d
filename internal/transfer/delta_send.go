package transfer

import (
	"errors"
	"io"
	"slices"

	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/wire"
	"lukechampine.com/blake3/guts"
)

// deltaSend is what the sender knows of an entry's old version. Fields below old are guarded by Sender.mu.
type deltaSend struct {
	how     wire.Delta
	old     int64 // size, bytes
	in      []wire.Message
	patches map[int64]*patch // of blocks that are released and not written

	compared bool // all blocks are released
}

// patch is how a block is sent.
type patch struct {
	stretches []stretch
	fresh     int64      // bytes that are new
	node      *guts.Node // of a block that is all old, and is not read again
}

// heldByDigests is about what a message of digests takes.
func heldByDigests(m wire.Message) int {
	switch m := m.(type) {
	case *wire.Pieces:
		return 64 + 8*len(m.Digests)
	case *wire.Chunks:
		return 64 + 16*len(m.Chunks)
	}
	return 64
}

// useOld begins a delta: blocks are released as they are compared with the old version.
func (s *Sender) useOld(e *sending, a *wire.Answer) (extents, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	have := extents(a.Have)
	switch n := len(have); {
	case e.answered || e.item.Entry.Kind != wire.File || e.item.Open == nil || e.blocks < 2:
		return nil, 0, wire.Errorf(wire.CodeProtocol, "entry %d takes no delta", e.index)
	case n > 0 && have[n-1].Start+have[n-1].Count > e.blocks:
		return nil, 0, wire.Errorf(wire.CodeProtocol, "entry %d has no such blocks", e.index)
	}
	s.answered, e.answered = true, true
	todo := extents{{Start: e.offered, Count: e.blocks - e.offered}} // the others are on their way
	if e.offered == e.blocks {
		todo = nil
	}
	for _, x := range have {
		e.todo.remove(x.Start, x.Count)
		todo.remove(x.Start, x.Count)
	}
	e.offered = e.blocks
	e.delta = &deltaSend{how: a.Delta, old: a.Old, patches: make(map[int64]*patch)}
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		d := differ{s: s, e: e, d: e.delta, todo: todo}
		d.run()
	}()
	bytes := bytesOf(have, e.size, e.item.Entry.BlockLog)
	s.stats.Resumed += bytes
	return have, bytes, nil
}

// digests queues digests of an entry's old version.
func (s *Sender) digests(index uint64, m wire.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[index]
	if e == nil || e.resolved {
		return nil
	}
	if e.delta == nil {
		return wire.Errorf(wire.CodeProtocol, "entry %d has no old version", index)
	}
	if s.digestsHeld += heldByDigests(m); s.digestsHeld > deltaQueue {
		return wire.Errorf(wire.CodeProtocol, "more digests than allowed")
	}
	e.delta.in = append(e.delta.in, m)
	s.cond.Broadcast()
	return nil
}

// differ compares an entry with its old version.
type differ struct {
	s    *Sender
	e    *sending
	d    *deltaSend
	todo extents // blocks that are not released
	buf  []byte
	hash digest.Hasher
}

var (
	errDeltaOver = errors.New("the entry is over")
	errHostile   = errors.New("digests out of order")
)

func (d *differ) run() {
	e, s := d.e, d.s
	d.buf = make([]byte, 1<<e.item.Entry.BlockLog)
	how, err := d.d.how, error(nil)
	if how == wire.DeltaAuto {
		how, err = d.sample()
	}
	if how == wire.DeltaChunks && e.item.Entry.Holes {
		how = wire.DeltaNone // chunks run through the holes
	}
	if err == nil {
		s.ctrl.send(&wire.Pick{Index: e.index, Delta: how})
		switch how {
		case wire.DeltaFixed:
			err = d.fixed()
		case wire.DeltaChunks:
			err = d.chunks()
		case wire.DeltaNone, wire.DeltaAuto:
		}
	}
	switch {
	case errors.Is(err, errDeltaOver):
	case errors.Is(err, errHostile):
		s.end(wire.Errorf(wire.CodeProtocol, "entry %d: %v", e.index, err))
	case err != nil:
		s.sourceFailed(e, err)
	default:
		d.releaseAll(d.todo)
	}
	s.mu.Lock()
	d.d.compared = true
	for _, m := range d.d.in {
		s.digestsHeld -= heldByDigests(m)
	}
	d.d.in = nil
	s.mu.Unlock()
}

func (s *Sender) deltaOverLocked(e *sending) bool { return s.over || e.resolved || e.changed }

// next waits for the next message of digests.
func (d *differ) next() (wire.Message, error) {
	s := d.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(d.d.in) == 0 && !s.deltaOverLocked(d.e) {
		s.cond.Wait()
	}
	if s.deltaOverLocked(d.e) {
		return nil, errDeltaOver
	}
	m := d.d.in[0]
	d.d.in = d.d.in[1:]
	s.digestsHeld -= heldByDigests(m)
	return m, nil
}

// release lets a block be sent, as a patch if that is worth it, once there is room for that.
func (d *differ) release(block int64, stretches []stretch, node *guts.Node) error {
	s, e := d.s, d.e
	var p *patch
	if size, fresh := patchSize(stretches); len(stretches) > 0 && size < d.length(block)-d.length(block)/patchLeast {
		p = &patch{slices.Clone(stretches), fresh, node}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(d.d.patches) >= deltaWindow && !s.deltaOverLocked(e) {
		s.cond.Wait()
	}
	if s.deltaOverLocked(e) {
		return errDeltaOver
	}
	d.todo.remove(block, 1)
	if p != nil {
		d.d.patches[block] = p
	}
	e.todo.add(block, 1)
	s.offered++
	s.queueLocked(e)
	return nil
}

// releaseAll lets blocks be sent as they are.
func (d *differ) releaseAll(x extents) {
	s, e := d.s, d.e
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deltaOverLocked(e) {
		return
	}
	for _, run := range x {
		e.todo.add(run.Start, run.Count)
		s.offered += run.Count
	}
	s.queueLocked(e)
}

func (d *differ) length(block int64) int64 {
	return int64(lengthOf(d.e.size, d.e.item.Entry.BlockLog, block))
}

// read reads a block and digests it.
func (d *differ) read(block int64) ([]byte, guts.Node, error) {
	data := d.buf[:d.length(block)]
	d.hash.Reset(block << d.e.item.Entry.BlockLog)
	if _, err := d.s.read(nil, d.e, block, data, &d.hash); err != nil {
		return nil, guts.Node{}, err
	}
	return data, d.hash.Sum(), nil
}

// sample finds out, from pieces of some blocks, whether the two files have much in the same places.
func (d *differ) sample() (wire.Delta, error) {
	log := d.e.item.Entry.BlockLog
	var same, all int64
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
		if block >= d.e.blocks {
			continue
		}
		data, _, err := d.read(block)
		if err != nil {
			return 0, err
		}
		for _, x := range d.pieces(p, data) {
			if all += x.n; x.old >= 0 {
				same += x.n
			}
		}
	}
	if all > 0 && same*100 >= all*sampleFixed {
		return wire.DeltaFixed, nil
	}
	return wire.DeltaChunks, nil
}

// pieces compares a block with the pieces of the old file in the same place.
func (d *differ) pieces(p *wire.Pieces, data []byte) (all []stretch) {
	for at := int64(0); at < int64(len(data)); at += pieceSize {
		n := min(pieceSize, int64(len(data))-at)
		old := int64(noOldStretch)
		if i := at / pieceSize; i < int64(len(p.Digests)) && min(pieceSize, d.d.old-p.Start-at) == n && p.Digests[i] == shortDigest(data[at:at+n]) {
			old = p.Start + at
		}
		all = appendStretch(all, old, n)
	}
	return all
}

// fixed compares each block, and of those that differ the pieces.
func (d *differ) fixed() error {
	log := d.e.item.Entry.BlockLog
	beyond := d.todo.within(blocksOf(d.d.old, log), d.e.blocks)
	for _, x := range beyond {
		d.todo.remove(x.Start, x.Count)
	}
	d.releaseAll(beyond)
	var asked extents
	for len(d.todo) > 0 {
		m, err := d.next()
		if err != nil {
			return err
		}
		p, ok := m.(*wire.Pieces)
		if !ok || p.Start >= d.d.old {
			return errHostile
		}
		if p.Log != log {
			block := p.Start >> log
			if p.Log != wire.PieceLog || p.Start&(1<<log-1) != 0 || !asked.has(block) {
				return errHostile
			}
			asked.remove(block, 1)
			data, _, err := d.read(block)
			if err != nil {
				return err
			}
			if err := d.release(block, d.pieces(p, data), nil); err != nil {
				return err
			}
			continue
		}
		more, err := d.blocks(p)
		if err != nil {
			return err
		}
		for _, x := range more {
			asked.add(x.Start, x.Count)
		}
		if len(more) > 0 {
			d.s.ctrl.send(&wire.Ask{Index: d.e.index, Blocks: more})
		}
	}
	return nil
}

// blocks releases the blocks that are as in the old file, and returns the others.
func (d *differ) blocks(p *wire.Pieces) (differ extents, err error) {
	log := d.e.item.Entry.BlockLog
	var empty extents
	defer func() {
		if len(empty) > 0 { // the receiver waits for them in vain
			d.s.ctrl.send(&wire.Empty{Index: d.e.index, Blocks: empty})
		}
	}()
	for i, want := range p.Digests {
		block := p.Start>>log + int64(i)
		if !d.todo.has(block) {
			continue
		}
		start := block << log
		if d.d.old-start < d.length(block) { // the old file ends in it
			differ.add(block, 1)
			continue
		}
		if d.e.item.Entry.Holes { // a hole is not sent anyway
			hole, err := d.hole(block)
			if err != nil {
				return nil, err
			}
			if hole {
				if err := d.release(block, nil, nil); err != nil {
					return nil, err
				}
				empty.add(block, 1)
				continue
			}
		}
		_, node, err := d.read(block)
		if err != nil {
			return nil, err
		}
		if shortNode(&node) != want {
			differ.add(block, 1)
			continue
		}
		if err := d.release(block, []stretch{{start, d.length(block)}}, &node); err != nil {
			return nil, err
		}
	}
	return differ, nil
}

// hole tells whether a block has no data.
func (d *differ) hole(block int64) (bool, error) {
	f, err := d.e.acquire()
	if err != nil {
		return false, err
	}
	defer d.e.release()
	sparse, ok := f.(sparseFile)
	if !ok {
		return false, nil
	}
	data, err := sparse.Data(block<<d.e.item.Entry.BlockLog, d.length(block))
	return err == nil && len(data) == 0, err
}

// oldChunk is a chunk of the old file.
type oldChunk struct {
	start  int64
	length int32
}

// chunks looks for the chunks of the old file in the new one.
func (d *differ) chunks() error {
	e := d.e
	f, err := e.acquire()
	if err != nil {
		return err
	}
	defer e.release()
	// Chunks are those of the old file's size, as the receiver cuts them.
	cutter, err := newChunked(io.NewSectionReader(f, 0, e.size), d.d.old)
	if err != nil {
		return err
	}
	known := oldChunks{byDigest: make(map[wire.ShortDigest]oldChunk)}
	log := e.item.Entry.BlockLog
	var at, found, gave int64
	var stretches []stretch
	for {
		chunk, err := cutter.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := d.learn(&known, at+chunkAhead); err != nil {
			return err
		}
		n := int64(len(chunk))
		old, ok := known.byDigest[shortDigest(chunk)]
		ok = ok && int64(old.length) == n
		for done := int64(0); done < n; {
			block := at >> log
			part := min(n-done, (block+1)<<log-at)
			from := int64(noOldStretch)
			if ok {
				from = old.start + done
				found += part
			}
			stretches = appendStretch(stretches, from, part)
			at, done = at+part, done+part
			if at&(1<<log-1) == 0 || at == e.size {
				if err := d.finishBlock(block, stretches); err != nil {
					return err
				}
				stretches = stretches[:0]
			}
		}
		if gave += n; d.d.how == wire.DeltaAuto && gave >= giveUpAfter && found < gave/giveUpBelow {
			d.s.ctrl.send(&wire.Pick{Index: e.index, Delta: wire.DeltaNone})
			return nil
		}
	}
	if at != e.size {
		return errShort
	}
	return nil
}

// finishBlock releases a block that is to be sent.
func (d *differ) finishBlock(block int64, stretches []stretch) error {
	if !d.todo.has(block) {
		return nil
	}
	return d.release(block, stretches, nil)
}

// oldChunks are the chunks of the old file that are known, at most chunkWindow of them.
type oldChunks struct {
	byDigest map[wire.ShortDigest]oldChunk
	order    []wire.ShortDigest
	end      int64 // of what is known
	whole    bool  // there are no more
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
