package transfer

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// offerBlocks and offerChunks are the digests of a message.
	offerBlocks = 16
	offerChunks = 1024
	// patchRejects bounds the blocks of an entry whose patches were wrong.
	patchRejects = 1 << 12
	// cloneFrom is the length from which a stretch is shared between files, in bytes, where the file system can.
	cloneFrom = 64 << 10
	cloneUnit = 4 << 10
)

// deltaReceive is an entry's old version. Fields below the first group are guarded by Receiver.mu.
type deltaReceive struct {
	old  *disk.Source
	size int64
	how  wire.Delta
	gone chan struct{} // closed when the entry is over
	over sync.Once
	wake chan struct{} // something changed

	picked  bool
	pick    wire.Delta
	asked   []wire.Extent
	next    int64 // block: those before it were offered
	ahead   int   // of these, not written
	rejects int
	shared  bool // some of the old file's content is also the new one's
	noClone bool
}

func (d *deltaReceive) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// openOld opens the old version of an entry, if there is one that is of use.
func (v *Receiver) openOld(e *receiving) *deltaReceive {
	how := v.opt.Target.Delta
	if how == wire.DeltaNone || !v.deltas || e.blocks < 2 || e.entry.Size < deltaFrom {
		return nil
	}
	trees := []*disk.Tree{v.tree}
	if s := v.opt.Snapshot; s != nil && s.Previous != nil {
		trees = []*disk.Tree{s.Previous, v.tree}
	}
	for _, tree := range trees {
		old, err := tree.OpenFile(e.meta.Path)
		if err != nil {
			continue
		}
		if size := old.Identity().Size; size >= oldFrom && size <= wire.MaxSize {
			return &deltaReceive{old: old, size: size, how: how, gone: make(chan struct{}), wake: make(chan struct{}, 1)}
		}
		_ = old.Close()
	}
	return nil
}

// pick learns which way the sender goes.
func (v *Receiver) pick(m *wire.Pick) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	e := v.active[m.Index]
	if e == nil || e.resolved {
		return nil
	}
	d := e.delta
	if d == nil || d.how != wire.DeltaAuto && m.Delta != d.how && m.Delta != wire.DeltaNone || d.picked && m.Delta != wire.DeltaNone {
		return protocolError("entry %d has no such choice", m.Index)
	}
	d.picked, d.pick = true, m.Delta
	d.poke()
	return nil
}

// ask learns for which blocks the sender wants the pieces.
func (v *Receiver) ask(m *wire.Ask) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	e := v.active[m.Index]
	if e == nil || e.resolved {
		return nil
	}
	d := e.delta
	if d == nil || !d.picked || d.pick != wire.DeltaFixed || len(d.asked)+len(m.Blocks) > 4*deltaWindow {
		return protocolError("entry %d has no such pieces", m.Index)
	}
	for _, x := range m.Blocks {
		if x.Start+x.Count > d.next || x.Count > deltaWindow {
			return protocolError("entry %d: pieces of a block that was not offered", m.Index)
		}
	}
	d.asked = append(d.asked, m.Blocks...)
	d.poke()
	return nil
}

// empty learns which of the offered blocks are not sent.
func (v *Receiver) empty(m *wire.Empty) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	e := v.active[m.Index]
	if e == nil || e.resolved {
		return nil
	}
	d := e.delta
	if d == nil || !e.entry.Holes {
		return protocolError("entry %d has no such blocks", m.Index)
	}
	for _, x := range m.Blocks {
		if x.Start+x.Count > d.next {
			return protocolError("entry %d: blocks that were not offered", m.Index)
		}
		d.ahead -= int(x.Count)
	}
	d.poke()
	return nil
}

// offer tells the sender what is in the old version, as fast as it makes use of it. The answer that there is one must be on its way.
func (v *Receiver) offer(e *receiving) {
	defer v.running.Done()
	d := e.delta
	select {
	case v.offering <- struct{}{}:
		defer func() { <-v.offering }()
	case <-d.gone:
		return
	case <-v.ctx.Done():
		return
	}
	o := offerer{v: v, e: e, d: d, buf: make([]byte, 1<<e.entry.BlockLog)}
	if err := o.run(); err != nil && !errors.Is(err, errDeltaOver) {
		v.fail(e, err)
	}
}

// offerer reads an old version.
type offerer struct {
	v    *Receiver
	e    *receiving
	d    *deltaReceive
	buf  []byte
	hash digest.Hasher
}

