package wire

import "encoding/binary"

// A block has 1<<BlockLog bytes.
const (
	MinBlockLog    = 16 // 64 KiB
	MaxBlockLog    = 20 // 1 MiB
	maxBlockNumber = 1 << 47
)

// BlockHeaderLen is the length of the header before each block's payload on a data stream.
const BlockHeaderLen = 64

// Block types on a data stream.
const (
	blockData = 1
	blockEnd  = 2
	blockFile = 3
)

// Flags: how the payload is encoded.
const (
	blockZstd   = 1 << 0
	blockSparse = 1 << 1
	blockPatch  = 1 << 2
)

// BlockHeader precedes the payload of a block. SPEC.md describes the payloads.
type BlockHeader struct {
	End    bool     // not a block: the sender sends nothing more on this stream
	Whole  bool     // the only block of a file: Digest is the digest of the file
	Sparse bool     // the payload is the block's ranges of data
	Patch  bool     // the payload builds the block from pieces of the old file
	Index  uint64   // number of the entry
	Block  int64    // number of the block within the entry
	Length uint32   // bytes of payload on the stream
	Raw    uint32   // bytes that a zstd frame decodes to; 0 if the payload is not compressed
	Digest [32]byte // BLAKE3 chaining value of the block's subtree, or the digest of the whole file
}

// Put encodes the header into b[:BlockHeaderLen].
func (h *BlockHeader) Put(b []byte) {
	_ = b[BlockHeaderLen-1]
	clear(b[:BlockHeaderLen])
	b[0] = blockData
	switch {
	case h.End:
		b[0] = blockEnd
	case h.Whole:
		b[0] = blockFile
	}
	if h.Raw > 0 {
		b[1] |= blockZstd
	}
	if h.Sparse {
		b[1] |= blockSparse
	}
	if h.Patch {
		b[1] |= blockPatch
	}
	binary.BigEndian.PutUint32(b[4:], h.Length)
	binary.BigEndian.PutUint64(b[8:], h.Index)
	binary.BigEndian.PutUint64(b[16:], uint64(h.Block))
	copy(b[24:56], h.Digest[:])
	binary.BigEndian.PutUint32(b[56:], h.Raw)
}

// ParseBlockHeader decodes b[:BlockHeaderLen]. The caller checks that the block belongs to the
// manifest.
func ParseBlockHeader(b []byte) (BlockHeader, error) {
	if len(b) < BlockHeaderLen {
		return BlockHeader{}, malformed("block header too short")
	}
	var h BlockHeader
	switch b[0] {
	case blockEnd:
		h.End = true
		return h, nil
	case blockData:
	case blockFile:
		h.Whole = true
	default:
		return h, malformed("unknown block type %d", b[0])
	}
	h.Sparse, h.Patch = b[1]&blockSparse != 0, b[1]&blockPatch != 0
	if b[1]&^(blockZstd|blockSparse|blockPatch) != 0 || h.Patch && (h.Sparse || h.Whole) {
		return h, malformed("unknown block flags %d", b[1])
	}
	h.Length = binary.BigEndian.Uint32(b[4:])
	if b[1]&blockZstd != 0 {
		h.Raw = binary.BigEndian.Uint32(b[56:])
		if h.Raw <= h.Length || h.Raw > 1<<MaxBlockLog {
			return h, malformed("zstd frame of %d bytes for %d bytes of data", h.Length, h.Raw)
		}
	}
	h.Index = binary.BigEndian.Uint64(b[8:])
	block := binary.BigEndian.Uint64(b[16:])
	if h.Length > 1<<MaxBlockLog || block > maxBlockNumber {
		return h, malformed("block %d of %d bytes", block, h.Length)
	}
	h.Block = int64(block)
	copy(h.Digest[:], b[24:56])
	return h, nil
}

// Extent is a run of Count blocks that begins with block Start.
type Extent struct{ Start, Count int64 }

func (e *encoder) extents(list []Extent) {
	e.uint(uint64(len(list)))
	for _, x := range list {
		e.uint(uint64(x.Start))
		e.uint(uint64(x.Count))
	}
}

// extents accepts only ascending, disjoint, non-empty extents.
func (d *decoder) extents() (list []Extent) {
	var end int64
	n := d.count(costNumber)
	for range n {
		x := Extent{d.nonNegative(), d.nonNegative()}
		if x.Count == 0 || x.Start > maxBlockNumber || x.Count > maxBlockNumber || x.Start < end {
			d.fail("extents out of order")
			return nil
		}
		end = x.Start + x.Count
		if list == nil {
			list = make([]Extent, 0, n)
		}
		list = append(list, x)
	}
	return list
}

// Written acknowledges blocks that the receiver has written.
type Written struct{ Blocks []BlockID }

// BlockID names a block of an entry.
type BlockID struct {
	Index uint64
	Block int64
}

// Type implements Message.
func (*Written) Type() Type { return TypeWritten }

func (m *Written) encode(e *encoder) {
	e.uint(uint64(len(m.Blocks)))
	for _, b := range m.Blocks {
		e.uint(b.Index)
		e.uint(uint64(b.Block))
	}
}

func (m *Written) decode(d *decoder) {
	n := d.count(costNumber)
	m.Blocks = make([]BlockID, 0, n)
	for range n {
		b := BlockID{d.uint(), d.nonNegative()}
		if d.err != nil {
			return
		}
		m.Blocks = append(m.Blocks, b)
	}
}

// Resend asks for blocks again: blocks listed in Have, or just received, whose digests were wrong.
type Resend struct {
	Index  uint64
	Blocks []Extent
}

// Type implements Message.
func (*Resend) Type() Type { return TypeResend }

func (m *Resend) encode(e *encoder) { e.uint(m.Index); e.extents(m.Blocks) }
func (m *Resend) decode(d *decoder) { m.Index = d.uint(); m.Blocks = d.extents() }
