package transport

import (
	"errors"
	"fmt"
	"io"
)

// SafeSegment is the Config.Segment that fits any path that carries IPv6: packets of 1280 bytes at most (RFC 8200, section 5).
const SafeSegment = 1280 - 60

// BlackHoleError says that the peer's packets arrive, but none of our large ones gets there, and no ICMP message says why: a black hole for
// path MTU discovery (RFC 2923, section 2.1).
type BlackHoleError struct {
	Info Info // of the connection
	Err  error
}

func (e *BlackHoleError) Error() string {
	return fmt.Sprintf("packets of %d bytes vanish on the way: %v", e.Info.PMTU, e.Err)
}

// Unwrap returns what ended the connection.
func (e *BlackHoleError) Unwrap() error { return e.Err }

// swallowed looks whether a black hole is why the peer gave up a handshake, and returns a BlackHoleError if so. Even the first message fills
// a packet.
func (c *Conn) swallowed(err error) error {
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		return err // then nothing says that the path is alive
	}
	info, ok := c.Info()
	// The SYN counts as one byte.
	if !ok || info.BytesAcked > 1 || info.RetransSegs == 0 || info.InFlight+info.NotSent < info.SndMSS {
		return err
	}
	return &BlackHoleError{info, err}
}
