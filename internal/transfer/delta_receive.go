package transfer

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// offerBlocks and offerChunks bound the digests in a message.
	offerBlocks = 16
	offerChunks = 1024
	// patchRejects bounds the blocks of an entry whose patches are wrong.
	patchRejects = 1 << 12
	// cloneFrom is the length in bytes from which a stretch is shared between files, where the file
	// system can. Start and length of what is shared are multiples of cloneUnit.
	cloneFrom = 64 << 10
	cloneUnit = 4 << 10
)

// deltaReceive is an entry's old version.
type deltaReceive struct {
	old     *disk.Source
	size    int64
	how     wire.Delta
	gone    chan struct{} // closed when the entry is over
	closing sync.Once
	changed chan struct{} // has a value after something changed

	mu      sync.Mutex // guards the following; receiving.mu may be held before it
	picked  bool       // the sender has chosen
	pick    wire.Delta
	asked   []wire.Extent // blocks whose pieces the sender wants
	next    int64         // blocks before this one were offered
	ahead   int           // of these, how many are not written
	rejects int           // wrong patches
	shared  bool          // the new file shares some of the old one's content
	noClone bool          // the file system cannot share
}

func newDeltaReceive(old *disk.Source, size int64, how wire.Delta) *deltaReceive {
	return &deltaReceive{old: old, size: size, how: how, gone: make(chan struct{}), changed: make(chan struct{}, 1)}
}

// close ends the use of the old version, once. It is safe for nil.
func (d *deltaReceive) close() {
	if d == nil {
		return
	}
	d.closing.Do(func() {
		close(d.gone)
		_ = d.old.Close()
	})
}

// poke makes the offerer look again.
func (d *deltaReceive) poke() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// choose takes the sender's choice of the way to go. It returns false if that was not up to it.
func (d *deltaReceive) choose(how wire.Delta) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if how != wire.DeltaNone && (d.picked || d.how != wire.DeltaAuto && how != d.how) {
		return false
	}
	d.picked, d.pick = true, how
	d.poke()
	return true
}

// choice returns the sender's choice, and false before there is one.
func (d *deltaReceive) choice() (wire.Delta, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pick, d.picked
}

// ask takes the blocks whose pieces the sender wants.
func (d *deltaReceive) ask(m *wire.Ask) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.picked || d.pick != wire.DeltaFixed || len(d.asked)+len(m.Blocks) > 4*deltaWindow {
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

// takeAsked returns the blocks whose pieces the sender wants, once, and whether the next block may
// be offered.
func (d *deltaReceive) takeAsked() (asked []wire.Extent, next int64, room bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	asked, d.asked = d.asked, nil
	return asked, d.next, d.ahead < deltaWindow
}

// skip takes the offered blocks that are not sent, since they have no data.
func (d *deltaReceive) skip(m *wire.Empty) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, x := range m.Blocks {
		if x.Start+x.Count > d.next {
			return protocolError("entry %d: blocks that were not offered", m.Index)
		}
		d.ahead -= int(x.Count)
	}
	d.poke()
	return nil
}

// offer notes that a block is offered, or passed over since it is written.
func (d *deltaReceive) offer(block int64, written bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !written {
		d.ahead++
	}
	d.next = block + 1
}

// wrote notes that a block is written.
func (d *deltaReceive) wrote(block int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if block < d.next {
		d.ahead--
	}
	d.poke()
}

// reject counts a patch that did not give its block, and reports whether the entry must fail.
func (d *deltaReceive) reject() (tooMany bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rejects++
	return d.rejects > patchRejects
}

// isShared reports whether the new file shares some of the old one's content.
func (d *deltaReceive) isShared() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.shared
}

// clone lets part have a stretch of the old file at off, and reports whether that was possible.
func (d *deltaReceive) clone(part partialFile, x stretch, off int64) bool {
	d.mu.Lock()
	no := d.noClone
	d.mu.Unlock()
	if no || x.old%cloneUnit != 0 || off%cloneUnit != 0 || x.n%cloneUnit != 0 {
		return false
	}
	whole, ok := part.(*disk.Partial)
	ok = ok && whole.Clone(d.old, x.old, off, x.n)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shared, d.noClone = d.shared || ok, d.noClone || !ok
	return ok
}

// offers send the digests of old versions of files.
type offers struct {
	side   *side
	target *target
	slots  chan struct{}
	memory *Account // for buffers, with other sessions; nil for no bound
	on     bool     // the sender can use old versions; set before any entry
}

