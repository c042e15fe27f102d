package tlsrecord

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/transport/stream"
)

// Standard is what Conn is, with the records and ciphers of crypto/tls. Its peer can't tell the
// difference. It takes one system call for each record of 16 KiB. crypto/tls never changes its keys
// by itself, so writes fail once a key has sealed keyRecords: a session then goes on with another
// stream.
type Standard struct {
	raw   Socket
	below *standardSocket
	tls   *tls.Conn                           // set before state
	state atomic.Pointer[tls.ConnectionState] // nil until the handshake is done

	ended   atomic.Bool // CloseWrite was called
	closed  atomic.Bool
	records atomic.Int64 // that the key may still seal
}

// keyRecords is how many records one key seals. AES-GCM is safe for 2^24.5 (RFC 8446, section 5.5).
// Only tests change it.
var keyRecords int64 = 1 << 24

// errKeyUsed ends a stream whose key has sealed keyRecords.
var errKeyUsed = errors.New("the key of this stream has encrypted as much as it may")

// NewStandard returns a Standard that still needs its handshake.
func NewStandard(raw Socket) *Standard {
	c := &Standard{raw: raw, below: &standardSocket{handshakeConn: handshakeConn{Conn: raw}}}
	c.records.Store(keyRecords)
	return c
}

// Client does the handshake as the client. It closes the Socket if ctx ends first.
func (c *Standard) Client(ctx context.Context, conf *tls.Config) error {
	return c.handshake(ctx, conf, true)
}

// Server does the handshake as the server. It closes the Socket if ctx ends first.
func (c *Standard) Server(ctx context.Context, conf *tls.Config) error {
	return c.handshake(ctx, conf, false)
}

func (c *Standard) handshake(ctx context.Context, conf *tls.Config, client bool) error {
	conf = conf.Clone()
	conf.DynamicRecordSizingDisabled = true // streams are for bulk data
	t, err := authenticate(ctx, c.below, conf, client)
	if err != nil {
		return err
	}
	c.below.done = true
	c.tls = t
	state := t.ConnectionState()
	c.state.Store(&state)
	return nil
}

// State is as in Conn.
func (c *Standard) State() *tls.ConnectionState { return c.state.Load() }

// Exporter is as in Conn.
func (c *Standard) Exporter(label string, length int) ([]byte, error) {
	return export(c.State(), label, length)
}

// Admit does nothing: crypto/tls keeps one record at most.
func (c *Standard) Admit() {}

// Read implements io.Reader.
func (c *Standard) Read(p []byte) (int, error) {
	if c.State() == nil {
		return 0, stream.ErrNoHandshake
	}
	if c.closed.Load() {
		return 0, net.ErrClosed
	}
	n, err := c.tls.Read(p)
	return n, alerted(err)
}

// ReadRest is Read.
func (c *Standard) ReadRest(p []byte) (int, error) { return c.Read(p) }

// Write sends p and returns when the kernel has all of it.
func (c *Standard) Write(p []byte) (int, error) {
	switch {
	case c.State() == nil:
		return 0, stream.ErrNoHandshake
	case c.ended.Load():
		return 0, fmt.Errorf("write after CloseWrite: %w", net.ErrClosed)
	case c.records.Add(-int64(len(p)/maxPlain+1)) < 0:
		return 0, errKeyUsed
	}
	return c.tls.Write(p)
}

// WriteBuffers is Write for a message in two pieces.
func (c *Standard) WriteBuffers(header, payload []byte) (int, error) {
	n, err := c.Write(header)
	if err != nil {
		return n, err
	}
	m, err := c.Write(payload)
	return n + m, err
}

// CloseWrite ends the sending direction: after the last byte the peer reads io.EOF. Reading goes
// on. CloseWrite counts as a write.
func (c *Standard) CloseWrite() error {
	if c.State() == nil {
		return stream.ErrNoHandshake
	}
	c.below.own.Store(true)
	c.ended.Store(true)
	if err := c.tls.CloseWrite(); err != nil {
		return err
	}
	return c.raw.CloseWrite()
}

// Close ends the stream and the Socket, and unblocks a waiting Read and Write. Only the first call
// does anything.
func (c *Standard) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	if c.State() == nil {
		return c.raw.Close()
	}
	c.raw.Hurry()
	c.below.own.Store(true)
	_ = c.raw.SetWriteDeadline(time.Now().Add(stream.CloseTimeout))
	_ = c.tls.Close() // it sends an alert, unless a Write is under way
	return nil
}

// SetDeadline is as in net.Conn.
func (c *Standard) SetDeadline(t time.Time) error { return c.raw.SetDeadline(t) }

// SetReadDeadline is as in net.Conn.
func (c *Standard) SetReadDeadline(t time.Time) error { return c.raw.SetReadDeadline(t) }

// SetWriteDeadline is as in net.Conn.
func (c *Standard) SetWriteDeadline(t time.Time) error { return c.raw.SetWriteDeadline(t) }

// LocalAddr is the address of this end.
func (c *Standard) LocalAddr() net.Addr { return c.raw.LocalAddr() }

// RemoteAddr is the address of the peer.
func (c *Standard) RemoteAddr() net.Addr { return c.raw.RemoteAddr() }

// standardSocket is the socket that crypto/tls sees. The bound on the handshake ends with it.
type standardSocket struct {
	handshakeConn
	done bool        // the handshake is
	own  atomic.Bool // the deadline for writing is ours: crypto/tls gives an alert 5 s
}

// Read never returns io.EOF after the handshake, because crypto/tls would take one between two
// records for the peer's close_notify, and anybody on the line can send that.
func (s *standardSocket) Read(p []byte) (int, error) {
	if !s.done {
		return s.handshakeConn.Read(p)
	}
	n, err := s.Conn.Read(p)
	if errors.Is(err, io.EOF) {
		err = errCut
	}
	return n, err
}

// errCut matches io.ErrUnexpectedEOF without being it, because crypto/tls compares with ==.
var errCut = fmt.Errorf("connection ended without close_notify: %w", io.ErrUnexpectedEOF)

func (s *standardSocket) SetWriteDeadline(t time.Time) error {
	if s.own.Load() {
		return nil
	}
	return s.Conn.SetWriteDeadline(t)
}
