package transport

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"time"
)

// SafeMTU fits any path that carries IPv6, bytes (RFC 8200, section 5).
const SafeMTU = 1280

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

// swallowed looks whether a black hole is why a handshake failed, and returns a BlackHoleError if so. Even the first message fills a packet.
func (c *Conn) swallowed(err error) error {
	info, ok := c.Info()
	if ok && info.lost() && (c.hole.Load() || errors.Is(err, io.ErrUnexpectedEOF)) { // the path is alive
		return &BlackHoleError{info, err}
	}
	return err
}

// lost tells that nothing was acknowledged of a full segment at least that was sent more than once.
func (i *Info) lost() bool {
	return i.BytesAcked <= 1 && i.RetransSegs > 0 && i.InFlight+i.NotSent >= i.SndMSS // the SYN counts as one byte
}

const (
	// doubtAfter is how long the peer's kernel may leave our first message unacknowledged, and doubtEvery how often that is looked at.
	doubtAfter = 750 * time.Millisecond
	doubtEvery = 250 * time.Millisecond
)

// doubt watches a handshake until the func it returns is called, which waits for the watcher. If our first message gets no acknowledgement, it
// tries the same with small segments. If those are answered, the handshake ends at once.
func (c *Conn) doubt(ctx context.Context, addr string, cfg Config, expect func(ed25519.PublicKey) error) (sure func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for wait := doubtAfter; ; wait = doubtEvery {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			if info, ok := c.Info(); !ok || info.BytesAcked > 1 {
				return
			} else if info.lost() {
				break
			}
		}
		cfg.Path.MTU = SafeMTU
		answered := false
		small, err := Dial(ctx, addr, cfg, func(key ed25519.PublicKey) error {
			answered = true
			return expect(key)
		})
		if err == nil {
			_ = small.Close()
		}
		if info, ok := c.Info(); answered && ok && info.lost() {
			c.hole.Store(true)
			_ = c.tcp.SetDeadline(time.Unix(1, 0))
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}
