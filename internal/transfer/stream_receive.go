package transfer

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/fxfer/fxfer/internal/compress"
	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

// streamSet holds the receiver's data streams, to close them at the end of the session.
type streamSet struct {
	mu   sync.Mutex // guards the following; a leaf
	live map[Stream]struct{}
	over bool
}

// add takes a stream in, and calls start before the session can end. It returns false if the
// session is over.
func (s *streamSet) add(stream Stream, start func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	if s.live == nil {
		s.live = make(map[Stream]struct{})
	}
	s.live[stream] = struct{}{}
	start()
	return true
}

func (s *streamSet) remove(stream Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, stream)
}

// end takes no more streams in, and returns those that live.
func (s *streamSet) end() (live []Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for stream := range s.live {
		live = append(live, stream)
	}
	return live
}

// inbox receives blocks on one data stream: it reads a header, checks it against the manifest,
// reads and digests the payload, writes and acknowledges it. One goroutine uses it, with one
// buffer.
type inbox struct {
	side      *side
	table     *table
	target    *target
	committer *committer
	fail      func(*receiving, error) // fails an entry
	keep      func(*receiving)        // ends an early entry that is whole

	from  packets
	buf   []byte // a payload
	block []byte // a block with holes or made of a patch, once one came
	hash  digest.Hasher
	lap   *lap
}

// content is a block as it was read.
type content struct {
	data   []byte
	ranges []disk.Range // in data, where the block has data; nil for everywhere
	parts  []stretch    // what it was made of; nil if it came whole
	node   digest.Node  // of a block of several
	digest [32]byte     // that its header should have
}

// copied is how many bytes of a block came from the old version.
func (c *content) copied() (n int64) {
	for _, x := range c.parts {
		if x.old >= 0 {
			n += x.n
		}
	}
	return n
}

// errOld says that the old file is not what it was.
var errOld = errors.New("the old file cannot be read")

// run receives blocks until the stream ends or fails.
func (in *inbox) run(clock *Clock) error {
	in.lap = clock.start(Receive)
	defer in.lap.stop()
	var head [wire.BlockHeaderLen]byte
	now := in.lap.enter(Receive)
	for {
		waits := len(in.from.buf) < len(head)
		if _, err := io.ReadFull(&in.from, head[:]); err != nil {
			return err
		}
		began := now
		if waits {
			began = clock.now()
		}
		h, err := wire.ParseBlockHeader(head[:])
		if err != nil || h.End {
			return err
		}
		if in.buf == nil { // many a stream gets nothing
			in.buf = make([]byte, 1<<maxBlockLog)
		}
		written, err := in.receive(&h)
		if err != nil {
			return err
		}
		if now = in.lap.enter(Receive); written {
			clock.block(now - began)
		}
	}
}

// receive receives the block that follows its header. Errors end the stream.
func (in *inbox) receive(h *wire.BlockHeader) (written bool, err error) {
	e, err := in.table.await(h.Index)
	if err != nil {
		return false, err
	}
	todo := refuse
	if e != nil {
		if todo, err = e.admit(h); errors.Is(err, errVersions) {
			in.fail(e, wire.Errorf(wire.CodeChanged, "the file changed while it was sent"))
		} else if err != nil {
			return false, err
		}
	}
	if todo != want {
		in.side.counts.arriving.Add(1)
		_, err := io.ReadFull(&in.from, in.buf[:h.Length])
		in.side.counts.arriving.Add(-1)
		if err != nil {
			return false, err
		}
		if todo == hold {
			e.ackHeld(in.side.pump, h.Block)
		}
		return false, nil
	}
	in.side.counts.arriving.Add(1)
	c, err := in.read(e, h)
	in.side.counts.arriving.Add(-1)
	if errors.Is(err, errOld) {
		in.reject(e, h)
		return false, nil
	}
	if err != nil {
		e.leave(h.Block)
		return false, err
	}
	if c.digest != h.Digest {
		in.reject(e, h)
		return false, nil
	}
	in.lap.enter(Write)
	if err := in.write(e, h, &c); err != nil {
		e.leave(h.Block)
		in.fail(e, err)
		return false, nil
	}
	in.accept(e, h, &c)
	return true, nil
}

