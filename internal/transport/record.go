package transport

import (
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync/atomic"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/fxfer/fxfer/internal/transport/tlsrecord/vaesgcm"
)

// The record protocol of TLS 1.3 after the handshake, RFC 8446 section 5. crypto/tls does the handshake; its record layer costs one
// system call and one more copy for each 16 KiB record in either direction, which is most of what encryption costs a bulk transfer.

const (
	headerLen = 5       // type, legacy version, length
	maxPlain  = 1 << 14 // content bytes of one record
	tagLen    = 16      // of every AEAD that TLS 1.3 defines here
	maxRecord = headerLen + maxPlain + 1 + tagLen

	recordAlert       = 21
	recordHandshake   = 22
	recordApplication = 23

	keyUpdateType = 24

	alertCloseNotify       = 0
	alertUnexpectedMessage = 10
	alertBadRecordMAC      = 20
	alertRecordOverflow    = 22
	alertIllegalParameter  = 47
	alertDecodeError       = 50
	alertUserCanceled      = 90

	// maxUseless bounds the records in a row that bring no data, so a peer cannot keep a reader busy for nothing.
	maxUseless = 16

	// updateAfter is how many records are sealed under one AES-GCM key. RFC 8446 section 5.5 allows about 2^24.5 full ones.
	updateAfter = 1 << 23
)

var errTooManyUseless = errors.New("too many records without data")

// suite is what the record protocol needs to know of a cipher suite.
type suite struct {
	keyLen int
	hash   func() hash.Hash
	aead   func(key []byte) (cipher.AEAD, error)
}

func suiteOf(id uint16) (suite, error) {
	switch id {
	case tls.TLS_AES_128_GCM_SHA256:
		return suite{16, sha256.New, vaesgcm.New}, nil
	case tls.TLS_AES_256_GCM_SHA384:
		return suite{32, sha512.New384, vaesgcm.New}, nil
	case tls.TLS_CHACHA20_POLY1305_SHA256:
		return suite{chacha20poly1305.KeySize, sha256.New, chacha20poly1305.New}, nil
	}
	return suite{}, fmt.Errorf("cipher suite %s is not supported", tls.CipherSuiteName(id))
}

// expandLabel is HKDF-Expand-Label with an empty context, RFC 8446 section 7.1.
func expandLabel(s suite, secret []byte, label string, length int) ([]byte, error) {
	info := binary.BigEndian.AppendUint16(nil, uint16(length))
	info = append(info, byte(len("tls13 ")+len(label)))
	info = append(info, "tls13 "+label...)
	info = append(info, 0)
	return hkdf.Expand(s.hash, secret, string(info), length)
}

// half holds the keys of one direction, RFC 8446 sections 5.3 and 7.3.
type half struct {
	suite  suite
	secret []byte
	aead   cipher.AEAD
	iv     [12]byte
	nonce  [12]byte // scratch: a local one would be allocated for each record
	seq    uint64   // records under the present key
}

// setSecret starts a new key at sequence number 0.
func (h *half) setSecret(s suite, secret []byte) error {
	key, err := expandLabel(s, secret, "key", s.keyLen)
	if err != nil {
		return fmt.Errorf("derive traffic key: %w", err)
	}
	iv, err := expandLabel(s, secret, "iv", len(h.iv))
	if err != nil {
		return fmt.Errorf("derive traffic iv: %w", err)
	}
	aead, err := s.aead(key)
	if err != nil {
		return fmt.Errorf("make traffic cipher: %w", err)
	}
	h.suite, h.secret, h.aead, h.seq = s, secret, aead, 0
	copy(h.iv[:], iv)
	return nil
}

// update goes to the next generation of keys, RFC 8446 section 7.2.
func (h *half) update() error {
	secret, err := expandLabel(h.suite, h.secret, "traffic upd", h.suite.hash().Size())
	if err != nil {
		return fmt.Errorf("derive next traffic secret: %w", err)
	}
	return h.setSecret(h.suite, secret)
}

// next returns the nonce of the next record; it is valid until the next call.
func (h *half) next() []byte {
	h.nonce = h.iv
	tail := h.nonce[4:]
	binary.BigEndian.PutUint64(tail, binary.BigEndian.Uint64(tail)^h.seq)
	h.seq++
	return h.nonce[:]
}

// alertError is a fatal condition found here that the peer is told about.
type alertError struct {
	alert uint8
	err   error
}

func (e *alertError) Error() string { return e.err.Error() }
func (e *alertError) Unwrap() error { return e.err }

func violation(alert uint8, format string, args ...any) error {
	return &alertError{alert, fmt.Errorf(format, args...)}
}

