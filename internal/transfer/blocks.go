package transfer

import (
	"errors"
	"io"
	"io/fs"
	"time"

	"github.com/fxfer/fxfer/internal/compress"
	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
	"lukechampine.com/blake3/guts"
)

// AddStream reads blocks from a data stream until it ends, fails, or the session is over. The receiver closes it.
func (v *Receiver) AddStream(stream Stream) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over {
		_ = stream.Close()
		return
	}
	v.streams[stream] = struct{}{}
	v.running.Add(1)
	go func() {
		defer v.running.Done()
		err := v.carry(stream)
		_ = stream.Close()
		v.mu.Lock()
		delete(v.streams, stream)
		v.mu.Unlock()
		var known *wire.Error
		if errors.As(err, &known) || errors.Is(err, wire.ErrMalformed) {
			v.end(err) // the peer breaks the protocol; a broken connection only costs the stream
		}
	}()
}

// inbox is what a stream needs to receive.
type inbox struct {
	buf   []byte // a payload
	block []byte // a block with holes, once one came
	hash  digest.Hasher
	parts []stretch // that the block was made of, if it is a patch
	lap   *lap
}

// carry is the way of a block on the receiving side: read the header, check it against the manifest, read and digest
// the payload, write, acknowledge.
func (v *Receiver) carry(stream Stream) error {
	var head [wire.BlockHeaderLen]byte
	in := &inbox{buf: make([]byte, 1<<maxBlockLog), lap: v.opt.Clock.start(Receive)}
	defer in.lap.stop()
	from := &packets{stream: stream}
	for {
		in.lap.enter(Receive)
		if _, err := io.ReadFull(from, head[:]); err != nil {
			return err
		}
		began := time.Now()
		h, err := wire.ParseBlockHeader(head[:])
		if err != nil || h.End {
			return err
		}
		e, wanted, err := v.expect(&h)
		if errors.Is(err, errVersions) {
			v.fail(e, wire.Errorf(wire.CodeChanged, "the file changed while it was sent"))
			e, wanted, err = nil, false, nil
		}
		if err != nil {
			return err
		}
		if !wanted {
			if _, err := io.ReadFull(from, in.buf[:h.Length]); err != nil {
				return err
			}
			if e != nil {
				v.ackKept(e, h.Block)
			}
			continue
		}
		data, ranges, node, err := in.read(from, e, &h)
		if errors.Is(err, errOld) {
			v.rejectPatch(e, h.Block)
			continue
		}
		if err != nil {
			v.leave(e, h.Block)
			return err
		}
		if digest := digestOf(&h, &node); digest != h.Digest {
			if h.Patch {
				v.rejectPatch(e, h.Block)
			} else {
				v.reject(e, h.Block)
			}
			continue
		}
		in.lap.enter(Write)
		if err := v.write(in, e, &h, data, ranges); err != nil {
			v.leave(e, h.Block)
			v.fail(e, err)
			continue
		}
		v.accept(in.lap, e, &h, data, ranges, in.parts, node)
		v.opt.Clock.block(time.Since(began))
	}
}

func digestOf(h *wire.BlockHeader, node *guts.Node) [32]byte {
	if h.Whole {
		return rootDigest(*node)
	}
	return chaining(node)
}

// packets reads small pieces of a stream through a buffer, and large ones past it. Small files come many at a time.
type packets struct {
	stream Stream
	buf    []byte // read and not yet asked for
	room   []byte
}

const packetRoom = 64 << 10

func (p *packets) Read(b []byte) (int, error) {
	if len(p.buf) == 0 {
		if len(b) >= packetRoom/2 {
			return p.stream.Read(b)
		}
		if p.room == nil {
			p.room = make([]byte, packetRoom)
		}
		n, err := p.stream.Read(p.room)
		if p.buf = p.room[:n]; n == 0 {
			return 0, err
		}
	}
	n := copy(b, p.buf)
	p.buf = p.buf[n:]
	return n, nil
}

