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

// BlackHoleError says that small packets pass in both directions, but large ones vanish in one, and no ICMP message says why: a black hole for
// path MTU discovery (RFC 2923, section 2.1).
type BlackHoleError struct {
	Info Info // of the connection
	From bool // the peer's packets vanish, not ours
	Err  error
}

// Size is the size in bytes of the packets that vanish.
func (e *BlackHoleError) Size() int {
	if e.From {
		return e.Info.AdvMSS + 52 // IPv4, TCP and timestamps
	}
	return e.Info.PMTU
}

// Way names the direction, by the peer's name.
func (e *BlackHoleError) Way(peer string) string {
	if e.From {
		return "from " + peer
	}
	return "to " + peer
}

func (e *BlackHoleError) Error() string {
	return fmt.Sprintf("packets of %d bytes vanish on the way: %v", e.Size(), e.Err)
}

// Unwrap returns what ended the connection.
func (e *BlackHoleError) Unwrap() error { return e.Err }

// swallowed looks whether a black hole is why a handshake failed, and returns a BlackHoleError if so. Even the first message fills a packet,
// in both directions.
func (c *tcpConn) swallowed(err error) error {
	info, ok := c.Info()
	switch {
	case !ok:
	case info.lost() && (c.hole.Load() || errors.Is(err, io.ErrUnexpectedEOF)): // the path is alive
		return &BlackHoleError{Info: info, Err: err}
	case info.unanswered() && c.hole.Load():
		return &BlackHoleError{Info: info, From: true, Err: err}
	}
	return err
}

// lost tells that nothing was acknowledged of a full segment at least that was sent more than once.
func (i *Info) lost() bool {
	return i.BytesAcked <= 1 && i.RetransSegs > 0 && i.InFlight+i.NotSent >= i.SndMSS // the SYN counts as one byte
}

// unanswered tells that our first message arrived, and nothing came back.
func (i *Info) unanswered() bool { return i.BytesAcked > 1 && i.BytesReceived == 0 }

const (
	// doubtAfter is how long the peer may leave our first message without an answer, and doubtEvery how often that is looked at.
	doubtAfter = 750 * time.Millisecond
	doubtEvery = 250 * time.Millisecond
)

// doubt watches a handshake until the func it returns is called, which waits for the watcher. If our first message gets no answer, it tries the
// same with small segments. If that is answered and the other still is not, the handshake ends.
func (c *tcpConn) doubt(ctx context.Context, addr string, cfg Config, expect func(ed25519.PublicKey) error) (sure func()) {
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
			info, ok := c.Info()
			if !ok || info.BytesReceived > 0 {
				return
			}
			if info.lost() || info.unanswered() {
				break
			}
		}
		cfg.Path.MTU = SafeMTU
		answered := false
		small, err := dialTCP(ctx, addr, cfg, func(key ed25519.PublicKey) error {
			answered = true
			return expect(key)
		})
		if err == nil {
			_ = small.Close()
		}
		// A peer that was stopped answers both now, and the small one may be first.
		select {
		case <-ctx.Done():
			return
		case <-time.After(2 * doubtEvery):
		}
		if info, ok := c.Info(); answered && ok && (info.lost() || info.unanswered()) {
			c.hole.Store(true)
			_ = c.tcp.SetDeadline(time.Unix(1, 0))
		}
	}()
	return func() {
		cancel()
		<-ended
		if c.hole.Load() {
			_ = c.tcp.SetDeadline(time.Time{}) // an answer may have come just then
		}
	}
}
