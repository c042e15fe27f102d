package wire

import "encoding/binary"

// BlockHeaderLen is the length of the header before each block's payload on a data stream.
const BlockHeaderLen = 64

// Block types on a data stream.
const (
	blockData = 1
	blockEnd  = 2
)

// BlockHeader precedes the payload of a block.
type BlockHeader struct {
	End    bool     // no block: the sender will send no more on this stream
	Index  uint64   // entry
	Block  int64    // number of the block within the entry
	Length uint32   // bytes of payload
	Digest [32]byte // BLAKE3 chaining value of the block's subtree
}

// Put encodes the header into b[:BlockHeaderLen].
func (h *BlockHeader) Put(b []byte) {
	_ = b[BlockHeaderLen-1]
	clear(b[:BlockHeaderLen])
	b[0] = blockData
	if h.End {
		b[0] = blockEnd
	}
	binary.BigEndian.PutUint32(b[4:], h.Length)
	binary.BigEndian.PutUint64(b[8:], h.Index)
	binary.BigEndian.PutUint64(b[16:], uint64(h.Block))
	copy(b[24:56], h.Digest[:])
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
	default:
		return h, malformed("block type %d", b[0])
	}
	h.Length = binary.BigEndian.Uint32(b[4:])
	h.Index = binary.BigEndian.Uint64(b[8:])
	block := binary.BigEndian.Uint64(b[16:])
	if h.Length > 1<<MaxBlockLog || block > maxBlockNumber {
		return h, malformed("block %d of %d bytes", block, h.Length)
	}
	h.Block = int64(block)
	copy(h.Digest[:], b[24:56])
	return h, nil
}
