// Package ftp is the door for FTP: RFC 959 in stream mode, with TLS (RFC 4217), IPv6 (RFC 2428) and
// listings for programs (RFC 3659).
package ftp

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"time"

	"github.com/fxfer/fxfer/internal/door"
)

// Options say how a Door serves.
type Options struct {
	TLS    *tls.Config
	Ports  *Ports         // for data connections; the caller serves them
	Public netip.Addr     // that PASV names; the zero Addr is the one that the client has reached
	Clear  []netip.Prefix // addresses of clients that need no TLS
	Active bool           // connect to clients that ask for it
	// Place takes a place for a data connection, until release is called. It returns nil if there is
	// none.
	Place func(from net.Addr) (release func())
	// RoundTrip returns the least round trip that a connection had lately, or 0 if that is not known.
	RoundTrip func(c net.Conn) time.Duration
}

// Door serves FTP. New returns one.
type Door struct {
	server door.Server
	opt    Options
}

// New returns the door to a server.
func New(server door.Server, opt Options) *Door { return &Door{server, opt} }

// Serve serves a control connection until it ends, or until ctx is done. It calls admitted when the
// user has logged in. It closes the connection. A client gets TLS when it asks for it.
func (d *Door) Serve(ctx context.Context, c net.Conn, admitted func()) error {
	return d.serve(ctx, c, admitted, false)
}

// ServeTLS is Serve for clients that begin with TLS.
func (d *Door) ServeTLS(ctx context.Context, c net.Conn, admitted func()) error {
	return d.serve(ctx, c, admitted, true)
}

func (d *Door) serve(ctx context.Context, c net.Conn, admitted func(), implicit bool) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	x := newControl(ctx, d, c, admitted)
	err := x.serve(implicit)
	leave()
	_ = c.Close()
	x.close(err)
	return err
}

// mayBeClear reports whether a client needs no TLS. No prefix contains an address with a zone.
func (d *Door) mayBeClear(client netip.Addr) bool {
	client = client.WithZone("")
	for _, p := range d.opt.Clear {
		if p.Contains(client) {
			return true
		}
	}
	return false
}
