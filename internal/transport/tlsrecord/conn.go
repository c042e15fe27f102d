package tlsrecord

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/transport/stream"
)

// Socket is the connection below a Conn.
type Socket interface {
	net.Conn
	// CloseWrite ends the sending direction.
	CloseWrite() error
	// Hurry lets the next few bytes through even if much unsent data lies before them.
	Hurry()
	// Await makes Read wait for n bytes where it has to wait, as far as the system can.
	Await(n int)
}

// Conn is a TLS 1.3 stream over a Socket. One goroutine may read while another writes. Close may be
// called from anywhere and unblocks both.
type Conn struct {
	raw   Socket
	state atomic.Pointer[tls.ConnectionState] // nil until the handshake is done

	size   atomic.Int64 // of the buffers of in and out
	answer atomic.Bool  // the peer waits for a key update of ours

	readMu sync.Mutex // guards in after the handshake
	in     reader

	writeMu sync.Mutex // guards out after the handshake
	out     writer

	closed atomic.Bool
}

// New returns a Conn that still needs its handshake. Its buffers hold one record each until Admit.
func New(raw Socket) *Conn {
	c := &Conn{raw: raw}
	c.size.Store(smallBuffer)
	c.in = reader{src: raw, await: raw.Await, size: &c.size, answer: &c.answer}
	c.out = writer{dst: raw, size: &c.size, answer: &c.answer, updateAfter: updateAfter}
	return c
}

// Client does the handshake as the client. It closes the Socket if ctx ends first.
func (c *Conn) Client(ctx context.Context, conf *tls.Config) error {
	return c.handshake(ctx, c.raw, conf, true)
}

// Server does the handshake as the server. It closes the Socket if ctx ends first.
func (c *Conn) Server(ctx context.Context, conf *tls.Config) error {
	return c.handshake(ctx, c.raw, conf, false)
}

// State is what the handshake has agreed on, and nil before the handshake is done. The caller must
// not change it.
func (c *Conn) State() *tls.ConnectionState { return c.state.Load() }

// Exporter returns length bytes that both ends of this connection, and nobody else, can compute for
// label (RFC 8446, section 7.5, with an empty context).
func (c *Conn) Exporter(label string, length int) ([]byte, error) {
	return export(c.State(), label, length)
}

// Admit gives the Conn the buffers for bulk data. Until then it keeps one record in each direction
// at most, since its peer may be anybody.
func (c *Conn) Admit() { c.size.Store(bulkBuffer) }

// Read implements io.Reader. It may use all of p as scratch space. Where p has room for whole
// records and a byte more, it returns several at once, without a copy.
func (c *Conn) Read(p []byte) (int, error) { return c.read(p, false) }

// ReadRest is Read where all of p is sure to come, because the peer has announced as much. It waits
// for much of p at once: each time that a reader wakes up costs as much as many bytes.
func (c *Conn) ReadRest(p []byte) (int, error) { return c.read(p, true) }

func (c *Conn) read(p []byte, sure bool) (int, error) {
	if c.State() == nil {
		return 0, stream.ErrNoHandshake
	}
	c.readMu.Lock()
	defer c.readMu.Unlock()
	if c.closed.Load() {
		return 0, net.ErrClosed
	}
	n, err := c.in.read(p, sure)
	if bad := (*alertError)(nil); errors.As(err, &bad) {
		c.sendAlert(bad.alert, err)
	}
	return n, err
}

// Write sends p and returns when the kernel has all of it. Small writes make small packets: gather
// a message and write it once.
func (c *Conn) Write(p []byte) (int, error) { return c.write(nil, p, false) }

// WriteBuffers is Write for a message in two pieces. It sends them as if they were one slice, and
// saves a copy of payload. Until it returns nobody else may read or write payload, because it
// changes bytes of it for moments.
func (c *Conn) WriteBuffers(header, payload []byte) (int, error) {
	return c.write(header, payload, true)
}

func (c *Conn) write(header, payload []byte, lent bool) (int, error) {
	if c.State() == nil {
		return 0, stream.ErrNoHandshake
	}
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	return c.out.write(header, payload, lent)
}

// CloseWrite ends the sending direction: after the last byte the peer reads io.EOF. Reading goes
// on. CloseWrite counts as a write.
func (c *Conn) CloseWrite() error {
	if c.State() == nil {
		return stream.ErrNoHandshake
	}
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if err := c.out.alert(alertCloseNotify); err != nil {
		return err
	}
	c.out.err = fmt.Errorf("write after CloseWrite: %w", net.ErrClosed)
	return c.raw.CloseWrite()
}

// Close ends the stream and the Socket, and unblocks a waiting Read and Write. Only the first call
// does anything.
func (c *Conn) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	if c.State() != nil {
		c.sendAlert(alertCloseNotify, net.ErrClosed)
	}
	return c.raw.Close()
}

// sendAlert ends the sending direction with an alert, unless a Write is under way. Later Writes
// fail with why. It waits for stream.CloseTimeout at most.
func (c *Conn) sendAlert(desc uint8, why error) {
	if !c.writeMu.TryLock() {
		return
	}
	defer c.writeMu.Unlock()
	if c.out.err != nil {
		return
	}
	c.raw.Hurry()
	_ = c.raw.SetWriteDeadline(time.Now().Add(stream.CloseTimeout))
	_ = c.out.alert(desc) // the connection ends in any case
	c.out.err = why
}

// SetDeadline is as in net.Conn.
func (c *Conn) SetDeadline(t time.Time) error { return c.raw.SetDeadline(t) }

// SetReadDeadline is as in net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.raw.SetReadDeadline(t) }

// SetWriteDeadline is as in net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.raw.SetWriteDeadline(t) }

// LocalAddr is the address of this end.
func (c *Conn) LocalAddr() net.Addr { return c.raw.LocalAddr() }

// RemoteAddr is the address of the peer.
func (c *Conn) RemoteAddr() net.Addr { return c.raw.RemoteAddr() }
