package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrMalformed is matched by every decoding error: the peer does not speak the protocol.
var ErrMalformed = errors.New("malformed message")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// encoder appends the primitive types of SPEC.md to a buffer.
type encoder struct{ b []byte }

func (e *encoder) uint(v uint64)   { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) int(v int64)     { e.b = binary.AppendVarint(e.b, v) }
func (e *encoder) raw(p []byte)    { e.b = append(e.b, p...) }
func (e *encoder) string(s string) { e.uint(uint64(len(s))); e.b = append(e.b, s...) }
func (e *encoder) strings(v []string) {
	e.uint(uint64(len(v)))
	for _, s := range v {
		e.string(s)
	}
}

func (e *encoder) bool(v bool) {
	if v {
		e.b = append(e.b, 1)
	} else {
		e.b = append(e.b, 0)
	}
}

// decoder reads primitive types from a message body. The first error sticks; reads after it
// return zero values, so a message is decoded straight through and checked once.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = malformed("%s", what)
	}
	d.b = nil
}

// more reports whether there are fields that a peer of before them did not send.
func (d *decoder) more() bool { return len(d.b) > 0 }

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("bad integer")
		return 0
	}
	d.b = d.b[n:]
	return v
}

// count reads the number of elements of a list, each of which takes at least one byte of what is left of
// the body: a count can never make the decoder allocate more than the message it came in.
func (d *decoder) count() int {
	v := d.uint()
	if v > uint64(len(d.b)) {
		d.fail("list longer than its message")
		return 0
	}
	return int(v)
}

// nonNegative reads an unsigned integer that must fit int64.
func (d *decoder) nonNegative() int64 {
	v := d.uint()
	if v > 1<<63-1 {
		d.fail("integer out of range")
		return 0
	}
	return int64(v)
}

func (d *decoder) uint32() uint32 {
	v := d.uint()
	if v > 1<<32-1 {
		d.fail("integer out of range")
	}
	return uint32(v)
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail("bad integer")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) bool() bool { return d.byte() != 0 }

func (d *decoder) byte() byte {
	if len(d.b) < 1 {
		d.fail("message too short")
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) raw(p []byte) {
	if len(d.b) < len(p) {
		d.fail("message too short")
		return
	}
	copy(p, d.b)
	d.b = d.b[len(p):]
}

func (d *decoder) string(max int) string {
	n := d.uint()
	if n > uint64(max) || n > uint64(len(d.b)) {
		d.fail("string too long")
		return ""
	}
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

// strings reads a list of at most MaxStrings strings, each at most as long as a path.
func (d *decoder) strings() (v []string) {
	n := d.count()
	if n > MaxStrings {
		d.fail("list too long")
		return nil
	}
	for range n {
		v = append(v, d.string(MaxPath))
	}
	return v
}
