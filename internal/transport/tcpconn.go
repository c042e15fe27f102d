package transport

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// closeWait is how long Close waits for room in the kernel's buffer for the close_notify.
	closeWait = time.Second

	// smallBuffer holds one record: all that a peer gets in either direction until it is admitted.
	smallBuffer = maxRecord
	// bulkBuffer is what one system call moves. Over loopback 64 KiB took up to a fifth more CPU, and 512 KiB no less.
	bulkBuffer = 16 * maxRecord
)

// tcpConn is a Conn over TCP.
type tcpConn struct {
	tcp  *net.TCPConn
	cfg  Config
	conf *tls.Config // until the handshake, accepted conns only

	ready atomic.Bool // the handshake is done; below is set
	state tls.ConnectionState
	peer  ed25519.PublicKey

	window atomic.Pointer[decision] // what was asked of the socket buffers
	buffer atomic.Int64             // size of the buffers of in and out
	answer atomic.Bool              // the peer waits for a key update of ours

	readMu sync.Mutex
	in     recordReader

	writeMu sync.Mutex
	out     recordWriter

	closed atomic.Bool
	hole   atomic.Bool // doubt has proven one
}

func newConn(tcp *net.TCPConn, cfg Config) *tcpConn {
	c := &tcpConn{tcp: tcp, cfg: cfg}
	c.buffer.Store(smallBuffer)
	d := preset(cfg)
	c.window.Store(&d)
	c.in = recordReader{src: socketReader{c}, size: &c.buffer, answer: &c.answer}
	c.out = recordWriter{dst: tcp, size: &c.buffer, answer: &c.answer, updateAfter: updateAfter}
	return c
}

// dialTCP is Dial over TCP.
func dialTCP(ctx context.Context, addr string, cfg Config, expect func(peer ed25519.PublicKey) error) (*tcpConn, error) {
	conf, err := clientTLS(&cfg, addr, expect)
	if err != nil {
		return nil, err
	}
	tcp, err := connectTCP(ctx, addr, cfg)
	if err != nil {
		return nil, err
	}
	c := newConn(tcp, cfg)
	if err := c.settle(); err != nil {
		tcp.Close()
		return nil, err
	}
	sure := func() {}
	if cfg.Doubt && cfg.Path.MTU == 0 {
		sure = c.doubt(ctx, addr, cfg, expect)
	}
	err = c.handshake(ctx, tcp, conf, true)
	sure()
	if err != nil {
		err = c.swallowed(err)
		tcp.Close()
		return nil, fmt.Errorf("handshake with %s: %w", addr, err)
	}
	c.ready.Store(true)
	c.Admit()
	return c, nil
}

// tcpListener is a Listener over TCP.
type tcpListener struct {
	tcp  *net.TCPListener
	cfg  Config
	conf *tls.Config
}

// listenTCP is Listen over TCP.
func listenTCP(addr string, cfg Config) (*tcpListener, error) {
	conf, err := serverTLS(&cfg)
	if err != nil {
		return nil, err
	}
	tcp, err := bindTCP(addr, cfg)
	if err != nil {
		return nil, err
	}
	return &tcpListener{tcp: tcp, cfg: cfg, conf: conf}, nil
}

// Accept waits for the next connection and returns it before its handshake, so that no peer can hold up others: the caller runs
// Handshake in a goroutine of its own. After Close the error matches net.ErrClosed.
func (l *tcpListener) Accept() (*tcpConn, error) {
	tcp, err := l.tcp.AcceptTCP()
	if err != nil {
		return nil, err
	}
	if l.cfg.Socket != nil { // otherwise it comes with it
		_ = tcp.SetKeepAliveConfig(keepAlive)
	}
	c := newConn(tcp, l.cfg)
	c.conf = l.conf
	return c, nil
}

// Addr is the address listened on.
func (l *tcpListener) Addr() net.Addr { return l.tcp.Addr() }

// Close ends a waiting Accept. Accepted conns stay open.
func (l *tcpListener) Close() error { return l.tcp.Close() }

// Handshake authenticates an accepted conn, within HandshakeTimeout at most. Any client with an Ed25519 key passes. After an error
// the conn is closed. On a conn that has had its handshake it does nothing.
func (c *tcpConn) Handshake(ctx context.Context) error {
	if c.ready.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, HandshakeTimeout)
	defer cancel()
	err := c.settle()
	if err == nil {
		err = c.handshake(ctx, c.tcp, c.conf, false)
	}
	if err != nil {
		_ = c.Close()
		return fmt.Errorf("handshake with %s: %w", c.RemoteAddr(), err)
	}
	c.conf = nil
	c.ready.Store(true)
	return nil
}

// Admit gives the conn the buffers that bulk data wants. Until then it takes no more than one record in each direction, since its peer
// may be anyone. Dialled conns are admitted.
func (c *tcpConn) Admit() { c.buffer.Store(bulkBuffer) }

