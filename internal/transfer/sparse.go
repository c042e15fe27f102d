package transfer

import (
	"encoding/binary"
	"errors"

	"github.com/fxfer/fxfer/internal/disk"
)

// The payload of a block with holes is the number of its ranges of data, then the offset and length
// of each, and then their data. Numbers have 4 bytes. The ranges ascend, and do not touch.

// appendRanges appends payload, which begins at off in its file, as its ranges of data.
func appendRanges(b, payload []byte, off int64, data []disk.Range) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	for _, r := range data {
		b = binary.BigEndian.AppendUint32(b, uint32(r.Off-off))
		b = binary.BigEndian.AppendUint32(b, uint32(r.Len))
	}
	for _, r := range data {
		b = append(b, payload[r.Off-off:][:r.Len]...)
	}
	return b
}

// parseRanges undoes appendRanges. It fills block, whose length is that of the block, and returns
// the ranges of data in it.
func parseRanges(b, block []byte) ([]disk.Range, error) {
	bad := errors.New("bad ranges of data")
	if len(b) < 4 {
		return nil, bad
	}
	n := int(binary.BigEndian.Uint32(b))
	if b = b[4:]; n > len(b)/8 {
		return nil, bad
	}
	table, content := b[:8*n], b[8*n:]
	clear(block)
	data := make([]disk.Range, 0, n)
	end := int64(-1)
	for ; len(table) > 0; table = table[8:] {
		r := disk.Range{Off: int64(binary.BigEndian.Uint32(table)), Len: int64(binary.BigEndian.Uint32(table[4:]))}
		if r.Off <= end || r.Len == 0 || r.Off+r.Len > int64(len(block)) || r.Len > int64(len(content)) {
			return nil, bad
		}
		content = content[copy(block[r.Off:], content[:r.Len]):]
		end = r.Off + r.Len
		data = append(data, r)
	}
	if len(content) > 0 {
		return nil, bad
	}
	return data, nil
}
