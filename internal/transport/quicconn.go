package transport

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
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
)

// quicConn is a Conn over QUIC: one stream of a connection.
type quicConn struct {
	link   *link
	stream *quic.Stream
	gone   func() // called once when the stream is closed

	ready  atomic.Bool // the handshake is done
	closed atomic.Bool

	readMu  sync.Mutex
	readErr error

	writeMu  sync.Mutex
	writeErr error
}

func newQUICConn(l *link, s *quic.Stream) *quicConn {
	return &quicConn{link: l, stream: s, gone: func() {}}
}

func (c *quicConn) Read(p []byte) (int, error) {
	if !c.ready.Load() {
		return 0, errNoHandshake
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
	if n > 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) && !isIdle(err) {
		if n > 0 && err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			c.readErr = c.broken(err)
			return n, nil
		}
		return n, err
	}
	c.readErr = c.broken(err)
	return n, c.readErr
}

// isIdle tells that nothing was heard on the connection for too long.
func isIdle(err error) bool {
	var idle *quic.IdleTimeoutError
	return errors.As(err, &idle)
}

// broken says why a stream ended, in terms of Conn: io.EOF only if the peer has closed it.
func (c *quicConn) broken(err error) error {
	switch {
	case err == io.EOF: //nolint:errorlint // quic-go returns the very one
		return io.EOF
	case c.closed.Load():
		return net.ErrClosed
	case isIdle(err):
		return fmt.Errorf("nothing heard for %v: %w", silentLink, io.ErrUnexpectedEOF)
	}
	if alert, ok := alertOf(err); ok {
		return fmt.Errorf("peer ended the connection: %w", alert)
	}
	return fmt.Errorf("%w: %v", io.ErrUnexpectedEOF, err) //nolint:errorlint // quic-go's errors match net.ErrClosed
}

// alertOf returns the alert with which the peer's TLS has ended a connection.
func alertOf(err error) (tls.AlertError, bool) {
	var e *quic.TransportError
	if !errors.As(err, &e) || !e.Remote || !e.ErrorCode.IsCryptoError() {
		return 0, false
	}
	return tls.AlertError(e.ErrorCode), true // its last byte: RFC 9001, section 4.8
}

func (c *quicConn) Write(p []byte) (int, error) { return c.WriteBuffers(p, nil) }

func (c *quicConn) WriteBuffers(header, payload []byte) (int, error) {
	if !c.ready.Load() {
		return 0, errNoHandshake
	}
	total := int64(len(header) + len(payload))
	c.link.writing.Add(total)
	defer c.link.writing.Add(-total)
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if c.writeErr != nil {
		return 0, c.writeErr
	}
	n, err := c.stream.Write(header)
	if err == nil && len(payload) > 0 {
		var m int
		m, err = c.stream.Write(payload)
		n += m
	}
	if err != nil {
		if !errors.Is(err, os.ErrDeadlineExceeded) || isIdle(err) {
			err = c.broken(err)
		}
		c.writeErr = err
	}
	return n, err
}

func (c *quicConn) CloseWrite() error {
	if !c.ready.Load() {
		return errNoHandshake
	}
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if c.writeErr != nil {
		return c.writeErr
	}
	c.writeErr = fmt.Errorf("write after CloseWrite: %w", net.ErrClosed)
	return c.stream.Close()
}

func (c *quicConn) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	if !c.ready.Load() {
		c.stream.CancelWrite(codeClosed)
	} else if c.writeMu.TryLock() {
		if c.writeErr == nil {
			_ = c.stream.Close() // after an earlier Close it would be an error
			c.writeErr = net.ErrClosed
		} else if !errors.Is(c.writeErr, net.ErrClosed) {
			c.stream.CancelWrite(codeClosed) // part of a message is on the way
		}
		c.writeMu.Unlock()
	} else {
		c.stream.CancelWrite(codeClosed)
	}
	c.stream.CancelRead(codeClosed)
	c.link.leave(c)
	c.gone()
	return nil
}

// Handshake waits for the first byte of an accepted stream. The handshake of its connection is done.
func (c *quicConn) Handshake(ctx context.Context) error {
	if c.ready.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, HandshakeTimeout)
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
func (c *quicConn) Admit() { c.link.admit() }

func (c *quicConn) SetDeadline(t time.Time) error      { return c.stream.SetDeadline(t) }
func (c *quicConn) SetReadDeadline(t time.Time) error  { return c.stream.SetReadDeadline(t) }
func (c *quicConn) SetWriteDeadline(t time.Time) error { return c.stream.SetWriteDeadline(t) }

// LocalAddr is this end's address. The socket is bound to none: it is the one that the route to the peer has now.
func (c *quicConn) LocalAddr() net.Addr {
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

// RemoteAddr is the peer's address at this moment.
func (c *quicConn) RemoteAddr() net.Addr { return c.link.conn.RemoteAddr() }

func (c *quicConn) PeerKey() ed25519.PublicKey {
	if !c.ready.Load() {
		return nil
	}
	return c.link.peer
}

func (c *quicConn) PeerCertificates() []*x509.Certificate {
	if !c.ready.Load() || c.link.peer != nil {
		return nil
	}
	return c.link.tls.PeerCertificates
}

func (c *quicConn) Exporter(label string, length int) ([]byte, error) {
	if !c.ready.Load() {
		return nil, errNoHandshake
	}
	return c.link.tls.ExportKeyingMaterial(label, nil, length)
}

// Apply refuses what QUIC does not have.
func (c *quicConn) Apply(sockBuf int, congestion string) error { return quicOnly(sockBuf, congestion) }

// Windows are those of the connection and of its socket.
func (c *quicConn) Windows() Windows {
	snd, rcv := c.link.udp.sizes()
	return Windows{SndBuf: snd, RcvBuf: rcv, SndFixed: true, RcvFixed: true, SndCap: linkFlight, RcvCap: streamWindow}
}

// LimitUnsent has nothing to do: quic-go takes what it can send.
func (c *quicConn) LimitUnsent(int) {}

// SetNoDelay has nothing to do: QUIC never waits for more.
func (c *quicConn) SetNoDelay(bool) error { return nil }
