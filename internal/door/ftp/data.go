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
)

const (
	// connectWithin bounds the time until a data connection is there, with TLS.
	connectWithin = 30 * time.Second
	// silentFor is how long a data connection may move nothing, and how long a reply may take.
	silentFor = 2 * time.Minute
)

var (
	errNoConnection = errors.New("no data connection came from this address")
	errCut          = errors.New("the data connection ended without the end of TLS (close_notify): what came may not be whole")
	errFull         = errors.New("this server has no room for more connections")
)

// opener opens the data connection of the next transfer.
type opener interface {
	open(ctx context.Context) (net.Conn, error)
	close()
}

// active connects to a client that listens.
type active struct{ to netip.AddrPort }

func (a active) open(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	d.SetMultipathTCP(false) // as all sockets of the server
	return d.DialContext(ctx, "tcp", a.to.String())
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
	_ = s.SetReadDeadline(time.Now().Add(silentFor))
	n, err := s.Conn.Read(b)
	if errors.Is(err, io.EOF) {
		s.ended.Store(true)
	}
	return n, err
}

func (s *socket) Write(b []byte) (int, error) {
	_ = s.SetWriteDeadline(time.Now().Add(silentFor))
	return s.Conn.Write(b)
}

// openData opens the data connection. cfg is nil without TLS. The connection is closed, at the
// latest, when ctx is done.
func openData(ctx context.Context, o opener, cfg *tls.Config) (*dataConn, error) {
	begin, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	c, err := o.open(begin)
	if err != nil {
		if begin.Err() != nil {
			err = errNoConnection
		}
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	d := &dataConn{raw: &socket{Conn: c}}
	d.ReadWriter = d.raw
	if cfg == nil {
		return d, nil
	}
	d.tls = tls.Server(d.raw, cfg)
	d.ReadWriter = d.tls
	if err := d.tls.HandshakeContext(begin); err != nil {
		_ = c.Close()
		return nil, cmp.Or(context.Cause(ctx), fmt.Errorf("TLS on the data connection: %w", err))
	}
	return d, nil
}

// whole returns nil if the end of what was read is one that the client has meant: with TLS, it has
// said so. tls.Conn takes a connection that is closed behind a record for a good one. Clients that
// give up may say so as well: see leaveWithin.
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
