package transfer

import (
	"github.com/fxfer/fxfer/internal/compress"
	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

// readEvents hears how reading goes. Sender implements it.
type readEvents interface {
	entryRead(*sending)         // its last block is digested
	readFailed(*sending, error) // it cannot be read, or it changed
}

// carrier carries blocks on one data stream: it claims a block, reads and digests it, and writes it
// with its header. One goroutine uses it, with one buffer.
type carrier struct {
	stream *sendStream
	claims *claims
	coder  *compress.Meter // decides on compression; nil for none
	counts *counters
	events readEvents

	room    []byte // header and payload of a block, or a batch
	scratch []byte // payload of a patch or of a block with holes
	hash    digest.Hasher
	small   digest.Small
	batch   []*sending
	lap     *lap
}

// run carries blocks until the session or the stream is over.
func (c *carrier) run(clock *Clock) {
	c.lap = clock.start(Idle)
	defer c.lap.stop()
	for {
		c.lap.enter(Idle)
		t, ok := c.claims.claim(c.stream, c.batch, c.lap)
		if !ok {
			return
		}
		if c.room == nil { // many a stream claims nothing
			c.room = make([]byte, wire.BlockHeaderLen+1<<maxBlockLog)
		}
		c.lap.enter(Read)
		var frame []byte
		if t.entry != nil {
			frame = c.block(&t)
		} else {
			c.batch = t.small
			frame = c.smallFiles(t.small)
		}
		c.lap.enter(Send)
		if len(frame) > 0 && writeFrame(c.stream.stream, frame) != nil {
			return
		}
	}
}

// block returns a block with its header; nothing if it cannot be read or is a hole.
func (c *carrier) block(t *task) []byte {
	e := t.entry
	if e.item.Entry.Holes {
		hole, err := e.skipHole(c.claims, t.block)
		if err != nil {
			c.dropped(e, t.block, err)
			return nil
		}
		if hole {
			c.claims.land(e, t.block)
			if e.whole() {
				c.events.entryRead(e)
			}
			return nil
		}
	}
	if t.patch != nil && t.patch.node != nil {
		return c.oldBlock(t)
	}
	payload, data, err := c.read(t)
	if err != nil {
		c.dropped(e, t.block, err)
		return nil
	}
	node := c.hash.Sum()
	head := wire.BlockHeader{Index: e.index, Block: t.block, Digest: digest.ChainingValue(&node)}
	if t.patch != nil {
		c.scratch = appendPatch(c.scratch[:0], payload, t.patch.stretches)
		payload, data, head.Patch = payload[:copy(payload, c.scratch)], nil, true
	}
	frame := c.frame(&head, c.room[:0], payload, e.offset(t.block), data)
	c.digested(e, t.block, node)
	return frame
}

// read reads and digests a block into the room for a payload. See sourceFile.read for the ranges.
func (c *carrier) read(t *task) ([]byte, []disk.Range, error) {
	room := c.room[wire.BlockHeaderLen:]
	if t.kept == nil {
		payload, data, err := t.entry.readBlock(c.lap, t.block, room, &c.hash)
		if err == nil {
			t.entry.source().sent(t.entry.offset(t.block), len(payload))
		}
		return payload, data, err
	}
	payload := room[:copy(room, t.kept)] // a copy, since two streams may carry the block
	c.lap.enter(Digest)
	c.hash.Reset(t.entry.offset(t.block))
	c.hash.Write(payload)
	return payload, nil, nil
}

// oldBlock returns the patch of a block that the old file has as it is. It was digested before.
func (c *carrier) oldBlock(t *task) []byte {
	e, p := t.entry, t.patch
	c.scratch = appendPatch(c.scratch[:0], nil, p.stretches)
	frame := c.room[:wire.BlockHeaderLen+len(c.scratch)]
	copy(frame[wire.BlockHeaderLen:], c.scratch)
	head := wire.BlockHeader{
		Index: e.index, Block: t.block, Digest: digest.ChainingValue(p.node),
		Patch: true, Length: uint32(len(c.scratch)),
	}
	head.Put(frame)
	c.counts.raw.Add(int64(len(c.scratch)))
	c.counts.coded.Add(int64(len(c.scratch)))
	c.digested(e, t.block, *p.node)
	return frame
}

// digested takes the node of a block.
func (c *carrier) digested(e *sending, block int64, node digest.Node) {
	if e.addNode(block, node) {
		c.events.entryRead(e)
	}
}

// dropped gives up a block that could not be read. If another stream carries it too, that may be
// enough.
func (c *carrier) dropped(e *sending, block int64, err error) {
	if !c.claims.leave(e, block, c.stream) {
		c.events.readFailed(e, err)
	}
}

// smallFiles reads small files and returns them, each with its header and digest.
func (c *carrier) smallFiles(files []*sending) []byte {
	frames := c.room[:0]
	for len(files) > 0 {
		n := 1
		if files[0].isShort() {
			n, frames = c.shortFiles(files, frames)
		} else {
			frames = c.smallFile(files[0], frames)
		}
		files = files[n:]
	}
	return frames
}

// isShort reports whether a file is digested together with others.
func (e *sending) isShort() bool {
	_, whole := e.item.Content.(wholeReader)
	return whole && e.item.Entry.Size <= digest.MaxSmall && !e.item.Entry.Holes
}

// shortFiles appends the first files to frames: as many of the short ones as are digested together. It
// returns their number.
func (c *carrier) shortFiles(files []*sending, frames []byte) (n int, _ []byte) {
	var data [digest.SmallFiles][]byte // nil for what could not be read
	for ; n < min(len(files), len(data)) && files[n].isShort(); n++ {
		e := files[n]
		room := c.small.Room(int(e.item.Entry.Size))
		if room == nil {
			break
		}
		if err := e.item.Content.(wholeReader).Read(room); err != nil {
			c.dropped(e, 0, err)
			continue
		}
		c.counts.read.Add(int64(len(room)))
		data[n] = room
	}
	c.lap.enter(Digest)
	var roots [digest.SmallFiles][32]byte
	c.small.Sum(&roots)
	c.lap.enter(Read)
	for i, e := range files[:n] {
		if data[i] != nil {
			payload := c.smallRoom(frames, len(data[i]))
			copy(payload, data[i])
			frames = c.wholeFile(e, frames, payload, roots[i], nil)
		}
	}
	return n, frames
}

// smallFile appends a file of one block to frames.
func (c *carrier) smallFile(e *sending, frames []byte) []byte {
	payload := c.smallRoom(frames, int(e.item.Entry.Size))
	data, err := c.readSmall(e, payload)
	if err != nil {
		c.dropped(e, 0, err)
		return frames
	}
	return c.wholeFile(e, frames, payload, digest.Root(c.hash.Sum()), data)
}

// smallRoom is where the payload of the next frame belongs.
func (c *carrier) smallRoom(frames []byte, size int) []byte {
	return c.room[len(frames)+wire.BlockHeaderLen:][:size]
}

// wholeFile appends a file that was read to frames, where its payload lies already.
func (c *carrier) wholeFile(
	e *sending, frames, payload []byte, root [32]byte, data []disk.Range,
) []byte {
	if err := e.item.compare(root); err != nil {
		c.dropped(e, 0, err)
		return frames
	}
	e.setDigest(root)
	head := wire.BlockHeader{Whole: true, Index: e.index, Digest: root}
	return c.frame(&head, frames, payload, 0, data)
}

// readSmall reads and digests a file of one block, which must not change meanwhile.
func (c *carrier) readSmall(e *sending, payload []byte) ([]disk.Range, error) {
	c.hash.Reset(0)
	whole, ok := e.item.Content.(wholeReader)
	if !ok || e.item.Entry.Holes {
		data, err := e.source().read(c.lap, 0, payload, &c.hash)
		if err == nil {
			err = e.source().unchanged()
		}
		return data, err
	}
	if err := whole.Read(payload); err != nil {
		return nil, err
	}
	c.hash.Write(payload)
	c.counts.read.Add(int64(len(payload)))
	return nil, nil
}

// frame appends header and payload to frames. The payload lies where it belongs already, with room
// for the header before it. A block with holes is sent as its ranges of data if that is shorter,
// and compressed if that pays.
func (c *carrier) frame(
	head *wire.BlockHeader, frames, payload []byte, off int64, data []disk.Range,
) []byte {
	if data != nil {
		c.scratch = appendRanges(c.scratch[:0], payload, off, data)
		if len(c.scratch) < len(payload) {
			head.Sparse = true
			payload = payload[:copy(payload, c.scratch)]
		}
	}
	c.counts.raw.Add(int64(len(payload)))
	if c.coder != nil && c.coder.On() {
		c.lap.enter(Code)
		n, spent := compress.Encode(payload)
		c.lap.enter(Read)
		c.coder.Block(len(payload), n, spent)
		if n > 0 {
			head.Raw, payload = uint32(len(payload)), payload[:n]
		}
	}
	c.counts.coded.Add(int64(len(payload)))
	head.Length = uint32(len(payload))
	at := len(frames)
	frames = frames[:at+wire.BlockHeaderLen+len(payload)]
	head.Put(frames[at:])
	return frames
}

// bufferWriter is a stream that writes a header and a payload at the cost of one copy less. It may
// change the payload meanwhile.
type bufferWriter interface {
	WriteBuffers(header, payload []byte) (int, error)
}

// writeFrame writes a frame with one call.
func writeFrame(stream Stream, frame []byte) error {
	if w, ok := stream.(bufferWriter); ok {
		_, err := w.WriteBuffers(frame[:wire.BlockHeaderLen], frame[wire.BlockHeaderLen:])
		return err
	}
	_, err := stream.Write(frame)
	return err
}
