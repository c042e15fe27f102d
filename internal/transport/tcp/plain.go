package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
)

// errPlain says that a stream has no TLS.
var errPlain = errors.New("the stream has no TLS")

// plain takes the place of the records of a stream whose peers encrypt by themselves.
type plain struct {
	socketOf
	late lateReader
}

func (*plain) Client(context.Context, *tls.Config) error { return errPlain }
func (*plain) Server(context.Context, *tls.Config) error { return errPlain }
func (*plain) State() *tls.ConnectionState               { return nil }
func (*plain) Exporter(string, int) ([]byte, error)      { return nil, errPlain }
func (*plain) Admit()                                    {}

// Read lets what arrives between two calls be acknowledged at once.
func (p *plain) Read(b []byte) (int, error) { return p.late.read(p.TCPConn, b, p.c.unread) }

func (p *plain) ReadRest(b []byte) (int, error) { return p.Read(b) }

func (p *plain) WriteBuffers(header, payload []byte) (int, error) {
	n, err := (&net.Buffers{header, payload}).WriteTo(p.TCPConn)
	return int(n), err
}

// Plain ends the use of TLS without a word to the peer: from now on the stream carries bytes as they
// are. The peer has to expect that, and must not have sent anything since its last message. Nobody
// else may use c meanwhile.
func (c *Conn) Plain() {
	socketOf{c.tcp, c}.Await(1) // what the records waited for says nothing of what follows them
	c.records = &plain{socketOf: socketOf{c.tcp, c}}
}

// Detach is Plain, but returns the socket. c must not be used any more.
func (c *Conn) Detach() *net.TCPConn {
	c.Plain()
	return c.tcp
}

// Connect connects to addr ("host:port") with the socket that Dial would have, but without TLS.
func Connect(ctx context.Context, addr string, cfg Config) (*Conn, error) {
	tcp, _, err := connectTo(ctx, addr, cfg)
	if err != nil {
		return nil, err
	}
	c := newConn(tcp, cfg)
	c.Plain()
	if err := c.settle(); err != nil {
		tcp.Close()
		return nil, err
	}
	return c, nil
}
