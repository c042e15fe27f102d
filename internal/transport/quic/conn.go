package quic

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/fxfer/fxfer/internal/transport/auth"
	"github.com/fxfer/fxfer/internal/transport/stream"
)

// Conn is one stream of a QUIC connection.
type Conn struct {
	link   *link
	stream *quic.Stream
	gone   func() // called once, when the stream is closed

	ready  atomic.Bool // the handshake is done
	closed atomic.Bool

	pacing  pacing       // of writes
	writing atomic.Int64 // bytes of the running Writes that quic-go does not have yet

	readMu  sync.Mutex // guards readErr and reads of stream
	readErr error

	writeMu  sync.Mutex // guards writeErr and writes to stream
	writeErr error
}

func newConn(l *link, s *quic.Stream) *Conn {
	return &Conn{link: l, stream: s, gone: func() {}}
}

// Read implements io.Reader.
func (c *Conn) Read(p []byte) (int, error) {
	if !c.ready.Load() {
		return 0, stream.ErrNoHandshake
	}
	c.readMu.Lock()
	defer c.readMu.Unlock()
	if c.closed.Load() {
		return 0, net.ErrClosed
	}
	if c.readErr != nil {
		return 0, c.readErr
	}
	n, err := c.stream.Read(p)
	if err == nil || passes(err) {
		return n, err
	}
	c.readErr = c.broken(err)
	if n > 0 {
		return n, nil
	}
	return 0, c.readErr
}

// passes reports whether err is that of a deadline, after which a Read may be tried again. An idle
// connection is dead, though its error matches os.ErrDeadlineExceeded.
func passes(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) && !isIdle(err) }

// isIdle reports whether the connection was silent for too long.
func isIdle(err error) bool {
	var idle *quic.IdleTimeoutError
	return errors.As(err, &idle)
}

// broken turns an error of quic-go into one of a stream. It is io.EOF only if the peer has closed
// the stream.
func (c *Conn) broken(err error) error {
	switch {
	case err == io.EOF: //nolint:errorlint // quic-go returns exactly this one
		return io.EOF
	case c.closed.Load():
		return net.ErrClosed
	case isIdle(err):
		return fmt.Errorf("nothing heard for %v: %w", idleTimeout, io.ErrUnexpectedEOF)
	}
	if alert, ok := alertOf(err); ok {
		return fmt.Errorf("peer ended the connection: %w", alert)
	}
	//nolint:errorlint // quic-go's errors match net.ErrClosed
	return fmt.Errorf("%w: %v", io.ErrUnexpectedEOF, err)
}

// ReadRest is Read.
func (c *Conn) ReadRest(p []byte) (int, error) { return c.Read(p) }

// Write returns when quic-go has all of p.
func (c *Conn) Write(p []byte) (int, error) { return c.WriteBuffers(p, nil) }

// WriteBuffers is Write for a message in two pieces.
func (c *Conn) WriteBuffers(header, payload []byte) (int, error) {
	if !c.ready.Load() {
		return 0, stream.ErrNoHandshake
	}
	left := len(header) + len(payload)
	c.waiting(left)
	defer func() { c.waiting(-left) }()
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if c.writeErr != nil {
		return 0, c.writeErr
	}
	if len(payload) == 0 {
		header, payload = nil, header
	}
	sent, err := c.stream.Write(header)
	for err == nil && len(payload) > 0 {
		var n int
		n, err = c.writeStep(payload)
		sent, left, payload = sent+n, left-n, payload[n:]
		c.waiting(-n)
	}
	if err != nil {
		if !passes(err) {
			err = c.broken(err)
		}
		c.writeErr = err
	}
	return sent, err
}

// writeStep writes p, or as much of it as the rate of the stream allows now. In that case it waits
// for the next step.
func (c *Conn) writeStep(p []byte) (int, error) {
	if !c.pacing.begin() {
		return c.stream.Write(p)
	}
	n, err := c.stream.WriteWithLimit(p, c.pacing.grant)
	if errors.Is(err, quic.ErrWriteLimitReached) {
		c.pacing.wait(c.stream.Context().Done())
		err = nil
	}
	return n, err
}

// waiting counts bytes in Writes.
func (c *Conn) waiting(n int) {
	c.writing.Add(int64(n))
	c.link.writing.Add(int64(n))
}

// CloseWrite ends the sending direction: after the last byte the peer reads io.EOF. Reading goes
// on.
func (c *Conn) CloseWrite() error {
	if !c.ready.Load() {
		return stream.ErrNoHandshake
	}
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if c.writeErr != nil {
		return c.writeErr
	}
	c.writeErr = fmt.Errorf("write after CloseWrite: %w", net.ErrClosed)
	return c.stream.Close()
}

// Close ends the stream. Only the first call does anything.
func (c *Conn) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	c.endWriting()
	c.stream.CancelRead(codeClosed)
	c.link.leave(c)
	c.gone()
	return nil
}

// Abort ends the stream, and what was lost of it is not sent again.
func (c *Conn) Abort() error {
	if !c.closed.Load() {
		c.stream.CancelWrite(codeClosed)
	}
	return c.Close()
}

