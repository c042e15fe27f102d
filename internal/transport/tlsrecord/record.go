// Package tlsrecord carries a stream in TLS 1.3 with a record layer of its own (RFC 8446, section
// 5).
//
// crypto/tls does the handshake. Its record layer costs one system call and one more copy for each
// record of 16 KiB in either direction, which is most of the cost of encryption in a bulk transfer.
// This one gathers many records for each system call, and encrypts and decrypts in place.
package tlsrecord

import (
	"errors"
	"fmt"
)

const (
	headerLen = 5       // type, legacy version, length
	maxPlain  = 1 << 14 // content bytes of one record
	tagLen    = 16      // of every AEAD that TLS 1.3 defines here
	maxRecord = headerLen + maxPlain + 1 + tagLen

	// smallBuffer holds one record. A peer gets no more in either direction until Admit.
	smallBuffer = maxRecord
	// bulkBuffer is what one system call moves. Over loopback, 64 KiB took up to a fifth more CPU,
	// and 512 KiB took no less.
	bulkBuffer = 16 * maxRecord

	// maxUseless bounds the records in a row that bring no data, so that a peer cannot keep a
	// reader busy for nothing.
	maxUseless = 16

	// A peer may update its keys maxUpdates times, and again for each contentPerUpdate bytes of
	// content. An update costs more than the bytes that ask for it. A peer that is not admitted
	// sends less than contentPerUpdate.
	maxUpdates       = 16
	contentPerUpdate = 64 << 10

	// updateAfter is how many records are sealed under one AES-GCM key. RFC 8446, section 5.5,
	// allows about 2^24.5 full ones.
	updateAfter = 1 << 23
)

// Types of records.
const (
	recordAlert       = 21
	recordHandshake   = 22
	recordApplication = 23
)

// keyUpdateType is the only handshake message that may follow the handshake.
const keyUpdateType = 24

// Alerts, RFC 8446 section 6.
const (
	alertCloseNotify       = 0
	alertUnexpectedMessage = 10
	alertBadRecordMAC      = 20
	alertRecordOverflow    = 22
	alertIllegalParameter  = 47
	alertDecodeError       = 50
	alertUserCanceled      = 90
)

var errTooManyUseless = errors.New("too many records without data")

var errTooManyUpdates = errors.New("too many key updates for so little data")

// alertError is a fatal error of the peer. The peer gets the alert.
type alertError struct {
	alert uint8
	err   error
}

func (e *alertError) Error() string { return e.err.Error() }
func (e *alertError) Unwrap() error { return e.err }

func violation(alert uint8, format string, args ...any) error {
	return &alertError{alert, fmt.Errorf(format, args...)}
}
