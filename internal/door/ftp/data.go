package ftp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/door"
)

// connectWithin bounds the time until a data connection is there, with TLS.
const connectWithin = 30 * time.Second

var (
	errNoConnection = errors.New("no data connection came from this address")
	errWhose        = errors.New("several connections came from this address, and none resumes the TLS session: they may be of others")
	errCut          = errors.New("the data connection ended without the end of TLS (close_notify): what came may not be whole")
	errFull         = errors.New("this server has no room for more connections")
)

// opener opens the data connection of the next transfer.
type opener interface {
	// open returns the connection, with TLS unless cfg is nil. The caller closes it. It is called once.
	// patience is how much later than another connection that of the client may come.
	// Errors: errNoConnection, errWhose, those of TLS, and those of ctx.
	open(ctx context.Context, cfg *tls.Config, patience time.Duration) (*dataConn, error)
	close()
}

// active connects to a client that listens.
type active struct{ to netip.AddrPort }

func (a active) open(ctx context.Context, cfg *tls.Config, _ time.Duration) (*dataConn, error) {
	var d net.Dialer
	d.SetMultipathTCP(false) // as all sockets of the server
	c, err := d.DialContext(ctx, "tcp", a.to.String())
	switch {
	case err == nil:
		return newDataConn(ctx, c, cfg)
	case ctx.Err() != nil:
		return nil, errNoConnection
	}
	return nil, err
}

func (a active) close() {}

// dataConn is a data connection. It has a deadline for each read and write.
type dataConn struct {
	io.ReadWriter           // with TLS or without
	raw           *socket   // below it
	tls           *tls.Conn // nil without
}

// socket is a data connection without its TLS.
type socket struct {
	net.Conn
	ended atomic.Bool // the peer has closed it
}

func (s *socket) Read(b []byte) (int, error) {
	_ = s.SetReadDeadline(time.Now().Add(door.SilentFor))
	n, err := s.Conn.Read(b)
	if errors.Is(err, io.EOF) {
		s.ended.Store(true)
	}
	return n, err
}

func (s *socket) Write(b []byte) (int, error) {
	_ = s.SetWriteDeadline(time.Now().Add(door.SilentFor))
	return s.Conn.Write(b)
}

// openData opens the data connection as opener.open does, within connectWithin.
func openData(ctx context.Context, o opener, cfg *tls.Config, patience time.Duration) (*dataConn, error) {
	begin, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	d, err := o.open(begin, cfg, patience)
	if err != nil {
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	return d, nil
}

// newDataConn begins TLS on a data connection, unless cfg is nil. It closes c after an error.
func newDataConn(ctx context.Context, c net.Conn, cfg *tls.Config) (*dataConn, error) {
	d := &dataConn{raw: &socket{Conn: c}}
	d.ReadWriter = d.raw
	if cfg == nil {
		return d, nil
	}
	d.tls = tls.Server(d.raw, cfg)
	d.ReadWriter = d.tls
	if err := d.tls.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("TLS on the data connection: %w", err)
	}
	return d, nil
}

// resumes reports whether the other end has proven that it is that of the control connection.
func (d *dataConn) resumes() bool { return d.tls != nil && d.tls.ConnectionState().DidResume }

// whole returns nil if the end of what was read is one that the client has meant: with TLS, it has
// said so. tls.Conn takes a connection that is closed behind a record for a good one. Clients that
// give up may say so as well: see soon.
func (d *dataConn) whole(err error) error {
	switch {
	case !errors.Is(err, io.EOF):
		return err
	case d.tls != nil && d.raw.ended.Load():
		return errCut
	}
	return nil
}

// finish says that all is sent, and closes the connection.
func (d *dataConn) finish() error {
	var err error
	if d.tls != nil {
		err = d.tls.CloseWrite()
	}
	return cmp.Or(err, d.raw.Close())
}

// reset closes the connection so that the client can tell that something is missing.
func (d *dataConn) reset() {
	if t, ok := d.raw.Conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = d.raw.Close()
}
