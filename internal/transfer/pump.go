package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// controlQueue bounds the bytes that wait to be written on a control stream. Beyond it, send
	// waits.
	controlQueue = 1 << 20
	// ackQueue bounds the acknowledgements that wait to be written. Beyond it, ack waits.
	ackQueue = 1 << 16
	// ackEvery is how long acknowledgements gather after a write. A new connection may send ten
	// packets in its first round trip, however small they are (RFC 6928). One for each block would
	// keep the end of a short transfer from leaving.
	ackEvery = 10 * time.Millisecond
	// pingEvery and silence bound how long a dead link goes unnoticed: a peer that has sent nothing
	// for that long is gone. Where a queue is long, packets are lost, and each comes again after the
	// timeout of the kernel: the peer may be silent for silenceTimeouts of them in addition.
	pingEvery       = 5 * time.Second
	silence         = 20 * time.Second
	silenceTimeouts = 6
	// lastWords is the time to read what the peer sent before it closed the stream.
	lastWords = time.Second
)

// slow is a control stream that knows its transport.
type slow interface {
	// Timeout is how long the kernel waits for an acknowledgement by now.
	Timeout() time.Duration
}

// errClosed is the error of whatever is interrupted by the end of the session.
var errClosed = errors.New("session is over")

// pump reads and writes the messages of a session. Messages gather while one write is under way and
// then leave together. So a busy session makes few large writes, and a quiet one has no delay.
// Acknowledgements wait for one another.
type pump struct {
	stream io.ReadWriteCloser
	reader *wire.Reader

	mu    sync.Mutex // guards the following; a leaf: nothing else is locked while it is held
	cond  *sync.Cond
	queue []byte
	acks  []wire.BlockID // acknowledgements, which leave as one message
	late  time.Duration  // how much longer than usual the peer may be silent
	wrote time.Time      // when the last messages left
	timer *time.Timer    // wakes the writer when acknowledgements have waited long enough
	err   error          // once set, nothing is written any more
	flush bool           // write what is queued, then end
}

func newPump(stream io.ReadWriteCloser, r *wire.Reader) *pump {
	p := &pump{stream: stream, reader: r}
	p.cond = sync.NewCond(&p.mu)
	p.timer = time.AfterFunc(time.Hour, p.wake)
	p.timer.Stop()
	return p
}

// start runs the pump: handle gets each message that is not the pump's own, until it returns false
// or an error. Goroutines in tasks write, read and ping until done is closed. end hears how reading
// or writing ended, nil where handle returned false. A peer that refuses closes the stream, so that
// writing fails: the refusal, which is still to be read, is then the error.
func (p *pump) start(
	tasks *sync.WaitGroup, done <-chan struct{},
	handle func(wire.Message) (bool, error), end func(error),
) {
	heard := make(chan struct{}) // closed when reading has ended
	tasks.Go(func() {
		if err := p.write(); err != nil {
			select {
			case <-heard:
			case <-done:
			case <-time.After(lastWords):
			}
			end(fmt.Errorf("control stream: %w", err))
		}
	})
	tasks.Go(func() { p.ping(done) })
	tasks.Go(func() {
		defer close(heard)
		end(p.read(handle))
	})
}

// send queues a message. It waits while the queue is full. After the end of the session it does
// nothing: whoever ended the session has the error.
func (p *pump) send(m wire.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.queue) > controlQueue && p.err == nil && !p.flush {
		p.cond.Wait()
	}
	if p.err != nil || p.flush {
		return
	}
	p.queueAcksLocked()
	p.queue = wire.Append(p.queue, m)
	p.cond.Broadcast()
}

// pong answers a ping, unless the queue is full: then the peer hears enough of us.
func (p *pump) pong(m *wire.Ping) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) > controlQueue || p.err != nil || p.flush {
		return
	}
	p.queue = wire.Append(p.queue, &wire.Pong{Time: m.Time})
	p.cond.Broadcast()
}

// ack queues the acknowledgement of a block. It waits while too many are queued.
func (p *pump) ack(index uint64, block int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ackRoomLocked()
	p.ackLocked(index, block)
}

// ackRoom waits until acknowledgements have left, if too many are queued.
func (p *pump) ackRoom() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ackRoomLocked()
}

func (p *pump) ackRoomLocked() {
	for len(p.acks) > ackQueue && p.err == nil && !p.flush {
		p.cond.Wait()
	}
}

// ackNow is ack without waiting. Callers that hold a lock call ackRoom before they take it.
func (p *pump) ackNow(index uint64, block int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ackLocked(index, block)
}

func (p *pump) ackLocked(index uint64, block int64) {
	p.acks = append(p.acks, wire.BlockID{Index: index, Block: block})
	if len(p.acks) == 1 { // the writer knows of the others, and waits for the timer
		p.cond.Broadcast()
	}
}

// queueAcksLocked queues the acknowledgements so far, so that they stay in order with later
// messages about the same entries.
func (p *pump) queueAcksLocked() {
	if len(p.acks) > 0 {
		p.queue = wire.Append(p.queue, &wire.Written{Blocks: p.acks})
		p.acks = p.acks[:0]
	}
}

