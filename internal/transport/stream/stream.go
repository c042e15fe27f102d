// Package stream holds what every transport reports about a stream, so that TCP and QUIC need not
// know each other.
package stream

import (
	"errors"
	"time"
)

// Protocol names what carries a stream.
type Protocol string

// The protocols.
const (
	TCP  Protocol = "tcp"
	QUIC Protocol = "quic"
)

const (
	// HandshakeTimeout is the longest that an accepted peer may take for its handshake. Over 9.6
	// kbit/s, those of two streams at once take 10 s.
	HandshakeTimeout = 20 * time.Second
	// CloseTimeout is how long a stream that was closed may still hold a connection for its last
	// bytes, as long as nothing is known of the peer.
	CloseTimeout = time.Second
)

// LowerEffort is the traffic class of packets that give way to all others: the codepoint LE of RFC
// 8622, 000001, in the upper six bits.
const LowerEffort = 1 << 2

// ErrNoHandshake is returned by methods that need a finished handshake.
var ErrNoHandshake = errors.New("handshake is not done")

// Windows are the buffers of a stream on this host.
type Windows struct {
	// SndBuf and RcvBuf are the present sizes, in bytes as the kernel counts. 0 is unknown.
	SndBuf, RcvBuf int
	// SndFixed and RcvFixed say that a size was set and stays. Otherwise the buffer grows on
	// demand.
	SndFixed, RcvFixed bool
	// SndCap and RcvCap are the most payload, in bytes, that the buffers allow a stream to have in
	// flight. 0 is unknown.
	SndCap, RcvCap int
}
