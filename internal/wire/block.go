package wire

import "encoding/binary"

// BlockHeaderLen is the length of the header before each block's payload on a data stream.
const BlockHeaderLen = 64

// Block types on a data stream.
const (
	blockData = 1
	blockEnd  = 2
	blockFile = 3
)

// What is done to a payload.
const (
	blockZstd   = 1 << 0
	blockSparse = 1 << 1
	blockPatch  = 1 << 2
)

// BlockHeader precedes the payload of a block.
type BlockHeader struct {
	End    bool     // no block: the sender will send no more on this stream
	Whole  bool     // the only block of a file: Digest is that of the file
	Sparse bool     // the payload is the block's ranges of data, see SPEC.md
	Patch  bool     // the payload says which pieces of the old file the block is made of, see SPEC.md
	Index  uint64   // entry
	Block  int64    // number of the block within the entry
	Length uint32   // bytes of payload, as sent
	Raw    uint32   // of a payload that is a zstd frame: bytes it gives; otherwise 0
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

// ParseBlockHeader decodes b[:BlockHeaderLen]. Whether the block belongs to the manifest is for the caller to check.
func ParseBlockHeader(b []byte) (BlockHeader, error) {
	if len(b) < BlockHeaderLen {
		return BlockHeader{}, malformed("short block header")
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
		return h, malformed("block type %d", b[0])
	}
	h.Sparse, h.Patch = b[1]&blockSparse != 0, b[1]&blockPatch != 0
	if b[1]&^(blockZstd|blockSparse|blockPatch) != 0 || h.Patch && (h.Sparse || h.Whole) {
		return h, malformed("unknown coding %d of a block", b[1])
	}
	h.Length = binary.BigEndian.Uint32(b[4:])
	if b[1]&blockZstd != 0 {
		if h.Raw = binary.BigEndian.Uint32(b[56:]); h.Raw <= h.Length || h.Raw > 1<<MaxBlockLog {
			return h, malformed("a zstd frame of %d bytes gives %d", h.Length, h.Raw)
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