// restReader is a stream that reads at less cost where all that it is asked for is sure to come.
type restReader interface {
	ReadRest(p []byte) (int, error)
}

// packets reads small pieces of a stream through a buffer, and large ones past it: small files come
// many at a time. Nobody asks for more than what the peer has announced.
type packets struct {
	stream Stream
	buf    []byte // read and not used
	room   []byte
	ahead  ahead // digests of what lies in buf
	large  bool  // the last piece was large, so what comes after the next header may be, too
}

const packetRoom = 64 << 10

func (p *packets) Read(b []byte) (int, error) {
	if len(p.buf) == 0 {
		if len(b) >= packetRoom/2 {
			p.large = true
			if r, ok := p.stream.(restReader); ok {
				return r.ReadRest(b)
			}
			return p.stream.Read(b)
		}
		if p.large { // what lies in the buffer is copied once more
			p.large = false
			return p.stream.Read(b)
		}
		if p.room == nil {
			p.room = make([]byte, packetRoom)
		}
		p.ahead.next, p.ahead.n = 0, 0
		n, err := p.stream.Read(p.room)
		if p.buf = p.room[:n]; n == 0 {
			return 0, err
		}
	}
	return copy(b, p.take(len(b))), nil
}

// gather reads until the next n bytes lie in the buffer, which has room for them.
func (p *packets) gather(n int) error {
	if len(p.buf) >= n {
		return nil
	}
	if p.room == nil {
		p.room = make([]byte, packetRoom)
	}
	p.ahead.next, p.ahead.n = 0, 0
	got := copy(p.room, p.buf)
	for got < n {
		m, err := p.stream.Read(p.room[got:])
		if m == 0 && err != nil {
			return err
		}
		got += m
	}
	p.buf = p.room[:got]
	return nil
}

// take takes up to n bytes out of the buffer. They are valid until the next Read.
func (p *packets) take(n int) []byte {
	taken := p.buf[:min(n, len(p.buf))]
	p.buf = p.buf[len(taken):]
	return taken
}

// ahead has the digests of small files that lie in the buffer of a stream one behind the other.
type ahead struct {
	small digest.Small
	sums  [digest.SmallFiles][32]byte
	left  [digest.SmallFiles]int // bytes in the buffer from each payload on
	next  int                    // the first of sums that is not used
	n     int                    // of these
}

// sum returns the digest of the payload of n bytes that buf begins with. Those of small files behind
// it are computed together with it, unless that was done before.
func (a *ahead) sum(lap *lap, buf []byte, n int) [32]byte {
	for a.next < a.n && a.left[a.next] > len(buf) { // nobody wanted it
		a.next++
	}
	if a.next == a.n || a.left[a.next] != len(buf) {
		lap.enter(Digest)
		a.fill(buf, n)
	}
	a.next++
	return a.sums[a.next-1]
}

// fill digests the payload of n bytes that buf begins with, and small files behind it.
func (a *ahead) fill(buf []byte, n int) {
	a.next, a.n = 0, 0
	for a.n < len(a.left) {
		room := a.small.Room(n)
		if room == nil {
			break
		}
		copy(room, buf)
		a.left[a.n] = len(buf)
		a.n++
		buf = buf[n:]
		h, err := wire.ParseBlockHeader(buf)
		if err != nil || !isShort(&h) {
			break
		}
		if buf, n = buf[wire.BlockHeaderLen:], int(h.Length); n > len(buf) {
			break
		}
	}
	a.small.Sum(&a.sums)
}

// isShort reports whether a block is a file that comes as it is and is digested together with others.
func isShort(h *wire.BlockHeader) bool {
	return h.Whole && h.Raw == 0 && !h.Sparse && h.Length <= digest.MaxSmall
}

