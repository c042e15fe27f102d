package hostile

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"testing"

	"github.com/fxfer/fxfer/pkg/fxfer"
	"github.com/quic-go/quic-go"
	"github.com/stretchr/testify/require"
)

// carrier is the transport of the peer and the honest clients. With FXFER_TRANSPORT=quic the tests
// of this package run over QUIC, except those of TLS and of half-open connections, which only exist
// over TCP.
var carrier = fxfer.Transport(os.Getenv("FXFER_TRANSPORT"))

// stream is a stream of a QUIC connection of its own. It begins with a byte 0, as SPEC.md says.
type stream struct {
	*quic.Stream
	conn *quic.Conn
	end  func()
}

func (s stream) LocalAddr() net.Addr  { return s.conn.LocalAddr() }
func (s stream) RemoteAddr() net.Addr { return s.conn.RemoteAddr() }
func (s stream) CloseWrite() error    { return s.Stream.Close() }

func (s stream) Close() error {
	_ = s.conn.CloseWithError(0, "")
	s.end()
	return nil
}

// stateOf returns the TLS state of a connection.
func stateOf(c net.Conn) tls.ConnectionState {
	if s, ok := c.(stream); ok {
		return s.conn.ConnectionState().TLS
	}
	return c.(*tls.Conn).ConnectionState()
}

func (k key) quic() *tls.Config {
	conf := k.config()
	conf.ClientAuth = tls.RequireAnyClientCert
	return conf
}

func dialQUIC(t *testing.T, addr net.Addr, k key) (net.Conn, error) {
	t.Helper()
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	tr := &quic.Transport{Conn: udp}
	end := func() { _ = tr.Close(); _ = udp.Close() }
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	to, err := net.ResolveUDPAddr("udp", addr.String())
	if err != nil {
		return nil, err
	}
	conn, err := tr.Dial(ctx, to, k.quic(), &quic.Config{KeepAlivePeriod: patience / 10})
	if err != nil {
		end()
		return nil, err
	}
	s, err := conn.OpenStreamSync(ctx)
	if err == nil {
		_, err = s.Write([]byte{0})
	}
	return stream{s, conn, end}, err
}

// streams is a net.Listener of the streams of all connections.
type streamListener struct {
	inner *quic.Listener
	ctx   context.Context
	end   context.CancelFunc
	got   chan net.Conn
}

func listenQUIC(t *testing.T, k key) net.Listener {
	t.Helper()
	inner, err := quic.ListenAddr("127.0.0.1:0", k.quic(), &quic.Config{KeepAlivePeriod: patience / 10})
	require.NoError(t, err)
	l := &streamListener{inner: inner, got: make(chan net.Conn)}
	l.ctx, l.end = context.WithCancel(context.Background())
	go func() {
		for {
			conn, err := inner.Accept(l.ctx)
			if err != nil {
				return
			}
			go l.serve(conn)
		}
	}()
	return l
}

func (l *streamListener) serve(conn *quic.Conn) {
	for {
		s, err := conn.AcceptStream(l.ctx)
		if err != nil {
			return
		}
		if _, err := s.Read(make([]byte, 1)); err != nil {
			continue
		}
		select {
		case l.got <- shared{stream{s, conn, func() {}}}:
		case <-l.ctx.Done():
			return
		}
	}
}

// shared is a stream of a connection that has several.
type shared struct{ stream }

func (s shared) Close() error {
	s.CancelRead(0)
	return s.Stream.Close()
}

func (l *streamListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.got:
		return c, nil
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (l *streamListener) Addr() net.Addr { return l.inner.Addr() }

func (l *streamListener) Close() error {
	l.end()
	return l.inner.Close()
}
