package tlsrecord

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"sync/atomic"
)

// reader turns the records of src into a stream of bytes. It reads src in pieces as large as its
// buffer, and decrypts straight into the caller's slice if that has room for a whole record. It is
// not safe for concurrent use.
type reader struct {
	src   io.Reader
	await func(n int) // makes src wait for n bytes where it has to wait; nil if it cannot
	half
	size    *atomic.Int64 // buf grows to this
	buf     []byte        // buf[r:w] came from src and is not decrypted yet
	r, w    int
	plain   []byte // decrypted in place in buf, not yet handed out
	useless int
	content int64 // bytes received
	updates int64 // of the peer's keys
	err     error // sticky

	// answer is set when the peer asks for an update of our sending keys. The writer clears it.
	answer *atomic.Bool
}

// Read fills p from decrypted and buffered data, and reads src only if there is none. It may use
// all of p as scratch space. It returns io.EOF after the peer's close_notify, and
// io.ErrUnexpectedEOF if src ends without one.
func (d *reader) Read(p []byte) (int, error) { return d.read(p, false) }

// read is Read. If all of p is sure to come, it may wait for much of it at once. The rest of a record that has begun
// is always sure to come.
func (d *reader) read(p []byte, sure bool) (int, error) {
	if len(p) == 0 {
		return 0, d.err
	}
	n := copy(p, d.plain)
	d.plain = d.plain[n:]
	for n < len(p) && d.err == nil {
		length, whole := d.record()
		if !whole {
			if n > 0 || d.err != nil {
				break
			}
			least := 1
			if buffered := d.w - d.r; sure { // its records are longer than their content
				least = len(p) - buffered
			} else if buffered >= headerLen {
				least = length - buffered
			}
			if err := d.fill(least); err != nil {
				return 0, err
			}
			continue
		}
		var m int
		if m, d.err = d.open(p[n:], length); m > 0 {
			n += m
			d.content += int64(m + len(d.plain))
			d.useless = 0
		} else if d.err == nil {
			if d.useless++; d.useless > maxUseless {
				d.err = &alertError{alertUnexpectedMessage, errTooManyUseless}
			}
		}
	}
	if n > 0 {
		return n, nil
	}
	return 0, d.err
}

// record returns the length of the next record with its header, as far as that is known, and
// whether buf holds all of it.
func (d *reader) record() (length int, whole bool) {
	b := d.buf[d.r:d.w]
	if len(b) < headerLen {
		return headerLen, false
	}
	n := int(binary.BigEndian.Uint16(b[3:]))
	switch {
	case b[0] != recordApplication:
		d.err = violation(alertUnexpectedMessage, "record of type %d where only encrypted ones belong", b[0])
	case n > maxRecord-headerLen:
		d.err = violation(alertRecordOverflow, "record of %d bytes", n)
	case n < 1+tagLen:
		d.err = violation(alertDecodeError, "record of %d bytes", n)
	default:
		return headerLen + n, len(b) >= headerLen+n
	}
	return headerLen, false
}

// fill reads src once, with room for at least one record. Where it has to wait, it waits for least
// bytes, or until the buffer is full.
func (d *reader) fill(least int) error {
	rest := d.buf[d.r:d.w]
	size := int(d.size.Load())
	if d.buf == nil { // a stream that only sends reads nothing but its end
		size = min(size, smallBuffer)
	}
	if len(d.buf) < size {
		d.buf = make([]byte, size)
	}
	// The rest is less than one record. Moving it is cheap beside a buffer of many records.
	d.r, d.w = 0, copy(d.buf, rest)
	room := d.buf[d.w:]
	if d.await != nil {
		d.await(max(1, min(least, len(room))))
	}
	n, err := d.src.Read(room)
	d.w += n
	switch {
	case n > 0:
		return nil // a lasting error returns at the next read
	case err == io.EOF:
		d.err = io.ErrUnexpectedEOF
		return d.err
	case err == nil:
		return io.ErrNoProgress
	}
	return err
}

// open decrypts the next record, which has the given length. It decrypts into p, or in place if p
// is too short. It returns how much of p holds content.
func (d *reader) open(p []byte, length int) (int, error) {
	rec := d.buf[d.r : d.r+length]
	d.r += length
	sealed := rec[headerLen:]
	dst := sealed[:0]
	direct := len(p) >= len(sealed)-tagLen
	if direct {
		dst = p[:0:len(p)]
	}
	inner, err := d.aead.Open(dst, d.next(), sealed, rec[:headerLen])
	if err != nil {
		return 0, violation(alertBadRecordMAC, "record %d was altered or is not from the peer", d.seq-1)
	}
	// The inner plaintext is content, its type, and any number of zeros.
	end := len(inner) - 1
	for end >= 0 && inner[end] == 0 {
		end--
	}
	if end < 0 {
		return 0, violation(alertUnexpectedMessage, "record without a type")
	}
	content := inner[:end]
	switch inner[end] {
	case recordApplication:
		if direct {
			return len(content), nil
		}
		n := copy(p, content)
		d.plain = content[n:]
		return n, nil
	case recordAlert:
		return 0, d.alert(content)
	case recordHandshake:
		return 0, d.keyUpdate(content)
	}
	return 0, violation(alertUnexpectedMessage, "record of inner type %d", inner[end])
}

func (d *reader) alert(content []byte) error {
	if len(content) != 2 {
		return violation(alertDecodeError, "alert of %d bytes", len(content))
	}
	switch content[1] {
	case alertCloseNotify:
		return io.EOF
	case alertUserCanceled: // a close_notify follows
		return nil
	}
	return fmt.Errorf("peer ended the connection: %w", tls.AlertError(content[1]))
}

// keyUpdate handles the only handshake message that is allowed now. It must have a record of its
// own, because the keys change behind it.
func (d *reader) keyUpdate(content []byte) error {
	if len(content) != 5 || [4]byte(content) != [4]byte{keyUpdateType, 0, 0, 1} {
		return violation(alertUnexpectedMessage, "handshake message after the handshake")
	}
	switch content[4] {
	case 0:
	case 1:
		d.answer.Store(true)
	default:
		return violation(alertIllegalParameter, "key update request of %d", content[4])
	}
	if d.updates++; d.updates > maxUpdates+d.content/contentPerUpdate {
		return &alertError{alertUnexpectedMessage, errTooManyUpdates}
	}
	return d.update()
}