// read reads the payload of a block and decodes it. It returns the block's content, where that has data if not everywhere, and its
// node of the digest tree.
func (in *inbox) read(from io.Reader, e *receiving, h *wire.BlockHeader) (data []byte, ranges []disk.Range, node guts.Node, err error) {
	payload := in.buf[:h.Length]
	in.hash.Reset(h.Block << e.entry.BlockLog)
	if h.Raw == 0 && !h.Sparse && !h.Patch {
		err := in.readBlock(from, payload)
		return payload, nil, in.hash.Sum(), err
	}
	if _, err := io.ReadFull(from, payload); err != nil {
		return nil, nil, node, err
	}
	if h.Raw > 0 {
		in.lap.enter(Code)
		payload = in.buf[:h.Raw]
		if err := compress.Decode(payload, int(h.Length)); err != nil {
			return nil, nil, node, protocolError("block %d of entry %d: %v", h.Block, h.Index, err)
		}
	}
	if h.Patch {
		in.lap.enter(Digest)
		if payload, in.parts, err = in.patch(e, h, payload); err != nil {
			return nil, nil, node, err
		}
	}
	if h.Sparse {
		if in.block == nil {
			in.block = make([]byte, 1<<maxBlockLog)
		}
		block := in.block[:lengthOf(e.entry.Size, e.entry.BlockLog, h.Block)]
		if ranges, err = parseRanges(payload, block); err != nil {
			return nil, nil, node, protocolError("block %d of entry %d: %v", h.Block, h.Index, err)
		}
		payload = block
	}
	in.lap.enter(Digest)
	in.hash.Write(payload)
	return payload, ranges, in.hash.Sum(), nil
}

// readBlock fills payload and digests each piece while it is in the cache.
func (in *inbox) readBlock(from io.Reader, payload []byte) error {
	digested := 0
	for at := 0; at < len(payload); {
		n, err := from.Read(payload[at:])
		at += n
		if at == len(payload) {
			break
		}
		if err != nil {
			return err
		}
		if whole := at &^ (digest.GroupSize - 1); whole-digested >= digest.GroupSize {
			in.lap.enter(Digest)
			in.hash.Write(payload[digested:whole])
			in.lap.enter(Receive)
			digested = whole
		}
	}
	in.lap.enter(Digest)
	in.hash.Write(payload[digested:])
	return nil
}

// errVersions marks a block that two streams carry with different digests: its source changed in between.
var errVersions = errors.New("a block comes in two versions")

// expect waits until the block's entry is known and checks the header against it. An unwanted block belongs to an entry that is
// resolved, and then e is nil, or is there already.
func (v *Receiver) expect(h *wire.BlockHeader) (e *receiving, wanted bool, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	// Its announcement is on its way. After the end of the manifest only what changed comes again, a few times at most.
	for !v.over && !v.told && h.Index >= v.next && !(v.ended && h.Index >= v.count+3*uint64(v.pending)) {
		v.strange = max(v.strange, h.Index+1)
		v.cond.Wait()
	}
	if v.over {
		return nil, false, errClosed
	}
	if h.Index >= v.next {
		return nil, false, protocolError("block of entry %d, which does not exist", h.Index)
	}
	e = v.active[h.Index]
	if e == nil || e.resolved {
		return nil, false, nil
	}
	if err := e.check(h); err != nil {
		return nil, false, err
	}
	if e.done.has(h.Block) {
		return e, false, nil
	}
	c := e.busy[h.Block]
	if c.streams > 0 && c.digest != h.Digest {
		return e, false, errVersions
	}
	if c.streams > 0 && h.Whole {
		return nil, false, nil // the other one writes all of it, and says so
	}
	if e.busy == nil {
		e.busy = make(map[int64]claim)
	}
	e.busy[h.Block] = claim{h.Digest, c.streams + 1}
	return e, true, nil
}