// write writes what is queued until end. It returns nil after end, otherwise the error that stopped
// it.
func (p *pump) write() error {
	var out []byte
	for {
		var err error
		if out, err = p.nextBatch(out); len(out) == 0 {
			return err
		}
		p.deadline(setWriteDeadline)
		if _, err := p.stream.Write(out); err != nil {
			p.mu.Lock()
			p.err = err
			p.cond.Broadcast()
			p.mu.Unlock()
			return err
		}
	}
}

// nextBatch waits for messages and takes all of them. spare becomes the room for the next ones. It
// returns nothing when nothing is to be written any more.
func (p *pump) nextBatch(spare []byte) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.waitsLocked() {
		p.cond.Wait()
	}
	p.timer.Stop()
	p.queueAcksLocked()
	if p.err != nil {
		return nil, p.err
	}
	if len(p.queue) == 0 { // flushed
		p.err = errClosed
		return nil, nil
	}
	p.wrote = time.Now()
	batch := p.queue
	p.queue = spare[:0]
	p.cond.Broadcast()
	return batch, nil
}

// waitsLocked reports whether nothing is to be written yet.
func (p *pump) waitsLocked() bool {
	if len(p.queue) > 0 || p.err != nil || p.flush {
		return false
	}
	if len(p.acks) == 0 {
		return true
	}
	left := ackEvery - time.Since(p.wrote)
	if left > 0 {
		p.timer.Reset(left)
	}
	return left > 0
}

func (p *pump) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cond.Broadcast()
}

// ping sends pings until done is closed, whenever nothing was sent for pingEvery. They keep a quiet
// session alive and let the peer notice a dead one.
func (p *pump) ping(done <-chan struct{}) {
	timer := time.NewTimer(pingEvery)
	defer timer.Stop()
	for {
		select {
		case <-done:
			return
		case now := <-timer.C:
			quiet := p.quiet(now)
			if quiet >= pingEvery {
				p.send(&wire.Ping{Time: now.UnixNano()})
				quiet = 0
			}
			timer.Reset(pingEvery - quiet)
		}
	}
}

// quiet returns for how long nothing was sent, and looks how slow the stream is by now.
func (p *pump) quiet(now time.Time) time.Duration {
	var late time.Duration
	if s, ok := p.stream.(slow); ok {
		late = silenceTimeouts * s.Timeout()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = late
	return now.Sub(p.wrote)
}

// end makes write flush the queue within a second and return, and makes read return. The peer hears
// of any cause but errFinished.
func (p *pump) end(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.flush {
		return
	}
	p.flush = true
	if !errors.Is(cause, errFinished) && p.err == nil {
		p.queueAcksLocked()
		p.queue = wire.Append(p.queue, refusal(cause))
	}
	now := time.Now()
	setReadDeadline(p.stream, now)
	setWriteDeadline(p.stream, now.Add(time.Second))
	p.cond.Broadcast()
}

// refusal is the message that tells the peer why a session ends.
func refusal(cause error) *wire.Refuse {
	var known *wire.Error
	switch {
	case errors.As(cause, &known):
		return &wire.Refuse{Code: known.Code, Text: known.Text}
	case errors.Is(cause, wire.ErrMalformed): // on a data stream
		return &wire.Refuse{Code: wire.CodeProtocol, Text: cause.Error()}
	case errors.Is(cause, os.ErrDeadlineExceeded):
		return &wire.Refuse{Code: wire.CodeSilent, Text: "the other side has heard nothing from this host for too long"}
	case errors.Is(cause, context.Canceled):
		return &wire.Refuse{Code: wire.CodeCancelled, Text: "stopped by the user"}
	}
	return &wire.Refuse{Code: wire.CodeOther, Text: cause.Error()}
}

// read calls handle for each message until that returns false or an error, or the stream ends. It
// answers pings itself. handle must not keep the list of Entries or Answers.
func (p *pump) read(handle func(wire.Message) (more bool, err error)) error {
	p.reader.Reuse()
	for {
		if !p.deadline(setReadDeadline) {
			return errClosed
		}
		m, err := p.reader.Next()
		if errors.Is(err, wire.ErrMalformed) {
			return &wire.Error{Code: wire.CodeProtocol, Text: err.Error()}
		}
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *wire.Ping:
			p.pong(m)
		case *wire.Refuse:
			return &wire.Error{Code: m.Code, Text: m.Text, Remote: true}
		default:
			if more, err := handle(m); err != nil || !more {
				return err
			}
		}
	}
}

// deadline gives the peer time for the next step. It returns false when the session is over.
func (p *pump) deadline(set func(any, time.Time)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.flush {
		return false
	}
	set(p.stream, time.Now().Add(silence+p.late))
	return true
}

func setReadDeadline(s any, t time.Time) {
	if d, ok := s.(interface{ SetReadDeadline(time.Time) error }); ok {
		_ = d.SetReadDeadline(t) // it fails only on a closed stream, and then reading reports that
	}
}

func setWriteDeadline(s any, t time.Time) {
	if d, ok := s.(interface{ SetWriteDeadline(time.Time) error }); ok {
		_ = d.SetWriteDeadline(t)
	}
}