func (o *offerer) run() error {
	if o.d.how == wire.DeltaAuto {
		if err := o.sample(); err != nil {
			return err
		}
	}
	var how wire.Delta
	for picked := false; !picked; {
		o.v.mu.Lock()
		how, picked = o.d.pick, o.d.picked
		o.v.mu.Unlock()
		if !picked {
			if err := o.wait(); err != nil {
				return err
			}
		}
	}
	switch how {
	case wire.DeltaFixed:
		return o.fixed()
	case wire.DeltaChunks:
		return o.chunks()
	case wire.DeltaNone, wire.DeltaAuto:
	}
	return nil
}

// wait waits for something to change.
func (o *offerer) wait() error {
	select {
	case <-o.d.wake:
		return nil
	case <-o.d.gone:
	case <-o.v.ctx.Done():
	}
	return errDeltaOver
}

// block reads a block of the old file, or what there is of it.
func (o *offerer) block(block int64) ([]byte, error) {
	start := block << o.e.entry.BlockLog
	data := o.buf[:min(int64(len(o.buf)), o.d.size-start)]
	return data, readFull(o.d.old, data, start)
}

// pieces sends the digests of the pieces of a block.
func (o *offerer) pieces(block int64) error {
	data, err := o.block(block)
	if err != nil {
		return err
	}
	m := &wire.Pieces{Index: o.e.index, Start: block << o.e.entry.BlockLog, Log: wire.PieceLog}
	for ; len(data) > 0; data = data[min(pieceSize, len(data)):] {
		m.Digests = append(m.Digests, shortDigest(data[:min(pieceSize, len(data))]))
	}
	o.v.ctrl.send(m)
	return nil
}

// sample sends the pieces of some blocks.
func (o *offerer) sample() error {
	blocks := blocksOf(min(o.e.entry.Size, o.d.size), o.e.entry.BlockLog)
	last := int64(-1)
	for i := range int64(wire.SampleBlocks) {
		block := i * (blocks - 1) / (wire.SampleBlocks - 1)
		if block == last {
			continue
		}
		last = block
		if err := o.pieces(block); err != nil {
			return err
		}
	}
	o.v.ctrl.send(&wire.Pieces{Index: o.e.index, Log: wire.PieceLog})
	return nil
}

// fixed offers block after block, and the pieces that are asked for.
func (o *offerer) fixed() error {
	v, d, log := o.v, o.d, o.e.entry.BlockLog
	blocks := blocksOf(min(o.e.entry.Size, d.size), log)
	for {
		v.mu.Lock()
		asked := d.asked
		d.asked = nil
		from, room := d.next, d.next < blocks && d.ahead < deltaWindow
		v.mu.Unlock()
		for _, x := range asked {
			for b := x.Start; b < x.Start+x.Count; b++ {
				if err := o.pieces(b); err != nil {
					return err
				}
			}
		}
		switch {
		case room:
			if err := o.blocks(from, min(blocks, from+offerBlocks)); err != nil {
				return err
			}
		case len(asked) == 0:
			if err := o.wait(); err != nil {
				return err
			}
		}
	}
}

// blocks offers a range of blocks, but for those that are there from an earlier run.
func (o *offerer) blocks(from, to int64) error {
	v, d, log := o.v, o.d, o.e.entry.BlockLog
	var m *wire.Pieces
	flush := func() {
		if m != nil {
			v.mu.Lock()
			d.next = max(d.next, m.Start>>log+int64(len(m.Digests))) // before the sender can ask
			v.mu.Unlock()
			v.ctrl.send(m)
			m = nil
		}
	}
	for b := from; b < to; b++ {
		v.mu.Lock()
		done := o.e.done.has(b)
		if !done {
			d.ahead++
		}
		d.next = b + 1
		v.mu.Unlock()
		if done {
			flush()
			continue
		}
		data, err := o.block(b)
		if err != nil {
			return err
		}
		o.hash.Reset(b << log)
		o.hash.Write(data)
		node := o.hash.Sum()
		if m == nil {
			m = &wire.Pieces{Index: o.e.index, Start: b << log, Log: log}
		}
		m.Digests = append(m.Digests, shortNode(&node))
	}
	flush()
	return nil
}

// chunks offers the chunks of the old file.
func (o *offerer) chunks() error {
	v, d := o.v, o.d
	cutter, err := newChunked(io.NewSectionReader(d.old, 0, d.size), d.size)
	if err != nil {
		return err
	}
	window := int64(chunkSize(d.size)) * chunkWindow / 2
	var at int64
	for {
		m := &wire.Chunks{Index: o.e.index, Start: at}
		end := false
		for len(m.Chunks) < offerChunks {
			chunk, err := cutter.next()
			if end = errors.Is(err, io.EOF); end {
				break
			}
			if err != nil {
				return err
			}
			m.Chunks = append(m.Chunks, wire.Chunk{Length: int64(len(chunk)), Digest: shortDigest(chunk)})
			at += int64(len(chunk))
		}
		if len(m.Chunks) > 0 {
			v.ctrl.send(m)
		}
		if end {
			v.ctrl.send(&wire.Chunks{Index: o.e.index, Start: at})
			return nil
		}
		for ahead := true; ahead; {
			v.mu.Lock()
			done := int64(0)
			if x := o.e.done; len(x) > 0 && x[0].Start == 0 {
				done = x[0].Count << o.e.entry.BlockLog
			}
			none := d.pick == wire.DeltaNone
			v.mu.Unlock()
			if none {
				return nil
			}
			if ahead = at-done > window; ahead {
				if err := o.wait(); err != nil {
					return err
				}
			} else if o.over() {
				return errDeltaOver
			}
		}
	}
}

