package snapshot

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

// recordKind is what a session knows of a path.
type recordKind byte

const (
	sessionBegins recordKind = iota + 1
	committed                // a file was received; its digest is known
	reused                   // a file is that of the previous snapshot
	same                     // a file was received in an earlier session
	sparse                   // a file was received; its digest is not known
	link                     // another name of a file
	other                    // a folder, a symlink or a special file
	failed                   // the path is missing from the snapshot
)

// record is one line of a ledger's log.
type record struct {
	kind   recordKind
	path   string
	digest [32]byte
	first  string // of a link: the other name of the file
	why    string // of a failure
	seq    uint64 // position in the log, not encoded
}

// maxRecord is the most that an encoded record may take: two paths and a few bytes.
const maxRecord = 16 << 10

var errBroken = errors.New("broken record")

// encode returns the length of the content and its CRC, 4 bytes each, and the content.
func (r *record) encode() []byte {
	b := []byte{byte(r.kind)}
	b = binary.AppendUvarint(b, uint64(len(r.path)))
	b = append(b, r.path...)
	switch r.kind {
	case committed:
		b = append(b, r.digest[:]...)
	case link:
		b = append(b, r.first...)
	case failed:
		b = append(b, r.why...)
	case sessionBegins, reused, same, sparse, other:
	}
	head := binary.BigEndian.AppendUint32(nil, uint32(len(b)))
	head = binary.BigEndian.AppendUint32(head, crc32.ChecksumIEEE(b))
	return append(head, b...)
}

// readRecord returns the next record and its encoded length.
func readRecord(in io.Reader) (r record, n int, err error) {
	var head [8]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return r, 0, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size == 0 || size > maxRecord {
		return r, 0, errBroken
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(in, b); err != nil {
		return r, 0, errBroken
	}
	if crc32.ChecksumIEEE(b) != binary.BigEndian.Uint32(head[4:]) || !r.decode(b) {
		return record{}, 0, errBroken
	}
	return r, len(head) + int(size), nil
}

// decode reads the content of a record, and reports whether it is whole.
func (r *record) decode(b []byte) bool {
	r.kind = recordKind(b[0])
	length, k := binary.Uvarint(b[1:])
	rest := b[1+max(k, 0):]
	if k <= 0 || length > uint64(len(rest)) {
		return false
	}
	r.path, rest = string(rest[:length]), rest[length:]
	switch r.kind {
	case committed:
		return copy(r.digest[:], rest) == len(r.digest) && len(rest) == len(r.digest)
	case link:
		r.first = string(rest)
	case failed:
		r.why = string(rest)
	case sessionBegins, reused, same, sparse, other:
	default:
		return false
	}
	return true
}
