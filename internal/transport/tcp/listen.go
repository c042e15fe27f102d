package tcp

import (
	"context"
	"crypto/tls"
	"net"
	"syscall"
)

// Listener accepts streams.
type Listener struct {
	tcp  *net.TCPListener
	cfg  Config
	conf *tls.Config
}

// Listen listens on addr ("host:port").
func Listen(addr string, cfg Config) (*Listener, error) {
	conf, err := cfg.Auth.Server()
	if err != nil {
		return nil, err
	}
	tcp, err := bind(addr, cfg)
	if err != nil {
		return nil, err
	}
	return &Listener{tcp: tcp, cfg: cfg, conf: conf}, nil
}

func bind(addr string, cfg Config) (*net.TCPListener, error) {
	if cfg.Socket != nil {
		raw, err := cfg.Socket.SyscallConn()
		if err == nil {
			err = prepare(raw, cfg)
		}
		return cfg.Socket, err
	}
	lc := net.ListenConfig{
		KeepAliveConfig: keepAlive,
		Control:         func(_, _ string, raw syscall.RawConn) error { return prepare(raw, cfg) },
	}
	// An MPTCP socket refuses or loses several of the options.
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}

// Accept waits for the next connection. It returns before the handshake, so that no peer can hold
// up others. After Close the error matches net.ErrClosed.
func (l *Listener) Accept() (*Conn, error) {
	tcp, err := l.tcp.AcceptTCP()
	if err != nil {
		return nil, err
	}
	if l.cfg.Socket != nil { // sockets of our own inherit it
		_ = tcp.SetKeepAliveConfig(keepAlive)
	}
	c := newConn(tcp, l.cfg)
	c.conf = l.conf
	return c, nil
}

// Call connects to addr ("host:port") and begins with greeting. The stream is then one that was
// accepted: the peer is the client.
func (l *Listener) Call(ctx context.Context, addr string, greeting []byte) (*Conn, error) {
	tcp, _, err := connectTo(ctx, addr, l.cfg)
	if err != nil {
		return nil, err
	}
	if _, err := tcp.Write(greeting); err != nil { // the send buffer has room for it
		tcp.Close()
		return nil, err
	}
	c := newConn(tcp, l.cfg)
	c.conf = l.conf
	return c, nil
}

// Adopt is Call for a socket that is connected already, and says nothing.
func (l *Listener) Adopt(socket *net.TCPConn) (*Conn, error) {
	if err := adopt(socket, l.cfg); err != nil {
		return nil, err
	}
	c := newConn(socket, l.cfg)
	c.conf = l.conf
	return c, nil
}

// Addr is the address that the Listener listens on.
func (l *Listener) Addr() net.Addr { return l.tcp.Addr() }

// Close ends a waiting Accept. Accepted streams stay open.
func (l *Listener) Close() error { return l.tcp.Close() }

// Shutdown is Close: the kernel delivers what was written.
func (l *Listener) Shutdown(context.Context) { _ = l.Close() }