// over tells whether nobody needs digests any more.
func (o *offerer) over() bool {
	select {
	case <-o.d.gone:
	case <-o.v.ctx.Done():
	default:
		return false
	}
	return true
}

// closeOld ends the use of the old version, once.
func (e *receiving) closeOld() {
	if d := e.delta; d != nil {
		d.over.Do(func() {
			close(d.gone)
			_ = d.old.Close()
		})
	}
}

// wroteLocked notes that a block is written.
func (e *receiving) wroteLocked(block int64) {
	if d := e.delta; d != nil {
		if block < d.next {
			d.ahead--
		}
		d.poke()
	}
}

// patch makes a block of its patch. It returns errOld if the old file cannot be read.
func (in *inbox) patch(e *receiving, h *wire.BlockHeader, payload []byte) (block []byte, all []stretch, err error) {
	if in.block == nil {
		in.block = make([]byte, 1<<maxBlockLog)
	}
	block = in.block[:lengthOf(e.entry.Size, e.entry.BlockLog, h.Block)]
	all, fresh, err := parsePatch(payload, len(block), e.delta.size)
	if err != nil {
		return nil, nil, protocolError("block %d of entry %d: %v", h.Block, h.Index, err)
	}
	at := int64(0)
	for _, x := range all {
		if part := block[at : at+x.n]; x.old < 0 {
			fresh = fresh[copy(part, fresh):]
		} else if readFull(e.delta.old, part, x.old) != nil {
			return nil, nil, errOld
		}
		at += x.n
	}
	return block, all, nil
}

// errOld says that the old file is not what it was.
var errOld = errors.New("the old file cannot be read")

// rejectPatch asks for a block whole, whose patch did not give it.
func (v *Receiver) rejectPatch(e *receiving, block int64) {
	v.leave(e, block)
	v.mu.Lock()
	e.delta.rejects++
	v.stats.Rejected++
	many := e.delta.rejects > patchRejects
	v.mu.Unlock()
	if many {
		v.fail(e, wire.Errorf(wire.CodeIntegrity, "patches do not give the blocks they are of"))
		return
	}
	v.ctrl.send(&wire.Resend{Index: e.index, Blocks: []wire.Extent{{Start: block, Count: 1}}})
}

// writePatched writes a block that was made of a patch: what is long is shared with the old file where the file system can, and in a file
// with holes zeros are left out.
func (v *Receiver) writePatched(e *receiving, off int64, data []byte, all []stretch) error {
	for _, x := range all {
		part := data[:x.n]
		data = data[x.n:]
		if x.old >= 0 && x.n >= cloneFrom && v.clone(e, x, off) {
			off += x.n
			continue
		}
		if err := e.writeData(part, off); err != nil {
			return err
		}
		off += x.n
	}
	return nil
}

func (e *receiving) writeData(data []byte, off int64) error {
	if !e.entry.Holes {
		_, err := e.part.WriteAt(data, off)
		return err
	}
	for len(data) > 0 {
		zero, n := true, 0
		for n < len(data) { // as far as it goes on like that
			unit := data[n:min(len(data), n+cloneUnit-int((off+int64(n))%cloneUnit))]
			if isZero := bytes.Equal(unit, zeros[:len(unit)]); n == 0 {
				zero = isZero
			} else if isZero != zero {
				break
			}
			n += len(unit)
		}
		if !zero {
			if _, err := e.part.WriteAt(data[:n], off); err != nil {
				return err
			}
		}
		data, off = data[n:], off+int64(n)
	}
	return nil
}

// clone shares a stretch of the old file, and tells whether that was possible.
func (v *Receiver) clone(e *receiving, x stretch, off int64) bool {
	d := e.delta
	v.mu.Lock()
	no := d.noClone
	v.mu.Unlock()
	if no || x.old%cloneUnit != 0 || off%cloneUnit != 0 || x.n%cloneUnit != 0 {
		return false
	}
	ok := e.part.Clone(d.old, x.old, off, x.n)
	v.mu.Lock()
	d.shared, d.noClone = d.shared || ok, d.noClone || !ok
	v.mu.Unlock()
	return ok
}