func newOffers(s *side, t *target, account *Account) offers {
	return offers{side: s, target: t, slots: make(chan struct{}, offersAtOnce), memory: account}
}

// open opens the old version of an entry of that many blocks. It returns nil if there is none of
// use.
func (o *offers) open(e *receiving, blocks int64) *deltaReceive {
	how := o.target.opt.Delta
	if how == wire.DeltaNone || !o.on || blocks < 2 || e.entry.Size < deltaFrom {
		return nil
	}
	if d := o.openEarly(e, how); d != nil {
		return d
	}
	trees := []*access.Scope{o.target.tree}
	if previous := o.target.previousTree(); previous != nil {
		trees = []*access.Scope{previous, o.target.tree}
	}
	for _, tree := range trees {
		old, err := tree.OpenFile(e.meta.Path)
		if err != nil {
			continue
		}
		if d := useful(old, how); d != nil {
			return d
		}
	}
	return nil
}

// useful returns the delta against an old version, or closes that and returns nil if it is too small.
func useful(old *disk.Source, how wire.Delta) *deltaReceive {
	if size := old.Identity().Size; size >= oldFrom && size <= wire.MaxSize {
		return newDeltaReceive(old, size, how)
	}
	_ = old.Close()
	return nil
}

// openEarly opens what came of the entry's file while it grew, nil if that is nothing.
func (o *offers) openEarly(e *receiving, how wire.Delta) *deltaReceive {
	var old *disk.Source
	err := o.target.patient(func() (err error) {
		old, err = o.target.tree.OpenEarly(e.meta, 1<<maxBlockLog)
		return err
	})
	if err != nil {
		return nil
	}
	return useful(old, how) // the session that sent it may have ended before the first block
}

// handle acts on a message about an entry's old version. e is nil if it is resolved.
func (o *offers) handle(e *receiving, m wire.Message) error {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	d, resolved := e.delta, e.resolved
	e.mu.Unlock()
	if resolved {
		return nil
	}
	switch m := m.(type) {
	case *wire.Pick:
		if d == nil || !d.choose(m.Delta) {
			return protocolError("entry %d has no such choice", m.Index)
		}
	case *wire.Ask:
		if d == nil {
			return protocolError("entry %d has no such pieces", m.Index)
		}
		return d.ask(m)
	case *wire.Empty:
		if d == nil || !e.entry.Holes {
			return protocolError("entry %d has no such blocks", m.Index)
		}
		return d.skip(m)
	}
	return nil
}

// start offers an old version in the background, as fast as the sender uses it. The answer that
// there is one must be on its way. fail hears of an old version that cannot be read.
func (o *offers) start(e *receiving, d *deltaReceive, fail func(*receiving, error)) {
	o.side.running.Go(func() {
		select {
		case o.slots <- struct{}{}:
			defer func() { <-o.slots }()
		case <-d.gone:
			return
		case <-o.side.ctx.Done():
			return
		}
		need := int64(1)<<e.entry.BlockLog + chunkBuffers*int64(chunkSize(d.size))
		waiting, cancel := context.WithTimeout(o.side.ctx, memoryWithin)
		err := o.memory.take(waiting, need)
		cancel()
		if err != nil {
			fail(e, wire.Errorf(wire.CodeBusy, "the deltas under way take all memory that there is for them"))
			return
		}
		defer o.memory.Give(need)
		x := offerer{side: o.side, e: e, d: d, buf: make([]byte, 1<<e.entry.BlockLog)}
		if err := x.run(); err != nil && !errors.Is(err, errDeltaOver) {
			fail(e, err)
		}
	})
}

