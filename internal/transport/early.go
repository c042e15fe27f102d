package transport

import (
	"context"
	"net"
	"os"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

// early is what a dialled stream has beyond others as long as the handshake of its connection is not over: it sends in 0-RTT, and remembers what,
// since the server may take nothing of that, or another connection may be faster. Nothing comes back before the handshake is over.
type early struct {
	of *dialled

	saying sync.Mutex // guards the next two, and the stream as long as the handshake is not over
	said   []byte
	sent   int // of that, on the stream

	mu   sync.Mutex
	cond sync.Cond // for what follows
	now  phase
	by   [2]time.Time // deadlines
	gone bool         // closed
	cut  bool         // within a Write
}

// phase is how far an early stream is.
type phase int

const (
	earlySends phase = iota // in 0-RTT
	earlyMoves              // to where the handshake has led
	earlyOver               // it is like others
)

// The directions of a stream.
const (
	reading = iota
	writing
)

func newEarly(d *dialled) *early {
	e := &early{of: d}
	e.cond.L = &e.mu
	return e
}

// writeEarly takes as much of p as there is room for.
func (c *quicConn) writeEarly(p []byte) int {
	e := c.early
	e.saying.Lock()
	defer e.saying.Unlock()
	if e.phase() != earlySends {
		return 0
	}
	d := e.of
	d.mu.Lock()
	p = p[:min(len(p), d.room)]
	d.room -= len(p)
	d.mu.Unlock()
	whole := e.sent == len(e.said)
	e.said = append(e.said, p...)
	if whole { // otherwise something has gone wrong, and the rest is sent when the handshake is over
		n, _ := c.stream.Write(p)
		e.sent += n
	}
	return len(p)
}

func (e *early) phase() phase {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now
}

// move brings the stream to where the handshake has led: conn is that connection if the server knows nothing of the stream, nil if it does.
func (c *quicConn) move(conn *quic.Conn) {
	e := c.early
	e.mu.Lock()
	e.now = earlyMoves
	_ = c.stream.SetWriteDeadline(time.Time{})
	e.mu.Unlock()
	e.saying.Lock() // no Write is left, as the deadline or the handshake has ended it
	defer e.saying.Unlock()
	if conn != nil {
		s, err := conn.OpenStream()
		if err != nil { // the connection is gone, and so is what the stream was on
			return
		}
		e.mu.Lock()
		c.stream, e.sent = s, 0
		e.mu.Unlock()
	}
	_, _ = c.stream.Write(e.said[e.sent:]) // fails for good
	e.said = nil
}

// arrive lets the stream be like others.
func (c *quicConn) arrive() {
	e := c.early
	e.mu.Lock()
	e.now = earlyOver
	_ = c.stream.SetReadDeadline(e.by[reading])
	_ = c.stream.SetWriteDeadline(e.by[writing])
	c.ready.Store(e.of.err == nil)
	if e.cut {
		c.stream.CancelWrite(codeClosed)
	}
	e.cond.Broadcast()
	gone := e.gone
	e.mu.Unlock()
	if gone {
		c.end()
	}
}

// await waits until the handshake is over, at most until the deadline of a direction or Close.
func (c *quicConn) await(direction int) error {
	if c.ready.Load() {
		return nil
	}
	e := c.early
	if e == nil {
		return errNoHandshake
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.now != earlyOver {
		if e.gone {
			return net.ErrClosed
		}
		by := e.by[direction]
		if by.IsZero() {
			e.cond.Wait()
			continue
		}
		left := time.Until(by)
		if left <= 0 {
			return os.ErrDeadlineExceeded
		}
		wake := time.AfterFunc(left, e.wake)
		e.cond.Wait()
		wake.Stop()
	}
	return e.of.err
}

func (e *early) wake() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cond.Broadcast()
}

// handshake waits until the handshake is over, and says how it went.
func (e *early) handshake(ctx context.Context) error {
	select {
	case <-e.of.ready:
		return e.of.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// setEarlyDeadline remembers a deadline, and returns false if the handshake is over.
func (c *quicConn) setEarlyDeadline(direction int, t time.Time) bool {
	e := c.early
	if e == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.now == earlyOver {
		return false
	}
	e.by[direction] = t
	if direction == writing && e.now == earlySends {
		_ = c.stream.SetWriteDeadline(t)
	}
	e.cond.Broadcast()
	return true
}

// closeEarly remembers that the stream was closed, and returns false if the handshake is over.
func (c *quicConn) closeEarly() bool {
	e := c.early
	if e == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.now == earlyOver {
		return false
	}
	e.gone = true
	if c.writeMu.TryLock() {
		c.writeMu.Unlock()
	} else {
		e.cut = true
		c.stream.CancelWrite(codeClosed)
	}
	e.cond.Broadcast()
	return true
}