// recordReader turns the records of src into a stream of bytes. It reads src in pieces as large as its buffer and decrypts straight
// into the caller's slice where a whole record has room. Not safe for concurrent use.
type recordReader struct {
	src io.Reader
	half
	size    *atomic.Int64 // what buf grows to
	buf     []byte        // buf[r:w] came from src and is not decrypted yet
	r, w    int
	plain   []byte // decrypted in place in buf, not yet handed out
	useless int
	err     error // sticky

	// answer is set when the peer asks for an update of our sending keys; the recordWriter clears it.
	answer *atomic.Bool
}

// Read fills p with what is decrypted or buffered and reads src only if that is nothing. All of p may be used as scratch space.
// It returns io.EOF after the peer's close_notify and io.ErrUnexpectedEOF if src ends without one.
func (d *recordReader) Read(p []byte) (int, error) {
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
			if err := d.fill(); err != nil {
				return 0, err
			}
			continue
		}
		var m int
		if m, d.err = d.open(p[n:], length); m > 0 {
			n += m
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

// record returns the length of the next record with its header, as far as it is known, and whether buf holds all of it.
func (d *recordReader) record() (length int, whole bool) {
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

// fill reads src once, with room for at least one record.
func (d *recordReader) fill() error {
	rest := d.buf[d.r:d.w]
	size := int(d.size.Load())
	if d.buf == nil { // on a stream that only sends, this one waits for its end
		size = min(size, smallBuffer)
	}
	if len(d.buf) < size {
		d.buf = make([]byte, size)
	}
	// The rest is less than a record, so moving it is cheap beside a buffer of many records.
	d.r, d.w = 0, copy(d.buf, rest)
	n, err := d.src.Read(d.buf[d.w:])
	d.w += n
	switch {
	case n > 0:
		return nil // a lasting error comes back at the next read
	case err == io.EOF:
		d.err = io.ErrUnexpectedEOF
		return d.err
	case err == nil:
		return io.ErrNoProgress
	}
	return err
}

// open decrypts the next record, of the given length, into p or, where p is too short for it, in place. It returns how much of p
// holds content.
func (d *recordReader) open(p []byte, length int) (int, error) {
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
	// Inner plaintext: content, its type, then any number of zeros.
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

func (d *recordReader) alert(content []byte) error {
	if len(content) != 2 {
		return violation(alertDecodeError, "alert of %d bytes", len(content))
	}
	switch content[1] {
	case alertCloseNotify:
		return io.EOF
	case alertUserCanceled: // says that a close_notify follows
		return nil
	}
	return fmt.Errorf("peer ended the connection: %w", tls.AlertError(content[1]))
}

// keyUpdate takes the only handshake message allowed now, which must come in a record of its own: keys change behind it.
func (d *recordReader) keyUpdate(content []byte) error {
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
	return d.update()
}

// recordWriter seals a stream of bytes into records, gathers them in its buffer and gives it to dst when it is full and at the end of
// each Write. Not safe for concurrent use. After an error every later call returns it: dst may have taken half a record.
type recordWriter struct {
	dst io.Writer
	half
	size *atomic.Int64 // what buf grows to
	buf  []byte        // buf[:n] is sealed and not yet given to dst
	n    int
	err  error

	updateAfter uint64
	answer      *atomic.Bool
}

// write sends a and then b as one stream. The count covers what dst took whole. If b is lent, records are sealed from where it lies,
// without a copy: the byte behind each is the record's type for that moment, then itself again.
func (e *recordWriter) write(a, b []byte, lent bool) (int, error) {
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

func (e *recordWriter) grow() {
	if size := int(e.size.Load()); e.n == 0 && len(e.buf) < size {
		e.buf = make([]byte, size)
	}
}

// seal appends the record of inner, content and type, to buf. inner may stand there already, behind the room for the header.
func (e *recordWriter) seal(inner []byte) {
	n := len(inner) + tagLen
	rec := e.buf[e.n : e.n+headerLen+n]
	rec[0], rec[1], rec[2] = recordApplication, 3, 3
	binary.BigEndian.PutUint16(rec[3:], uint16(n))
	e.aead.Seal(rec[headerLen:headerLen], e.next(), inner, rec[:headerLen])
	e.n += len(rec)
}

func (e *recordWriter) flush() error {
	if e.n == 0 {
		return nil
	}
	_, e.err = e.dst.Write(e.buf[:e.n])
	e.n = 0
	return e.err
}

// keyUpdate tells the peer that new keys follow and goes to them.
func (e *recordWriter) keyUpdate() error {
	e.answer.Store(false)
	if err := e.control(keyUpdateType, 0, 0, 1, 0, recordHandshake); err != nil {
		return err
	}
	e.err = e.update()
	return e.err
}

// control puts the record of a few bytes, content and type, into the buffer.
func (e *recordWriter) control(inner ...byte) error {
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
func (e *recordWriter) alert(desc uint8) error {
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
