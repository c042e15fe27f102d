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
	err  error        // why it is over
	gone bool         // closed
	cut  bool         // within a Write
}

// phase is how far an early stream is.
type phase int

const (
	earlySends  phase = iota // in 0-RTT
	earlyMoves               // to where the handshake has led
	earlyWrites              // the handshake is over, but the server has not shown its key: nothing is read yet
	earlyOver                // it is like others
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

// arrive lets the stream be written to without bounds, if the handshake has succeeded.
func (c *quicConn) arrive(err error) {
	e := c.early
	e.mu.Lock()
	e.now, e.err = earlyWrites, err
	_ = c.stream.SetReadDeadline(e.by[reading])
	_ = c.stream.SetWriteDeadline(e.by[writing])
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

// trust lets the stream be like others.
func (c *quicConn) trust() {
	e := c.early
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now, e.err = earlyOver, e.of.err
	c.ready.Store(e.err == nil)
	e.cond.Broadcast()
}

// usable tells whether the stream is there: its connection has had its handshake.
func (c *quicConn) usable() bool {
	if c.ready.Load() || c.early == nil {
		return c.ready.Load()
	}
	c.early.mu.Lock()
	defer c.early.mu.Unlock()
	return c.early.now >= earlyWrites && c.early.err == nil
}

// await waits until the handshake is over and a direction can be used, at most until its deadline or Close.
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
	ready := earlyOver
	if direction == writing {
		ready = earlyWrites
	}
	for e.now < ready && e.err == nil {
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
	return e.err
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

// setEarlyDeadline sets a deadline, and returns false if the stream is like others.
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
	switch {
	case direction == writing && e.now != earlyMoves:
		_ = c.stream.SetWriteDeadline(t)
	case direction == reading && e.now == earlyWrites:
		_ = c.stream.SetReadDeadline(t)
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
	e.gone = true
	e.cond.Broadcast()
	if e.now >= earlyWrites {
		return false
	}
	if c.writeMu.TryLock() {
		c.writeMu.Unlock()
	} else {
		e.cut = true
		c.stream.CancelWrite(codeClosed)
	}
	return true
}
