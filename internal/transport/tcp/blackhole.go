package tcp

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/fxfer/fxfer/internal/transport/auth"
	"github.com/fxfer/fxfer/internal/transport/stream"
)

// SafeMTU fits any path that carries IPv6, bytes (RFC 8200, section 5).
const SafeMTU = 1280

// BlackHoleError says that small packets pass in both directions, but large ones vanish in one
// without an ICMP message: a black hole for path MTU discovery (RFC 2923, section 2.1).
type BlackHoleError struct {
	Info stream.Info // of the connection
	From bool        // packets of the peer vanish, not ours
	Err  error
}

// Size is the size in bytes of the packets that vanish.
func (e *BlackHoleError) Size() int {
	if e.From {
		return e.Info.AdvMSS + 52 // IPv4, TCP and timestamps
	}
	return e.Info.PMTU
}

// Way describes the direction in which packets vanish. peer is the peer's name.
func (e *BlackHoleError) Way(peer string) string {
	if e.From {
		return "from " + peer
	}
	return "to " + peer
}

func (e *BlackHoleError) Error() string {
	return fmt.Sprintf("packets of %d bytes vanish on the way: %v", e.Size(), e.Err)
}

// Unwrap returns the error that ended the connection.
func (e *BlackHoleError) Unwrap() error { return e.Err }

// explainSilence returns a BlackHoleError if a black hole is why the handshake failed with err, and ErrSilent
// if the peer has said nothing. The first message of either side already fills a packet.
func (c *Conn) explainSilence(err error) error {
	info, ok := c.look()
	switch {
	case !ok:
	case lost(&info) && (c.hole.Load() || errors.Is(err, io.ErrUnexpectedEOF)): // the path is alive
		return &BlackHoleError{Info: info, Err: err}
	case unanswered(&info) && c.hole.Load():
		return &BlackHoleError{Info: info, From: true, Err: err}
	}
	if c.mute && errors.Is(err, os.ErrDeadlineExceeded) {
		return ErrSilent
	}
	return err
}

// look is Info, without the SYNs that were sent again: these are small.
func (c *Conn) look() (stream.Info, bool) {
	i, ok := c.Info()
	i.RetransSegs -= min(i.RetransSegs, c.syns)
	return i, ok
}

// lost reports whether at least one full segment was sent more than once and never acknowledged.
func lost(i *stream.Info) bool {
	nothingAcked := i.BytesAcked <= 1 // the SYN counts as one byte
	return nothingAcked && i.RetransSegs > 0 && i.InFlight+i.NotSent >= i.SndMSS
}

// proven reports whether what is lost, or unanswered, cannot be a full queue on the way: that loses one of
// the packets that are sent again now and then, while small ones pass.
func proven(i *stream.Info) bool { return unanswered(i) || lost(i) && i.RetransSegs >= lostLeast }

// unanswered reports whether our first message arrived but nothing came back.
func unanswered(i *stream.Info) bool { return i.BytesAcked > 1 && i.BytesReceived == 0 }

const (
	// doubtAfter is how long the peer may take for the first answer at least, and doubtEvery the time
	// between two looks. On a narrow line, the answer takes as long as our message took.
	doubtAfter = 750 * time.Millisecond
	doubtEvery = 250 * time.Millisecond
	// lostLeast is how often a segment must be sent again before it counts as vanished.
	lostLeast = 2
)

// watchForBlackHole watches a handshake until the caller calls stop, which waits for the watcher.
// If our first message gets no answer, the watcher tries a second connection with small segments.
// If that one is answered and the first one still is not, the watcher ends the first one.
func (c *Conn) watchForBlackHole(ctx context.Context, addr string, cfg Config, expect auth.Expect) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if !c.staysSilent(ctx) || !answersSmall(ctx, addr, cfg, expect) {
			return
		}
		// A peer that was only stopped answers both now. The small packets may be faster.
		for wait := 2 * doubtEvery; ; wait = doubtEvery {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			info, ok := c.look()
			if !ok || !lost(&info) && !unanswered(&info) {
				return
			}
			if proven(&info) {
				c.hole.Store(true)
				_ = c.tcp.SetDeadline(time.Unix(1, 0))
				return
			}
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

// staysSilent waits until our first message has certainly been lost, or stays unanswered. It returns false if
// the peer answers or ctx ends.
func (c *Conn) staysSilent(ctx context.Context) bool {
	began := time.Now()
	var arrived time.Duration // how long our message took there and its acknowledgement back, 0 is unknown
	for {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(doubtEvery):
		}
		info, ok := c.look()
		if !ok || info.BytesReceived > 0 {
			return false
		}
		waited := time.Since(began)
		if arrived == 0 && info.BytesAcked > 1 {
			arrived = waited
		}
		if waited >= doubtAfter && waited >= 2*arrived && proven(&info) {
			return true
		}
	}
}

// answersSmall reports whether the server answers a connection with small segments.
func answersSmall(ctx context.Context, addr string, cfg Config, expect auth.Expect) (answered bool) {
	cfg.Path.MTU, cfg.Connected = SafeMTU, nil
	c, err := Dial(ctx, addr, cfg, func(key ed25519.PublicKey) error {
		answered = true
		return expect(key)
	})
	if err == nil {
		_ = c.Close()
	}
	return answered
}
