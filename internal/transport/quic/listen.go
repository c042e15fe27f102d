package quic

import (
	"context"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/fxfer/fxfer/internal/transport/auth"
	"github.com/fxfer/fxfer/internal/transport/stream"
)

const (
	// maxUnadmitted bounds the connections that are not admitted yet, and maxUnadmittedFrom those
	// from one IPv4 address or IPv6 /64. See stream.Places for those of one network.
	maxUnadmitted     = 1024
	maxUnadmittedFrom = 256
	// From askBack unadmitted connections on, clients have to prove their address. This costs a
	// round trip (RFC 9000, section 8.1.2).
	askBack = 128
)

// errTooMany refuses a connection.
var errTooMany = errors.New("too many connections that are not admitted")

// ListenConfig is what Listen needs.
type ListenConfig struct {
	Auth auth.Config
	// Datagrams is what Listen uses instead of a socket of its own. The caller must not use it any
	// more.
	Datagrams *net.UDPConn
	// Turn, if not nil, is called before a handshake costs anything, and may wait for as long as
	// ctx. Its error ends the connection.
	Turn func(ctx context.Context, client net.Addr) error
}

// Listener accepts streams, of any number of connections.
type Listener struct {
	udp    *udpSocket
	tr     *quic.Transport
	inner  *quic.Listener
	conns  chan *Conn
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	links  sync.WaitGroup // connections that are not gone
	closed sync.Once
	gone   chan struct{} // closed when the socket is

	mu         sync.Mutex // guards what follows
	unadmitted *stream.Places
}

// Listen listens on addr ("host:port"). TCP and UDP share no ports, so it can usually have the
// number that TCP has.
func Listen(addr string, cfg ListenConfig) (*Listener, error) {
	tlsConf, err := cfg.Auth.Server()
	if err != nil {
		return nil, err
	}
	udp, err := bindUDP(addr, cfg.Datagrams)
	if err != nil {
		return nil, err
	}
	reset, err := resetKey(cfg.Auth.Identity)
	if err != nil {
		_ = udp.Close()
		return nil, err
	}
	l := &Listener{
		udp: udp, conns: make(chan *Conn), gone: make(chan struct{}),
		unadmitted: stream.NewPlaces(maxUnadmitted, maxUnadmittedFrom),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.tr = &quic.Transport{
		Conn: udp, StatelessResetKey: reset, VerifySourceAddress: l.crowded, ConnContext: l.begin,
	}
	conf := config()
	conf.MaxIncomingStreams, conf.MaxIncomingUniStreams = maxLinkStreams, 1
	conf.InitialConnectionReceiveWindow = unadmittedWindow
	if cfg.Turn != nil {
		tlsConf.GetConfigForClient = l.turns(cfg.Turn)
	}
	if l.inner, err = l.tr.Listen(tlsConf, conf); err != nil {
		_ = udp.Close()
		return nil, err
	}
	l.links.Go(l.serve)
	return l, nil
}

// resetKey lets a restarted server end connections that it does not know any more (RFC 9000,
// section 10.3).
func resetKey(identity ed25519.PrivateKey) (*quic.StatelessResetKey, error) {
	key, err := hkdf.Key(sha256.New, identity.Seed(), nil, "fxfer stateless reset", len(quic.StatelessResetKey{}))
	if err != nil {
		return nil, err
	}
	return (*quic.StatelessResetKey)(key), nil
}

// crowded reports whether a client has to prove its address.
func (l *Listener) crowded(net.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unadmitted.Taken() >= askBack
}

// begin counts a new connection until it is admitted or gone.
func (l *Listener) begin(ctx context.Context, client *quic.ClientInfo) (context.Context, error) {
	prefix := stream.PrefixOf(client.RemoteAddr)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.unadmitted.Take(prefix) {
		return nil, errTooMany
	}
	x := &link{udp: l.udp}
	x.onAdmit = sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.unadmitted.Give(prefix)
	})
	ctx = context.WithValue(ctx, linkKey{}, x)
	context.AfterFunc(ctx, x.onAdmit)
	return ctx, nil
}

