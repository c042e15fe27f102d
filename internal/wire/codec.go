package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrMalformed matches every decoding error: the peer does not follow the protocol.
var ErrMalformed = errors.New("malformed message")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// encoder appends the primitive types of SPEC.md to a buffer.
type encoder struct{ b []byte }

func (e *encoder) byte(v byte)     { e.b = append(e.b, v) }
func (e *encoder) uint(v uint64)   { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) int(v int64)     { e.b = binary.AppendVarint(e.b, v) }
func (e *encoder) raw(p []byte)    { e.b = append(e.b, p...) }
func (e *encoder) string(s string) { e.uint(uint64(len(s))); e.b = append(e.b, s...) }

// text writes a text for people, cut to MaxText bytes.
func (e *encoder) text(s string) { e.string(s[:min(len(s), MaxText)]) }

func (e *encoder) bool(v bool) {
	if v {
		e.byte(1)
	} else {
		e.byte(0)
	}
}

func (e *encoder) strings(list []string) {
	e.uint(uint64(len(list)))
	for _, s := range list {
		e.string(s)
	}
}

func (e *encoder) uints(list []uint64) {
	e.uint(uint64(len(list)))
	for _, n := range list {
		e.uint(n)
	}
}

// decoder reads primitive types from a message body. It keeps the first error, and every read after
// that returns a zero value. So a message is decoded straight through and checked once at the end.
type decoder struct {
	b     []byte
	room  int    // what lists may still take in memory, bytes
	lists *lists // room for some of them; nil for none
	err   error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = malformed("%s", what)
	}
	d.b = nil
}

// more reports whether the body goes on. An older peer does not send fields that were added later.
func (d *decoder) more() bool { return len(d.b) > 0 }

func (d *decoder) byte() byte {
	if len(d.b) < 1 {
		d.fail("message too short")
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) bool() bool { return d.byte() != 0 }

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("bad integer")
		return 0
	}
	d.b = d.b[n:]
	return v
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

// nonNegative reads a uint that must fit int64.
func (d *decoder) nonNegative() int64 {
	v := d.uint()
	if v > math.MaxInt64 {
		d.fail("integer out of range")
		return 0
	}
	return int64(v)
}

func (d *decoder) uint32() uint32 {
	v := d.uint()
	if v > math.MaxUint32 {
		d.fail("integer out of range")
	}
	return uint32(v)
}

func (d *decoder) raw(p []byte) {
	if len(d.b) < len(p) {
		d.fail("message too short")
		return
	}
	copy(p, d.b)
	d.b = d.b[len(p):]
}

func (d *decoder) string(max int) string { return d.stringLike("", max) }

// stringLike is string, and returns like itself if the string is the same.
func (d *decoder) stringLike(like string, max int) string {
	n := d.uint()
	if n > uint64(max) || n > uint64(len(d.b)) {
		d.fail("string too long")
		return ""
	}
	b := d.b[:n]
	d.b = d.b[n:]
	if string(b) == like {
		return like
	}
	return string(b)
}

// What an element of a list counts in memory, bytes, as SPEC.md says. It is no less than what it
// takes without the bytes of its strings.
const (
	costNumber    = 16 // also an extent, the name of a block, an alias, a short digest or a chunk
	costString    = 32
	costDigest    = 48
	costAttribute = 96
	costAnswer    = 128
	costEntry     = 320
)

// count reads the number of elements in a list. Each element takes at least one byte of the rest of
// the body, and cost bytes of what the message may take in memory: a few bytes on the wire may be
// many in memory, so they are counted before anything is allocated.
func (d *decoder) count(cost int) int {
	v := d.uint()
	if v > uint64(len(d.b)) {
		d.fail("list longer than its message")
		return 0
	}
	n := int(v)
	if n > d.room/cost {
		d.fail("lists take too much memory")
		return 0
	}
	d.room -= n * cost
	return n
}

// entries returns the list that a message of n entries is decoded into.
func (d *decoder) entries(n int) []Entry {
	if d.lists == nil || n > listsKept {
		return make([]Entry, n)
	}
	d.lists.entries = roomFor(d.lists.entries, n)
	return d.lists.entries
}

// answers returns the list that a message of n answers is decoded into.
func (d *decoder) answers(n int) []Answer {
	if d.lists == nil || n > listsKept {
		return make([]Answer, n)
	}
	d.lists.answers = roomFor(d.lists.answers, n)
	return d.lists.answers
}

// strings reads at most MaxStrings strings of at most MaxPath bytes each.
func (d *decoder) strings() (list []string) {
	n := d.count(costString)
	if n > MaxStrings {
		d.fail("list too long")
		return nil
	}
	for range n {
		list = append(list, d.string(MaxPath))
	}
	return list
}

func (d *decoder) uints() (list []uint64) {
	n := d.count(costNumber)
	if n == 0 {
		return nil
	}
	list = make([]uint64, n)
	for i := range list {
		list[i] = d.uint()
	}
	return list
}