// check holds a header against what is known of the entry.
func (e *receiving) check(h *wire.BlockHeader) error {
	size := int64(1) << e.entry.BlockLog
	length := int64(h.Length)
	if h.Raw > 0 {
		length = int64(h.Raw)
	}
	switch {
	case e.entry.Kind != wire.File || e.hashing || h.Whole != e.small():
		return protocolError("block of entry %d, which takes none such", h.Index)
	case e.blocks >= 0 && h.Block >= e.blocks:
		return protocolError("block %d beyond the end of entry %d", h.Block, h.Index)
	case h.Patch:
		if e.delta != nil && length <= int64(lengthOf(e.entry.Size, e.entry.BlockLog, h.Block)) {
			return nil
		}
		return protocolError("block %d of entry %d has no old version", h.Block, h.Index)
	case h.Sparse:
		if e.entry.Holes && e.entry.Size >= 0 && length <= int64(lengthOf(e.entry.Size, e.entry.BlockLog, h.Block)) {
			return nil
		}
		return protocolError("block %d of entry %d has no holes", h.Block, h.Index)
	case e.entry.Size >= 0 && length != int64(lengthOf(e.entry.Size, e.entry.BlockLog, h.Block)):
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

// write puts a block where it belongs: ranges of it, if not nil.
func (v *Receiver) write(in *inbox, e *receiving, h *wire.BlockHeader, data []byte, ranges []disk.Range) error {
	if h.Whole {
		return nil // accept stages it
	}
	off := h.Block << e.entry.BlockLog
	if e.entry.Size < 0 {
		if err := v.take(e, int64(len(data)), 0); err != nil {
			return err
		}
	}
	if h.Patch {
		if err := v.writePatched(e, off, data, in.parts); err != nil {
			return err
		}
	} else if ranges == nil {
		if _, err := e.part.WriteAt(data, off); err != nil {
			return err
		}
	}
	for _, r := range ranges {
		if _, err := e.part.WriteAt(data[r.Off:][:r.Len], off+r.Off); err != nil {
			return err
		}
	}
	return e.part.Mark(h.Block, h.Digest)
}

// ackKept acknowledges a block that is there already, unless recheck has found meanwhile that it is not: the sender would take the
// acknowledgement for that of the block which it has been asked for.
func (v *Receiver) ackKept(e *receiving, block int64) {
	v.ctrl.ackRoom()
	v.mu.Lock()
	defer v.mu.Unlock()
	if e.done.has(block) {
		v.ctrl.ackNow(e.index, block)
	}
}

// leave gives up the claim on a block that expect granted.
func (v *Receiver) leave(e *receiving, block int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	e.leaveLocked(block)
}

func (e *receiving) leaveLocked(block int64) {
	if c := e.busy[block]; c.streams > 1 {
		e.busy[block] = claim{c.digest, c.streams - 1}
	} else {
		delete(e.busy, block)
	}
}

// reject asks for a block again whose digest is wrong.
func (v *Receiver) reject(e *receiving, block int64) {
	v.leave(e, block)
	v.mu.Lock()
	e.rejected++
	v.stats.Rejected++
	many := e.rejected > rejectMax
	v.mu.Unlock()
	if many || e.entry.Size < 0 {
		v.fail(e, wire.Errorf(wire.CodeIntegrity, "blocks arrive with wrong digests"))
		return
	}
	v.ctrl.send(&wire.Resend{Index: e.index, Blocks: []wire.Extent{{Start: block, Count: 1}}})
}

// recheck re-reads the blocks of an earlier run, missing, while others arrive. A damaged one is asked for again.
func (v *Receiver) recheck(e *receiving, missing extents) {
	defer v.running.Done()
	buf := make([]byte, 1<<e.entry.BlockLog)
	var hash digest.Hasher
	var bad extents
	err := e.part.Recorded(func(block int64, cv [32]byte) error {
		if err := v.ctx.Err(); err != nil {
			return err
		}
		if !missing.has(block) {
			return nil
		}
		data := buf[:lengthOf(e.entry.Size, e.entry.BlockLog, block)]
		hash.Reset(block << e.entry.BlockLog)
		var node guts.Node
		_, err := e.part.ReadAt(data, block<<e.entry.BlockLog)
		ok := err == nil
		if ok {
			hash.Write(data)
			node = hash.Sum()
			ok = chaining(&node) == cv
		}
		missing.remove(block, 1)
		if !ok {
			bad.add(block, 1)
			return nil
		}
		v.mu.Lock()
		e.tree.add(block, node)
		v.mu.Unlock()
		return nil
	})
	if v.ctx.Err() != nil || err != nil && errors.Is(err, fs.ErrClosed) {
		return
	}
	for _, x := range missing {
		bad.add(x.Start, x.Count)
	}
	var lost int64
	for _, x := range bad {
		for b := x.Start; b < x.Start+x.Count; b++ {
			_ = e.part.Drop(b)
			lost += int64(lengthOf(e.entry.Size, e.entry.BlockLog, b))
		}
	}
	v.mu.Lock()
	for _, x := range bad {
		e.done.remove(x.Start, x.Count)
		v.stats.Rejected += x.Count
	}
	v.stats.Resumed -= lost
	e.checking = false
	v.commitLocked(e)
	v.mu.Unlock()
	if len(bad) > 0 {
		v.ctrl.send(&wire.Resend{Index: e.index, Blocks: bad})
		v.event(Event{Kind: Written, Index: e.index, Entry: &e.entry, Bytes: -lost})
	}
}
