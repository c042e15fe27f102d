package transfer

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// controlQueue bounds what waits to be written on a control stream; senders of messages wait beyond it.
	controlQueue = 1 << 20
	// pingEvery and silence bound how long a dead link goes unseen: a peer that says nothing for silence is gone.
	pingEvery = 5 * time.Second
	silence   = 20 * time.Second
)

// errClosed is what queued messages meet after the session ended.
var errClosed = errors.New("session is over")

// control writes the messages of one session. Messages queue up while one write is under way and then leave
// together, so a busy session makes few large writes and a quiet one pays no delay.
type control struct {
	stream io.ReadWriteCloser

	mu      sync.Mutex
	cond    *sync.Cond
	queue   []byte
	written []wire.BlockID // acknowledgements, one message for all of them
	err     error          // sticky: nothing is written any more
	flush   bool           // write what is queued, then end
}

func newControl(stream io.ReadWriteCloser) *control {
	c := &control{stream: stream}
	c.cond = sync.NewCond(&c.mu)
	return c
}

// send queues a message. It waits while the queue is full and is silent after the end of the session: the
// one who ends it has the error.
func (c *control) send(m wire.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) > controlQueue && c.err == nil && !c.flush {
		c.cond.Wait()
	}
	if c.err != nil || c.flush {
		return
	}
	c.flushWrittenLocked()
	c.queue = wire.Append(c.queue, m)
	c.cond.Broadcast()
}

// answer queues a message unless the queue is full: then there is enough to hear of us.
func (c *control) answer(m wire.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) > controlQueue || c.err != nil || c.flush {
		return
	}
	c.queue = wire.Append(c.queue, m)
	c.cond.Broadcast()
}

// ackQueue bounds the acknowledgements that wait to be written.
const ackQueue = 1 << 16

// ack queues the acknowledgement of a block. It waits while too many are queued.
func (c *control) ack(index uint64, block int64) {
	c.mu.Lock()
	for len(c.written) > ackQueue && c.err == nil && !c.flush {
		c.cond.Wait()
	}
	c.written = append(c.written, wire.BlockID{Index: index, Block: block})
	c.cond.Broadcast()
	c.mu.Unlock()
}

// flushWrittenLocked keeps the order of acknowledgements and later messages about the same entries.
func (c *control) flushWrittenLocked() {
	if len(c.written) > 0 {
		c.queue = wire.Append(c.queue, &wire.Written{Blocks: c.written})
		c.written = c.written[:0]
	}
}

// write is the writing goroutine. It returns nil after end, or the error that stopped it.
func (c *control) write() error {
	var out []byte
	for {
		c.mu.Lock()
		for len(c.queue) == 0 && len(c.written) == 0 && c.err == nil && !c.flush {
			c.cond.Wait()
		}
		c.flushWrittenLocked()
		if c.err != nil || c.flush && len(c.queue) == 0 {
			err := c.err
			if err == nil {
				c.err = errClosed
			}
			c.mu.Unlock()
			return err
		}
		out, c.queue = c.queue, out[:0]
		c.cond.Broadcast()
		c.mu.Unlock()

		c.deadline(setWriteDeadline)
		if _, err := c.stream.Write(out); err != nil {
			c.mu.Lock()
			c.err = err
			c.cond.Broadcast()
			c.mu.Unlock()
			return err
		}
	}
}

// ping keeps a quiet session alive and lets the peer see that it is, until done is closed.
func (c *control) ping(done <-chan struct{}) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case now := <-tick.C:
			c.send(&wire.Ping{Time: now.UnixNano()})
		}
	}
}

// end makes write flush what is queued, within a second, and return, and makes read return. A cause other than
// errFinished is told to the peer.
func (c *control) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flush {
		return
	}
	c.flush = true
	if !errors.Is(cause, errFinished) && c.err == nil {
		c.flushWrittenLocked()
		c.queue = wire.Append(c.queue, refusal(cause))
	}
	now := time.Now()
	setReadDeadline(c.stream, now)
	setWriteDeadline(c.stream, now.Add(time.Second))
	c.cond.Broadcast()
}

// refusal tells the peer why a session ends.
func refusal(cause error) *wire.Refuse {
	var known *wire.Error
	switch {
	case errors.As(cause, &known):
		return &wire.Refuse{Code: known.Code, Text: known.Text}
	case errors.Is(cause, wire.ErrMalformed): // of a data stream
		return &wire.Refuse{Code: wire.CodeProtocol, Text: cause.Error()}
	case errors.Is(cause, context.Canceled):
		return &wire.Refuse{Code: wire.CodeCancelled, Text: "stopped by the user"}
	}
	return &wire.Refuse{Code: wire.CodeOther, Text: cause.Error()}
}

// read calls handle for each message until it returns false, an error, or the stream ends. Pings are answered here.
func (c *control) read(r *wire.Reader, handle func(wire.Message) (more bool, err error)) error {
	for {
		if !c.deadline(setReadDeadline) {
			return errClosed
		}
		m, err := r.Next()
		if errors.Is(err, wire.ErrMalformed) {
			return &wire.Error{Code: wire.CodeProtocol, Text: err.Error()}
		}
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *wire.Ping:
			c.answer(&wire.Pong{Time: m.Time})
		case *wire.Refuse:
			return &wire.Error{Code: m.Code, Text: m.Text, Remote: true}
		default:
			if more, err := handle(m); err != nil || !more {
				return err
			}
		}
	}
}

// deadline gives the peer time for the next step, unless the session is over.
func (c *control) deadline(set func(any, time.Time)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flush {
		return false
	}
	set(c.stream, time.Now().Add(silence))
	return true
}

func setReadDeadline(s any, t time.Time) {
	if d, ok := s.(interface{ SetReadDeadline(time.Time) error }); ok {
		_ = d.SetReadDeadline(t) // fails only on a closed stream, which the read then reports
	}
}

func setWriteDeadline(s any, t time.Time) {
	if d, ok := s.(interface{ SetWriteDeadline(time.Time) error }); ok {
		_ = d.SetWriteDeadline(t)
	}
}
