package sftp

import (
	"encoding/binary"
	"io"
	"sync"
)

const (
	readPacket   = 5 // SSH_FXP_READ of draft-ietf-secsh-filexfer-02
	lengthOfSize = 4 // bytes before a packet, which say how long it is
)

// inOrder keeps the requests of a channel in order, as the protocol asks for: the library works on
// several at a time, so a file that is cut while writes are under way could come out longer, and of
// two writes to one place the first could win. Here, requests to read run beside each other, and any
// other one runs alone. One goroutine reads and another one writes.
type inOrder struct {
	io.ReadWriteCloser

	// Of the reader.
	head []byte // of the present request, not handed on yet
	rest uint32 // bytes of it that follow

	// Of the writer.
	answer []byte // the length of the present answer, as far as it is known
	left   uint32 // bytes of it that follow

	mu      sync.Mutex // guards the following
	cond    *sync.Cond
	running int  // requests without an answer
	reads   bool // these read
	ended   bool
}

func newInOrder(channel io.ReadWriteCloser) *inOrder {
	o := &inOrder{ReadWriteCloser: channel}
	o.cond = sync.NewCond(&o.mu)
	return o
}

// Read hands on a request when it may run.
func (o *inOrder) Read(b []byte) (int, error) {
	if len(o.head) == 0 && o.rest == 0 {
		if err := o.begin(); err != nil {
			return 0, err
		}
	}
	if n := copy(b, o.head); n > 0 {
		o.head = o.head[n:]
		return n, nil
	}
	n, err := o.ReadWriteCloser.Read(b[:min(len(b), int(o.rest))])
	o.rest -= uint32(n)
	return n, err
}

// begin reads the head of the next request, and waits until it may run.
func (o *inOrder) begin() error {
	head := make([]byte, lengthOfSize+1)
	if _, err := io.ReadFull(o.ReadWriteCloser, head[:lengthOfSize]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(head)
	if size == 0 || size > 1<<30 { // the library refuses less than that
		return io.ErrUnexpectedEOF
	}
	if _, err := io.ReadFull(o.ReadWriteCloser, head[lengthOfSize:]); err != nil {
		return io.ErrUnexpectedEOF
	}
	reads := head[lengthOfSize] == readPacket
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.running > 0 && (!reads || !o.reads) && !o.ended {
		o.cond.Wait()
	}
	if o.ended {
		return io.ErrUnexpectedEOF
	}
	o.running++
	o.reads, o.head, o.rest = reads, head, size-1
	return nil
}

// Write counts answers.
func (o *inOrder) Write(b []byte) (int, error) {
	n, err := o.ReadWriteCloser.Write(b)
	for b = b[:n]; len(b) > 0; {
		if o.left == 0 {
			part := min(len(b), lengthOfSize-len(o.answer))
			o.answer, b = append(o.answer, b[:part]...), b[part:]
			if len(o.answer) == lengthOfSize {
				o.left, o.answer = binary.BigEndian.Uint32(o.answer), o.answer[:0]
			}
			continue
		}
		part := min(uint32(len(b)), o.left)
		if o.left, b = o.left-part, b[part:]; o.left == 0 {
			o.answered()
		}
	}
	if err != nil {
		o.end()
	}
	return n, err
}

// reading reports whether the requests that run read. What they call may ask.
func (o *inOrder) reading() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.reads
}

func (o *inOrder) answered() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.running--
	o.cond.Broadcast()
}

func (o *inOrder) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.cond.Broadcast()
}

// Close ends the channel, and waits for no answer any more.
func (o *inOrder) Close() error {
	o.end()
	return o.ReadWriteCloser.Close()
}