// offerer reads an old version and sends its digests.
type offerer struct {
	side *side
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
	how, picked := o.d.choice()
	for ; !picked; how, picked = o.d.choice() {
		if err := o.wait(); err != nil {
			return err
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
	case <-o.d.changed:
		return nil
	case <-o.d.gone:
	case <-o.side.ctx.Done():
	}
	return errDeltaOver
}

// over reports whether nobody needs digests any more.
func (o *offerer) over() bool {
	select {
	case <-o.d.gone:
	case <-o.side.ctx.Done():
	default:
		return false
	}
	return true
}

// both is the number of blocks that the new file has and the old one begins.
func (o *offerer) both() int64 {
	return blocksOf(min(o.e.entry.Size, o.d.size), o.e.entry.BlockLog)
}

// block reads a block of the old file, or as much as there is.
func (o *offerer) block(block int64) ([]byte, error) {
	defer o.side.checking()()
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
	o.side.pump.send(m)
	return nil
}

// sample sends the pieces of some blocks, and then a message without digests.
func (o *offerer) sample() error {
	blocks := o.both()
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
	o.side.pump.send(&wire.Pieces{Index: o.e.index, Log: wire.PieceLog})
	return nil
}

// fixed offers block after block, and the pieces that the sender asks for.
func (o *offerer) fixed() error {
	blocks := o.both()
	for {
		asked, next, room := o.d.takeAsked()
		for _, x := range asked {
			for b := x.Start; b < x.Start+x.Count; b++ {
				if err := o.pieces(b); err != nil {
					return err
				}
			}
		}
		var err error
		if room && next < blocks {
			err = o.blocks(next, min(blocks, next+offerBlocks))
		} else if len(asked) == 0 {
			err = o.wait()
		}
		if err != nil {
			return err
		}
	}
}

// blocks offers a range of blocks, except those that are there from an earlier run. Neighbours
// travel in one message.
func (o *offerer) blocks(from, to int64) error {
	log := o.e.entry.BlockLog
	var m *wire.Pieces
	flush := func() {
		if m != nil {
			o.side.pump.send(m)
			m = nil
		}
	}
	for b := from; b < to; b++ {
		if o.e.offer(b) {
			flush()
			continue
		}
		short, err := o.digest(b)
		if err != nil {
			return err
		}
		if m == nil {
			m = &wire.Pieces{Index: o.e.index, Start: b << log, Log: log}
		}
		m.Digests = append(m.Digests, short)
	}
	flush()
	return nil
}

// digest returns the short digest of a block. A block without data is not read, if the new file has
// holes, too: to read and digest zeros takes as long as data.
func (o *offerer) digest(block int64) (wire.ShortDigest, error) {
	if o.e.entry.Holes {
		data, err := o.d.old.Data(block<<o.e.entry.BlockLog, int64(len(o.buf)))
		if err != nil || len(data) == 0 {
			return noData, err
		}
	}
	data, err := o.block(block)
	if err != nil {
		return noData, err
	}
	o.hash.Reset(block << o.e.entry.BlockLog)
	o.hash.Write(data)
	node := o.hash.Sum()
	return shortNode(&node), nil
}

// chunks offers the chunks of the old file.
func (o *offerer) chunks() error {
	cutter, err := newChunked(io.NewSectionReader(o.d.old, 0, o.d.size), o.d.size)
	if err != nil {
		return err
	}
	var at int64
	for {
		m, end, err := o.nextChunks(cutter, at)
		if err != nil {
			return err
		}
		for _, c := range m.Chunks {
			at += c.Length
		}
		if len(m.Chunks) > 0 {
			o.side.pump.send(m)
		}
		if end {
			o.side.pump.send(&wire.Chunks{Index: o.e.index, Start: at})
			return nil
		}
		if more, err := o.waitWindow(at); err != nil || !more {
			return err
		}
	}
}

// nextChunks returns the chunks from offset at on, and whether the file ends with them.
func (o *offerer) nextChunks(cutter *chunked, at int64) (m *wire.Chunks, end bool, err error) {
	defer o.side.checking()()
	m = &wire.Chunks{Index: o.e.index, Start: at}
	for len(m.Chunks) < offerChunks {
		chunk, err := cutter.next()
		if errors.Is(err, io.EOF) {
			return m, true, nil
		}
		if err != nil {
			return nil, false, err
		}
		m.Chunks = append(m.Chunks, wire.Chunk{Length: int64(len(chunk)), Digest: shortDigest(chunk)})
	}
	return m, false, nil
}

// waitWindow waits until at is not too far ahead of what is written of the new file. It returns
// false if the sender wants no more chunks.
func (o *offerer) waitWindow(at int64) (more bool, err error) {
	window := int64(chunkSize(o.d.size)) * chunkWindow / 2
	for {
		if how, _ := o.d.choice(); how == wire.DeltaNone {
			return false, nil
		}
		if at-o.e.writtenPrefix() <= window {
			break
		}
		if err := o.wait(); err != nil {
			return false, err
		}
	}
	if o.over() {
		return false, errDeltaOver
	}
	return true, nil
}
