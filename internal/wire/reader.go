package wire

import (
	"encoding/binary"
	"io"
)

// Reader reads messages from a stream. It is not safe for concurrent use.
type Reader struct {
	r    io.Reader
	max  int
	head [headerLen]byte
	body []byte
	room *lists // nil unless messages share it
}

// lists is room for the elements of a message.
type lists struct {
	entries []Entry
	answers []Answer
}

// listsKept bounds the elements that a list keeps room for. Messages of this release have fewer.
const listsKept = 2048

// roomFor returns n empty elements. They use the room if there is some.
func roomFor[T any](room []T, n int) []T {
	if cap(room) < n {
		return make([]T, n)
	}
	room = room[:n]
	clear(room)
	return room
}

// NewReader returns a Reader that rejects bodies of more than max bytes. Next reads no byte from r
// beyond the message that it returns.
func NewReader(r io.Reader, max int) *Reader { return &Reader{r: r, max: max} }

// Reuse lets Next use the list of the last Entries or Answers again, so it is valid until the next
// call of Next. That of a thousand entries takes 200 KiB, and a busy session has hundreds a second.
func (r *Reader) Reuse() { r.room = new(lists) }

// Next returns the next message of a known type, and io.EOF when the stream ends between messages.
// The memory for a body grows with the bytes that arrive, not with the announced length.
func (r *Reader) Next() (Message, error) {
	for {
		if _, err := io.ReadFull(r.r, r.head[:]); err != nil {
			return nil, err
		}
		n := int(binary.BigEndian.Uint32(r.head[1:]))
		if n > r.max || n < 0 {
			return nil, malformed("message of %d bytes, limit %d", n, r.max)
		}
		if err := r.readBody(n); err != nil {
			return nil, err
		}
		m, err := decode(Type(r.head[0]), r.body, r.room)
		if m != nil || err != nil {
			return m, err
		}
	}
}

func (r *Reader) readBody(n int) error {
	const step = 16 << 10
	r.body = r.body[:0]
	for len(r.body) < n {
		k := min(step, n-len(r.body))
		at := len(r.body)
		if cap(r.body)-at < k {
			grown := make([]byte, at, max(2*cap(r.body), at+k))
			copy(grown, r.body)
			r.body = grown
		}
		r.body = r.body[:at+k]
		if _, err := io.ReadFull(r.r, r.body[at:]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}