// Read implements io.Reader. It may use all of p as scratch space. It returns whole records at once where p has room for them and a
// byte more, without a copy.
func (c *tcpConn) Read(p []byte) (int, error) {
	if !c.ready.Load() {
		return 0, errNoHandshake
	}
	c.readMu.Lock()
	defer c.readMu.Unlock()
	if c.closed.Load() {
		return 0, net.ErrClosed
	}
	n, err := c.in.Read(p)
	if bad := (*alertError)(nil); errors.As(err, &bad) {
		c.sendAlert(bad.alert, err)
	}
	return n, err
}

// Write sends p and returns when the kernel has all of it. Small writes make small packets: gather a message and write it once.
func (c *tcpConn) Write(p []byte) (int, error) { return c.write(nil, p, false) }

// WriteBuffers is Write for a message in two pieces, sent as if they were one slice, with one copy less: payload is sealed from where
// it lies. Until WriteBuffers returns nobody else may read or write payload, since bytes of it are changed for moments and put back.
func (c *tcpConn) WriteBuffers(header, payload []byte) (int, error) {
	return c.write(header, payload, true)
}

func (c *tcpConn) write(header, payload []byte, lent bool) (int, error) {
	if !c.ready.Load() {
		return 0, errNoHandshake
	}
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	return c.out.write(header, payload, lent)
}

// CloseWrite says that nothing more will be written; the peer reads io.EOF after what was. Reading goes on. It counts as a write.
func (c *tcpConn) CloseWrite() error {
	if !c.ready.Load() {
		return errNoHandshake
	}
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if err := c.out.alert(alertCloseNotify); err != nil {
		return err
	}
	c.out.err = fmt.Errorf("write after CloseWrite: %w", net.ErrClosed)
	return c.tcp.CloseWrite()
}

// Close ends the stream and unblocks a waiting Read and Write. Unless a Write is under way the peer reads io.EOF after what was
// written. What the peer still sends is lost, and on most systems so is then what it has not read yet: to be sure that the peer got
// the last message, call CloseWrite and read to io.EOF first. Only the first call does anything.
func (c *tcpConn) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	if c.ready.Load() {
		c.sendAlert(alertCloseNotify, net.ErrClosed)
	}
	return c.tcp.Close()
}

// sendAlert ends the sending side with an alert, unless a Write holds it, and lets later Writes fail with why. It waits closeWait at most.
func (c *tcpConn) sendAlert(desc uint8, why error) {
	if !c.writeMu.TryLock() {
		return
	}
	defer c.writeMu.Unlock()
	if c.out.err != nil {
		return
	}
	// Unsent data above the low-water mark must not hold back these few bytes.
	setLowWater(c.tcp, 0)
	_ = c.tcp.SetWriteDeadline(time.Now().Add(closeWait))
	_ = c.out.alert(desc) // the connection ends in any case
	c.out.err = why
}

// SetDeadline is as in net.Conn.
func (c *tcpConn) SetDeadline(t time.Time) error { return c.tcp.SetDeadline(t) }

// SetReadDeadline is as in net.Conn.
func (c *tcpConn) SetReadDeadline(t time.Time) error { return c.tcp.SetReadDeadline(t) }

// SetWriteDeadline is as in net.Conn.
func (c *tcpConn) SetWriteDeadline(t time.Time) error { return c.tcp.SetWriteDeadline(t) }

// LimitUnsent bounds how much unsent data the kernel takes, where it can. Write waits for room.
func (c *tcpConn) LimitUnsent(bytes int) { setLowWater(c.tcp, bytes) }

// SetNoDelay sets TCP_NODELAY, which is on unless changed.
func (c *tcpConn) SetNoDelay(on bool) error { return c.tcp.SetNoDelay(on) }

// LocalAddr is this end's address.
func (c *tcpConn) LocalAddr() net.Addr { return c.tcp.LocalAddr() }

// RemoteAddr is the peer's address.
func (c *tcpConn) RemoteAddr() net.Addr { return c.tcp.RemoteAddr() }

// PeerKey is the key the peer has proven to own; nil before the handshake, and of a peer that PeerCertificates tells of. The caller must not
// change it.
func (c *tcpConn) PeerKey() ed25519.PublicKey {
	if !c.ready.Load() {
		return nil
	}
	return c.peer
}

// PeerCertificates is what the peer presented.
func (c *tcpConn) PeerCertificates() []*x509.Certificate {
	if !c.ready.Load() || c.peer != nil {
		return nil
	}
	return c.state.PeerCertificates
}

// Exporter returns length bytes that both ends of this connection, and nobody else, can compute for label (RFC 8446 section 7.5, with
// an empty context).
func (c *tcpConn) Exporter(label string, length int) ([]byte, error) {
	if !c.ready.Load() {
		return nil, errNoHandshake
	}
	return c.state.ExportKeyingMaterial(label, nil, length)
}
