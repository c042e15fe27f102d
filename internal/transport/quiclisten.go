package transport

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
	"net/netip"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

// quicListener is a Listener over QUIC. It returns streams.
type quicListener struct {
	udp    *udpSocket
	tr     *quic.Transport
	inner  *quic.Listener
	conns  chan *quicConn
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	links  sync.WaitGroup // of connections that are not gone
	closed sync.Once
	gone   chan struct{} // closed when the socket is

	mu      sync.Mutex
	strange int // connections that are not admitted
	from    map[netip.Addr]int
}

// listenQUIC is Listen over QUIC. On most ports both can be had, as TCP and UDP share none.
func listenQUIC(addr string, cfg Config) (*quicListener, error) {
	tlsConf, err := serverTLS(&cfg)
	if err != nil {
		return nil, err
	}
	udp, err := bindUDP(addr, cfg)
	if err != nil {
		return nil, err
	}
	reset, err := resetKey(cfg.Identity)
	if err != nil {
		_ = udp.Close()
		return nil, err
	}
	l := &quicListener{udp: udp, conns: make(chan *quicConn), gone: make(chan struct{}), from: make(map[netip.Addr]int)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.tr = &quic.Transport{Conn: udp, StatelessResetKey: reset, VerifySourceAddress: l.doubts, ConnContext: l.greet}
	conf := quicConfig()
	conf.MaxIncomingStreams, conf.MaxIncomingUniStreams = maxLinkStreams, 1
	conf.InitialConnectionReceiveWindow = strangeWindow
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

// resetKey lets a server that was started anew end connections that it does not know any more (RFC 9000, section 10.3).
func resetKey(identity ed25519.PrivateKey) (*quic.StatelessResetKey, error) {
	key, err := hkdf.Key(sha256.New, identity.Seed(), nil, "fxfer stateless reset", len(quic.StatelessResetKey{}))
	if err != nil {
		return nil, err
	}
	return (*quic.StatelessResetKey)(key), nil
}

// doubts tells whether a client has to show that it is where it says.
func (l *quicListener) doubts(net.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.strange >= askBack
}

// errStrangers refuses a connection.
var errStrangers = errors.New("too many connections that are not admitted")

// greet counts a connection that begins, until it is admitted or gone.
func (l *quicListener) greet(ctx context.Context, client *quic.ClientInfo) (context.Context, error) {
	var ip netip.Addr
	if udp, ok := client.RemoteAddr.(*net.UDPAddr); ok {
		ip = udp.AddrPort().Addr().Unmap()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.strange >= maxStrangeLinks || l.from[ip] >= strangeLinksFrom {
		return nil, errStrangers
	}
	l.strange++
	l.from[ip]++
	x := &link{udp: l.udp}
	x.known = sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.strange--
		if l.from[ip]--; l.from[ip] == 0 {
			delete(l.from, ip)
		}
	})
	ctx = context.WithValue(ctx, linkKey{}, x)
	context.AfterFunc(ctx, x.known)
	return ctx, nil
}

// turns has each handshake wait for its turn. Only the goroutine of its connection waits.
func (l *quicListener) turns(turn func(context.Context, net.Addr) error) func(*tls.ClientHelloInfo) (*tls.Config, error) {
	return func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		ctx, cancel := context.WithTimeout(l.ctx, HandshakeTimeout)
		defer cancel()
		return nil, turn(ctx, hello.Conn.RemoteAddr())
	}
}

// serve accepts connections until Close.
func (l *quicListener) serve() {
	for {
		conn, err := l.inner.Accept(l.ctx)
		if err != nil {
			return
		}
		x := conn.Context().Value(linkKey{}).(*link)
		x.settle(conn)
		l.links.Go(func() { l.accept(x) })
	}
}

// accept hands out the streams of a connection, until it is gone: it ends when the client says that it was all, or does not use it.
func (l *quicListener) accept(x *link) {
	ctx := x.conn.Context()
	x.mu.Lock()
	x.unused = time.AfterFunc(HandshakeTimeout, func() {
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
		c := newQUICConn(x, s)
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

// hearGoodbye waits for the client to say how many streams there were, and ends the connection when all of them are closed here, too.
func (l *link) hearGoodbye(ctx context.Context) {
	s, err := l.conn.AcceptUniStream(ctx)
	if err != nil {
		return
	}
	_ = s.SetReadDeadline(time.Now().Add(HandshakeTimeout))
	var count [4]byte
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

func (l *quicListener) Accept() (Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.ctx.Done():
		return nil, fmt.Errorf("accept: %w", net.ErrClosed)
	}
}

func (l *quicListener) Addr() net.Addr { return l.udp.LocalAddr() }

// Close ends a waiting Accept. The socket is closed when the last accepted conn is gone, or by Shutdown.
func (l *quicListener) Close() error {
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

// Shutdown ends what is left, after ctx at the latest.
func (l *quicListener) Shutdown(ctx context.Context) {
	_ = l.Close()
	select {
	case <-l.gone:
	case <-ctx.Done():
		_ = l.tr.Close()
		<-l.gone
	}
}

// SmallBuffers tells what is wrong with the socket of a Listener of QUIC, and the remedy; "" if nothing is.
func SmallBuffers(l Listener) string {
	if q, ok := l.(*quicListener); ok {
		return q.udp.small()
	}
	return ""
}