// endWriting ends the sending direction: properly if everything written is whole, and otherwise so
// that the peer sees a broken stream.
func (c *Conn) endWriting() {
	if !c.ready.Load() || !c.writeMu.TryLock() {
		c.stream.CancelWrite(codeClosed)
		return
	}
	defer c.writeMu.Unlock()
	switch {
	case c.writeErr == nil:
		_ = c.stream.Close() // after CloseWrite it would be an error
		c.writeErr = net.ErrClosed
	case !errors.Is(c.writeErr, net.ErrClosed): // a part of a message was sent
		c.stream.CancelWrite(codeClosed)
	}
}

// Handshake waits for the first byte of an accepted stream. The handshake of its connection is
// done. After an error the stream is closed.
func (c *Conn) Handshake(ctx context.Context) error {
	if c.ready.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stream.HandshakeTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = c.stream.SetReadDeadline(time.Unix(1, 0)) })
	var first [1]byte
	_, err := io.ReadFull(c.stream, first[:])
	if !stop() && err == nil {
		err = ctx.Err()
	}
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case err == nil && first[0] != preface:
		err = fmt.Errorf("stream begins with %d", first[0])
	case err != nil:
		err = c.broken(err)
	}
	if err != nil {
		_ = c.Close()
		return fmt.Errorf("handshake with %s: %w", c.RemoteAddr(), err)
	}
	c.ready.Store(true)
	return nil
}

// Admit lets the windows of the connection grow.
func (c *Conn) Admit() { c.link.admit() }

// SetDeadline is as in net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	err := c.stream.SetDeadline(t)
	c.pacing.until(t)
	return err
}

// SetReadDeadline is as in net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.stream.SetReadDeadline(t) }

// SetWriteDeadline is as in net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	err := c.stream.SetWriteDeadline(t)
	c.pacing.until(t)
	return err
}

// LocalAddr is the address of this end. The socket is bound to none, so it is the address of the
// present route to the peer.
func (c *Conn) LocalAddr() net.Addr {
	here, ok := c.link.conn.LocalAddr().(*net.UDPAddr)
	there, ok2 := c.RemoteAddr().(*net.UDPAddr)
	if !ok || !ok2 || !here.IP.IsUnspecified() {
		return c.link.conn.LocalAddr()
	}
	route, err := net.DialUDP("udp", nil, there) // sends nothing
	if err != nil {
		return here
	}
	defer route.Close()
	return &net.UDPAddr{IP: route.LocalAddr().(*net.UDPAddr).IP, Port: here.Port, Zone: here.Zone}
}

// RemoteAddr is the present address of the peer.
func (c *Conn) RemoteAddr() net.Addr { return c.link.conn.RemoteAddr() }

// PeerKey is the key that the peer has proven to own; see auth.PeerKey.
func (c *Conn) PeerKey() ed25519.PublicKey {
	if !c.ready.Load() {
		return nil
	}
	return auth.PeerKey(&c.link.tls)
}

// PeerCertificates is the chain of a peer that presents more than a key; see auth.PeerCertificates.
func (c *Conn) PeerCertificates() []*x509.Certificate {
	if !c.ready.Load() {
		return nil
	}
	return auth.PeerCertificates(&c.link.tls)
}

// Exporter returns length bytes that both ends of this connection, and nobody else, can compute for
// label (RFC 8446, section 7.5, with an empty context).
func (c *Conn) Exporter(label string, length int) ([]byte, error) {
	if !c.ready.Load() {
		return nil, stream.ErrNoHandshake
	}
	return c.link.tls.ExportKeyingMaterial(label, nil, length)
}

// Apply refuses settings that QUIC does not have.
func (c *Conn) Apply(sockBuf int, congestion string) error {
	return CheckSettings(sockBuf, congestion)
}

// Windows are those of the connection and of its socket.
func (c *Conn) Windows() stream.Windows {
	snd, rcv := c.link.udp.sizes()
	return stream.Windows{
		SndBuf: snd, RcvBuf: rcv, SndFixed: true, RcvFixed: true, SndCap: linkFlight, RcvCap: streamWindow,
	}
}

// Prefer does nothing: quic-go has one congestion control.
func (c *Conn) Prefer(bool) error { return nil }

// Pace bounds the rate of new data. What quic-go sends again comes on top.
func (c *Conn) Pace(rate float64) {
	c.pacing.set(rate, c.link.conn.ConnectionStats().MinRTT)
}

// SetLowerEffort marks the packets of the whole connection with the codepoint LE, or no longer.
func (c *Conn) SetLowerEffort(on bool) error {
	if !marksPackets {
		return fmt.Errorf("mark packets of QUIC: %w", errors.ErrUnsupported)
	}
	if peer, ok := c.link.conn.RemoteAddr().(*net.UDPAddr); ok {
		c.link.udp.lower.set(peer, c.link, on)
		if c.link.conn.Context().Err() != nil { // nobody else would forget it
			c.link.udp.lower.forget(c.link)
		}
	}
	return nil
}

// LimitUnsent does nothing: quic-go takes only what it can send.
func (c *Conn) LimitUnsent(int) {}

// LimitUnread does nothing: the window of a stream is that of the Config.
func (c *Conn) LimitUnread(int) {}

// AcknowledgeEach does nothing: QUIC says how long an acknowledgement has waited (RFC 9000, section 13.2.5).
func (c *Conn) AcknowledgeEach() {}

// SetNoDelay does nothing: QUIC never waits for more data.
func (c *Conn) SetNoDelay(bool) error { return nil }

// SetCork does nothing: QUIC decides by itself what shares a packet.
func (c *Conn) SetCork(bool) error { return nil }