// turns makes each handshake wait for its turn. Only the goroutine of its connection waits.
func (l *Listener) turns(
	turn func(context.Context, net.Addr) error,
) func(*tls.ClientHelloInfo) (*tls.Config, error) {
	return func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		ctx, cancel := context.WithTimeout(l.ctx, stream.HandshakeTimeout)
		defer cancel()
		return nil, turn(ctx, hello.Conn.RemoteAddr())
	}
}

// serve accepts connections until Close.
func (l *Listener) serve() {
	for {
		conn, err := l.inner.Accept(l.ctx)
		if err != nil {
			return
		}
		x := conn.Context().Value(linkKey{}).(*link)
		x.connected(conn)
		l.links.Go(func() { l.serveLink(x) })
	}
}

// serveLink hands out the streams of a connection until it is gone. A connection ends when the
// client has closed all streams that it announced, or does not use it.
func (l *Listener) serveLink(x *link) {
	ctx := x.conn.Context()
	x.mu.Lock()
	x.unused = time.AfterFunc(stream.HandshakeTimeout, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if len(x.open) == 0 {
			go func() { _ = x.conn.CloseWithError(codeIdle, "") }()
		}
	})
	x.mu.Unlock()
	defer x.unused.Stop()
	l.links.Go(func() { x.hearGoodbye(ctx) })
	for {
		s, err := x.conn.AcceptStream(ctx)
		if err != nil {
			return
		}
		c := newConn(x, s)
		x.enter(c)
		select {
		case l.conns <- c:
		case <-ctx.Done():
			_ = c.Close()
			return
		case <-l.ctx.Done():
			_ = c.Close()
		}
	}
}

// hearGoodbye waits until the client says how many streams there were. It ends the connection if
// all of them are closed here, too; otherwise the last one that closes does.
func (l *link) hearGoodbye(ctx context.Context) {
	s, err := l.conn.AcceptUniStream(ctx)
	if err != nil {
		return
	}
	var count [4]byte
	_ = s.SetReadDeadline(time.Now().Add(stream.HandshakeTimeout))
	if _, err := io.ReadFull(s, count[:]); err != nil {
		_ = l.conn.CloseWithError(codeClosed, "")
		return
	}
	l.mu.Lock()
	l.total = int64(binary.BigEndian.Uint32(count[:]))
	over := l.overLocked()
	l.mu.Unlock()
	if over {
		_ = l.conn.CloseWithError(codeDone, "")
	}
}

// Accept waits for the next stream. It returns before the stream's handshake. After Close the error
// matches net.ErrClosed.
func (l *Listener) Accept() (*Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.ctx.Done():
		return nil, fmt.Errorf("accept: %w", net.ErrClosed)
	}
}

// Addr is the address that the Listener listens on.
func (l *Listener) Addr() net.Addr { return l.udp.LocalAddr() }

// Close ends a waiting Accept. The socket stays open until the last connection is gone, or until
// Shutdown.
func (l *Listener) Close() error {
	l.closed.Do(func() {
		l.cancel()
		go func() {
			_ = l.inner.Close()
			l.links.Wait()
			_ = l.tr.Close()
			_ = l.udp.Close()
			close(l.gone)
		}()
	})
	return nil
}

// Shutdown is Close, and waits until all connections are gone. When ctx ends, it ends the rest.
func (l *Listener) Shutdown(ctx context.Context) {
	_ = l.Close()
	select {
	case <-l.gone:
	case <-ctx.Done():
		_ = l.tr.Close()
		<-l.gone
	}
}

// SmallBuffers says what is wrong with the socket's buffers and how to change that. It is "" if
// they are large enough.
func (l *Listener) SmallBuffers() string { return l.udp.small() }
