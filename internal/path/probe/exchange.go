package probe

import (
	"io"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/wire"
)

// splitAt is where a message in two writes is cut: after the bytes that a program might call its
// header.
const splitAt = 16

// writeMessage writes a message in one write or, if split is set, in two: the header first.
func writeMessage(w io.Writer, msg []byte, split bool) error {
	if !split {
		_, err := w.Write(msg)
		return err
	}
	if _, err := w.Write(msg[:splitAt]); err != nil {
		return err
	}
	_, err := w.Write(msg[splitAt:])
	return err
}

// answer answers messages up to the last one.
func answer(c Conn, t *wire.Test, budget *atomic.Int64) error {
	if err := c.SetNoDelay(t.NoDelay); err != nil {
		return err
	}
	msg := make([]byte, t.Size)
	for {
		if _, err := io.ReadFull(c, msg); err != nil {
			return err
		}
		if budget.Add(-2*int64(t.Size)) < 0 {
			return wire.Errorf(wire.CodeProtocol, "the probe has moved more bytes than it may")
		}
		if err := writeMessage(c, msg, t.Split); err != nil {
			return err
		}
		if msg[0] == 1 {
			return nil
		}
	}
}

// exchanger sends messages on one connection and waits for the answer to each.
type exchanger struct {
	conn  Conn
	msg   []byte
	reply []byte
	split bool
}

// newExchanger begins a test of messages on c. After its last message, another test may follow.
func newExchanger(c Conn, t wire.Test, noDelay bool) (*exchanger, error) {
	if err := c.SetNoDelay(noDelay); err != nil {
		return nil, err
	}
	if _, err := c.Write(wire.Append(nil, &t)); err != nil {
		return nil, err
	}
	return &exchanger{conn: c, msg: make([]byte, t.Size), reply: make([]byte, t.Size), split: t.Split}, nil
}

// once sends one message and returns the time until its answer.
func (x *exchanger) once(last bool) (time.Duration, error) {
	x.msg[0] = 0
	if last {
		x.msg[0] = 1
	}
	start := time.Now()
	if err := writeMessage(x.conn, x.msg, x.split); err != nil {
		return 0, err
	}
	_, err := io.ReadFull(x.conn, x.reply)
	return time.Since(start), err
}
