package tlsrecord

import (
	"encoding/binary"
	"io"
	"sync/atomic"
)

// writer seals a stream of bytes into records and gathers them in its buffer. It writes the buffer
// to dst when it is full and at the end of each write. It is not safe for concurrent use. Every
// call after an error returns that error, because dst may have taken half a record.
type writer struct {
	dst io.Writer
	half
	size *atomic.Int64 // buf grows to this
	buf  []byte        // buf[:n] is sealed and not yet written to dst
	n    int
	err  error

	updateAfter uint64
	answer      *atomic.Bool
}

// write sends a and then b as one stream. The returned count covers records that dst took whole. If
// b is lent, write seals its records without a copy: the byte behind a record becomes the record's
// type for a moment, and is then put back.
func (e *writer) write(a, b []byte, lent bool) (int, error) {
	if e.err != nil {
		return 0, e.err
	}
	e.grow()
	sent, sealed := 0, 0
	for len(a)+len(b) > 0 {
		if e.seq >= e.updateAfter || e.answer.Load() {
			if err := e.keyUpdate(); err != nil {
				return sent, err
			}
		}
		if len(e.buf)-e.n < maxRecord {
			if err := e.flush(); err != nil {
				return sent, err
			}
			sent = sealed
		}
		if lent && len(a) == 0 && len(b) > maxPlain {
			kept := b[maxPlain]
			b[maxPlain] = recordApplication
			e.seal(b[:maxPlain+1])
			b[maxPlain] = kept
			b = b[maxPlain:]
			sealed += maxPlain
			continue
		}
		inner := e.buf[e.n+headerLen:]
		n := copy(inner[:maxPlain], a)
		n += copy(inner[n:maxPlain], b)
		inner[n] = recordApplication
		e.seal(inner[:n+1])
		fromA := min(n, len(a))
		a, b = a[fromA:], b[n-fromA:]
		sealed += n
	}
	if err := e.flush(); err != nil {
		return sent, err
	}
	return sealed, nil
}

func (e *writer) grow() {
	if size := int(e.size.Load()); e.n == 0 && len(e.buf) < size {
		e.buf = make([]byte, size)
	}
}

// seal appends a record to buf. inner is its content and type. It may already lie in buf, behind
// the room for the header.
func (e *writer) seal(inner []byte) {
	n := len(inner) + tagLen
	rec := e.buf[e.n : e.n+headerLen+n]
	rec[0], rec[1], rec[2] = recordApplication, 3, 3
	binary.BigEndian.PutUint16(rec[3:], uint16(n))
	e.aead.Seal(rec[headerLen:headerLen], e.next(), inner, rec[:headerLen])
	e.n += len(rec)
}

func (e *writer) flush() error {
	if e.n == 0 {
		return nil
	}
	_, e.err = e.dst.Write(e.buf[:e.n])
	e.n = 0
	return e.err
}

// keyUpdate announces new keys to the peer and moves on to them.
func (e *writer) keyUpdate() error {
	e.answer.Store(false)
	if err := e.control(keyUpdateType, 0, 0, 1, 0, recordHandshake); err != nil {
		return err
	}
	e.err = e.update()
	return e.err
}

// control puts a short record into the buffer. inner is its content and type.
func (e *writer) control(inner ...byte) error {
	e.grow()
	if len(e.buf)-e.n < maxRecord {
		if err := e.flush(); err != nil {
			return err
		}
	}
	e.seal(inner)
	return nil
}

// alert sends an alert.
func (e *writer) alert(desc uint8) error {
	if e.err != nil {
		return e.err
	}
	level := byte(2)
	if desc == alertCloseNotify {
		level = 1
	}
	if err := e.control(level, desc, recordAlert); err != nil {
		return err
	}
	return e.flush()
}
