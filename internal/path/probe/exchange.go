package probe

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// splitAt is where a message in two writes is cut: after the bytes that a program might call its
// header.
const splitAt = 16

// line is what carries requests and replies: a Conn, or a TCP connection without TLS.
type line interface {
	io.ReadWriter
	SetNoDelay(bool) error
	SetCork(bool) error
}

// plainLine is a TCP connection without TLS.
type plainLine struct{ *net.TCPConn }

func (l plainLine) SetCork(on bool) error { return transport.SetCork(l.TCPConn, on) }

// writeMessage writes a message in one write or, if split is set, in two: the header first. cork
// holds the header back for the rest.
func writeMessage(l line, msg []byte, split, cork bool) error {
	if !split {
		_, err := l.Write(msg)
		return err
	}
	if cork {
		if err := l.SetCork(true); err != nil {
			return err
		}
	}
	if _, err := l.Write(msg[:splitAt]); err != nil {
		return err
	}
	if _, err := l.Write(msg[splitAt:]); err != nil || !cork {
		return err
	}
	return l.SetCork(false)
}

// answer answers messages up to the last one. head is what has been read of the first.
func answer(l line, head []byte, t *wire.Test, budget *atomic.Int64) error {
	if err := l.SetNoDelay(t.NoDelay); err != nil {
		return err
	}
	msg := make([]byte, t.Size)
	for r := io.MultiReader(bytes.NewReader(head), l); ; {
		if _, err := io.ReadFull(r, msg); err != nil {
			return err
		}
		if budget.Add(-2*int64(t.Size)) < 0 {
			return wire.Errorf(wire.CodeProtocol, "the probe has moved more bytes than it may")
		}
		err := writeMessage(l, msg, t.Split, t.Cork)
		if errors.Is(err, errors.ErrUnsupported) {
			return wire.Errorf(wire.CodeUnsupported, "%v", err)
		}
		if err != nil || msg[0] == 1 {
			return err
		}
	}
}

// exchanger sends messages on one connection and waits for the answer to each.
type exchanger struct {
	line
	msg         []byte
	reply       []byte
	split, cork bool
}

// newExchanger begins a test of messages on c. After its last message, another test may follow.
func newExchanger(c Conn, t wire.Test, noDelay, cork bool) (*exchanger, error) {
	// Without TCP_NODELAY the request of the test would wait for the acknowledgement of what was
	// sent to join the session.
	if err := c.SetNoDelay(true); err != nil {
		return nil, err
	}
	if _, err := c.Write(wire.Append(nil, &t)); err != nil {
		return nil, err
	}
	return exchangerOn(c, &t, noDelay, cork)
}

// exchangerOn sends the messages of a test that the server expects on l.
func exchangerOn(l line, t *wire.Test, noDelay, cork bool) (*exchanger, error) {
	x := &exchanger{line: l, msg: make([]byte, t.Size), reply: make([]byte, t.Size), split: t.Split, cork: cork}
	return x, l.SetNoDelay(noDelay)
}

// once sends one message. It returns the time of its writes, and the time from then until all of its
// answer has come.
func (x *exchanger) once(last bool) (send, wait time.Duration, err error) {
	x.msg[0] = 0
	if last {
		x.msg[0] = 1
	}
	start := time.Now()
	if err := writeMessage(x, x.msg, x.split, x.cork); err != nil {
		return 0, 0, err
	}
	sent := time.Now()
	_, err = io.ReadFull(x, x.reply)
	return sent.Sub(start), time.Since(sent), err
}