// read reads the payload of a block, decodes and digests it. The content is valid until the next
// read.
func (in *inbox) read(e *receiving, h *wire.BlockHeader) (c content, err error) {
	if isShort(h) {
		n := int(h.Length)
		if err := in.from.gather(n); err != nil {
			return c, err
		}
		c.digest = in.from.ahead.sum(in.lap, in.from.buf, n)
		c.data = in.from.take(n)
		return c, nil
	}
	payload := in.buf[:h.Length]
	in.hash.Reset(h.Block << e.entry.BlockLog)
	if h.Raw == 0 && !h.Sparse && !h.Patch {
		err := in.readPlain(payload)
		return in.content(h, payload), err
	}
	if _, err := io.ReadFull(&in.from, payload); err != nil {
		return c, err
	}
	if h.Raw > 0 {
		in.lap.enter(Code)
		payload = in.buf[:h.Raw]
		if err := compress.Decode(payload, int(h.Length)); err != nil {
			return c, protocolError("block %d of entry %d: %v", h.Block, h.Index, err)
		}
	}
	in.lap.enter(Digest)
	if h.Patch {
		if payload, c.parts, err = in.patch(e, h, payload); err != nil {
			return c, err
		}
	}
	if h.Sparse {
		block := in.blockRoom(e, h.Block)
		if c.ranges, err = parseRanges(payload, block); err != nil {
			return c, protocolError("block %d of entry %d: %v", h.Block, h.Index, err)
		}
		payload = block
	}
	in.hash.Write(payload)
	all := in.content(h, payload)
	all.ranges, all.parts = c.ranges, c.parts
	return all, nil
}

// content is a block that was digested.
func (in *inbox) content(h *wire.BlockHeader, data []byte) content {
	c := content{data: data, node: in.hash.Sum()}
	if c.digest = digest.ChainingValue(&c.node); h.Whole {
		c.digest = digest.Root(c.node)
	}
	return c
}

// readPlain fills payload and digests each piece while it is in the cache.
func (in *inbox) readPlain(payload []byte) error {
	digested := 0
	for at := 0; at < len(payload); {
		n, err := in.from.Read(payload[at:])
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

// blockRoom is room for a block that does not come as it is.
func (in *inbox) blockRoom(e *receiving, block int64) []byte {
	if in.block == nil {
		in.block = make([]byte, 1<<maxBlockLog)
	}
	return in.block[:e.blockLen(block)]
}

// patch makes a block of its patch. It returns errOld if the old file cannot be read.
func (in *inbox) patch(
	e *receiving, h *wire.BlockHeader, payload []byte,
) (block []byte, all []stretch, err error) {
	block = in.blockRoom(e, h.Block)
	old := e.oldVersion()
	all, fresh, err := parsePatch(payload, len(block), old.size)
	if err != nil {
		return nil, nil, protocolError("block %d of entry %d: %v", h.Block, h.Index, err)
	}
	at := int64(0)
	for _, x := range all {
		if part := block[at : at+x.n]; x.old < 0 {
			fresh = fresh[copy(part, fresh):]
		} else if readFull(old.old, part, x.old) != nil {
			return nil, nil, errOld
		}
		at += x.n
	}
	return block, all, nil
}

// reject asks for a block again whose digest is wrong. A patch that did not give its block comes
// whole.
func (in *inbox) reject(e *receiving, h *wire.BlockHeader) {
	in.side.counts.rejected.Add(1)
	if h.Patch {
		e.leave(h.Block)
		if e.oldVersion().reject() {
			in.fail(e, wire.Errorf(wire.CodeIntegrity, "patches do not produce their blocks"))
			return
		}
	} else if e.reject(h.Block) {
		in.fail(e, wire.Errorf(wire.CodeIntegrity, "blocks arrive with wrong digests"))
		return
	}
	again := []wire.Extent{{Start: h.Block, Count: 1}}
	in.side.pump.send(&wire.Resend{Index: e.index, Blocks: again})
}

// write writes a block to its place in the partial file. accept writes a file that came whole.
func (in *inbox) write(e *receiving, h *wire.BlockHeader, c *content) error {
	if h.Whole {
		return nil
	}
	if e.entry.Size < 0 {
		if err := in.target.usage.take(e, int64(len(c.data)), 0); err != nil {
			return err
		}
	}
	part, off := e.partial(), h.Block<<e.entry.BlockLog
	if err := writeContent(e, part, off, c); err != nil {
		return err
	}
	return part.Mark(h.Block, h.Digest)
}

func writeContent(e *receiving, part partialFile, off int64, c *content) error {
	if c.parts != nil {
		return writePatched(e, part, off, c)
	}
	if c.ranges == nil {
		_, err := part.WriteAt(c.data, off)
		return err
	}
	for _, r := range c.ranges {
		if _, err := part.WriteAt(c.data[r.Off:][:r.Len], off+r.Off); err != nil {
			return err
		}
	}
	return nil
}

// writePatched writes a block that was made of a patch. Long stretches are shared with the old file
// where the file system can, and zeros are left out of a file with holes.
func writePatched(e *receiving, part partialFile, off int64, c *content) error {
	old, data := e.oldVersion(), c.data
	for _, x := range c.parts {
		piece := data[:x.n]
		data = data[x.n:]
		shared := x.old >= 0 && x.n >= cloneFrom && old.clone(part, x, off)
		if !shared {
			if err := writeData(part, piece, off, e.entry.Holes); err != nil {
				return err
			}
		}
		off += x.n
	}
	return nil
}

// writeData writes data, but not the zeros of a file with holes.
func writeData(part partialFile, data []byte, off int64, holes bool) error {
	if !holes {
		_, err := part.WriteAt(data, off)
		return err
	}
	for len(data) > 0 {
		n, zero := sameKind(data, off)
		if !zero {
			if _, err := part.WriteAt(data[:n], off); err != nil {
				return err
			}
		}
		data, off = data[n:], off+int64(n)
	}
	return nil
}

// sameKind returns how much of data, which begins at off in its file, is all zero, or has no unit
// that is.
func sameKind(data []byte, off int64) (n int, zero bool) {
	for n < len(data) {
		unit := data[n:min(len(data), n+cloneUnit-int((off+int64(n))%cloneUnit))]
		if isZero := bytes.Equal(unit, zeros[:len(unit)]); n == 0 {
			zero = isZero
		} else if isZero != zero {
			break
		}
		n += len(unit)
	}
	return n, zero
}

// accept acknowledges and counts a block that was written, or writes a file that came whole. The
// last block completes its file.
func (in *inbox) accept(e *receiving, h *wire.BlockHeader, c *content) {
	var staged *disk.Staged
	if h.Whole {
		if staged = in.committer.stageWhole(in.lap, e, h.Digest, c.data, c.ranges); staged == nil {
			return // it failed, or came twice
		}
	}
	in.side.pump.ack(h.Index, h.Block)
	first, scattered := true, false
	if !h.Whole {
		first, scattered = e.wrote(h.Block, c.node)
	}
	in.count(h, c, first)
	switch {
	case e.early:
		in.keep(e)
	case !h.Whole:
		in.committer.commitComplete(e)
	}
	if scattered {
		in.fail(e, protocolError("its blocks come too scattered"))
	}
	if first {
		in.side.event(Event{
			Kind: Written, Index: e.index, Entry: &e.entry,
			Bytes: int64(len(c.data)), Copied: c.copied(),
		})
	}
	if staged != nil {
		in.committer.add(stagedFile{e, staged})
	}
}

// count counts a block that was written, first if it was not written before.
func (in *inbox) count(h *wire.BlockHeader, c *content, first bool) {
	counts := &in.side.counts
	counts.read.Add(int64(h.Length))
	counts.coded.Add(int64(h.Length))
	counts.raw.Add(int64(max(h.Raw, h.Length)))
	if first {
		counts.written.Add(int64(len(c.data)) - c.copied())
		counts.copied.Add(c.copied())
	}
}
