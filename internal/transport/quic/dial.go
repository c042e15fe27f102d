// Package quic carries streams over QUIC, by quic-go.
//
// quic-go's congestion control is NewReno with at most linkFlight bytes in flight, and a stream
// over a queue that drops its tail dies of "too many gaps in received data". So streams are spread
// over several connections, each with a socket of its own. Each connection also has a queue of its
// own between socket and decryption, of 256 packets (MaxConnUnprocessedPackets), and drops what
// exceeds it. On a busy host 1 Gbit/s × 50 ms took 2 connections with 12 streams each 0.27 of the
// line, 4 with 6 streams 0.78, and 16 with 1 stream 0.87.
package quic

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/fxfer/fxfer/internal/transport/auth"
)

// Config is what Dial needs.
type Config struct {
	Auth auth.Config
	// Group is the connections among which Dial chooses. Without one, each stream has a connection
	// of its own.
	Group *Group
	// Apart gives the stream a connection of the Group that no other stream uses.
	Apart bool
	// QLog is a folder for a log of each connection. "" is none.
	QLog string
}

// Dial opens a stream to addr ("host:port"). expect is called with the server's key before the
// handshake ends; its error ends the handshake.
func Dial(ctx context.Context, addr string, cfg Config, expect auth.Expect) (*Conn, error) {
	conf, err := cfg.Auth.Client(addr, expect)
	if err != nil {
		return nil, err
	}
	g := cfg.Group
	if g == nil {
		g = &Group{}
	}
	d, err := g.take(cfg.Apart, func(d *dialled, over <-chan struct{}, hint netip.AddrPort) {
		d.run(addr, conf, traceTo(cfg.QLog, &g.all), over, hint)
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-d.ready:
		err = d.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		g.giveBack(d)
		return nil, fmt.Errorf("handshake with %s: %w", addr, err)
	}
	c, err := d.stream(ctx)
	if err != nil {
		g.giveBack(d)
		if alert, ok := alertOf(err); ok {
			err = alert
		}
		return nil, fmt.Errorf("stream to %s: %w", addr, err)
	}
	return c, nil
}

// congestion is quic-go's only congestion control.
const congestion = "newreno"

// CheckSettings refuses settings of TCP that QUIC does not have.
func CheckSettings(sockBuf int, name string) error {
	switch {
	case sockBuf != 0:
		return fmt.Errorf("socket buffer of %d bytes: QUIC has windows of its own: %w", sockBuf, errors.ErrUnsupported)
	case name != "" && name != "auto" && name != congestion:
		return fmt.Errorf("congestion control %q: QUIC has %s: %w", name, congestion, errors.ErrUnsupported)
	}
	return nil
}

// connection is a connection together with its socket.
type connection struct {
	udp  *udpSocket
	tr   *quic.Transport
	conn *quic.Conn
	to   netip.AddrPort
}

func (c *connection) close() {
	if c.conn != nil {
		_ = c.conn.CloseWithError(codeDone, "")
	}
	_ = c.tr.Close()
	_ = c.udp.Close()
}

// staggered is how long one address of a server is tried alone before the next one is tried, too.
// RFC 8305 proposes the value.
const staggered = 250 * time.Millisecond

// connect makes a connection to a server ("host:port"), using the address that answers first. hint,
// if valid, is an address that has answered before.
func connect(
	ctx context.Context, addr string, hint netip.AddrPort, conf *tls.Config, trace tracer,
) (*connection, error) {
	addrs := []netip.AddrPort{hint}
	if !hint.IsValid() {
		var err error
		if addrs, err = resolve(ctx, addr); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		c   *connection
		err error
	}
	results := make(chan result)
	next := make(chan struct{}, len(addrs)) // an attempt has failed, so the next one need not wait
	for i, to := range addrs {
		go func() {
			for range i {
				select {
				case <-ctx.Done():
				case <-next:
				case <-time.After(staggered):
				}
			}
			c, err := connectTo(ctx, to, conf, trace)
			if err != nil {
				next <- struct{}{}
			}
			results <- result{c, err}
		}()
	}
	var won *connection
	var failed error
	for range addrs {
		r := <-results
		switch {
		case r.err != nil:
			failed = cmp.Or(failed, r.err)
		case won == nil:
			won = r.c
			cancel()
		default:
			r.c.close()
		}
	}
	if won == nil {
		return nil, failed
	}
	return won, nil
}

// resolve returns the addresses of a host.
func resolve(ctx context.Context, addr string) ([]netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "udp", service)
	if err != nil {
		return nil, err
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	addrs := make([]netip.AddrPort, len(ips))
	for i, ip := range ips {
		addrs[i] = netip.AddrPortFrom(ip.Unmap(), uint16(port))
	}
	return addrs, nil
}

// How long a client waits that was refused.
const (
	firstWait   = 50 * time.Millisecond
	longestWait = 2 * time.Second
)

// connectTo makes a connection to one address. Its socket is bound to no address of this host,
// because that address may change.
func connectTo(ctx context.Context, to netip.AddrPort, conf *tls.Config, trace tracer) (*connection, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	network := "udp6"
	if to.Addr().Is4() {
		network = "udp4"
	}
	udp, err := openUDP(network, nil)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	peer := net.UDPAddrFromAddrPort(to)
	udp.onRefused(func() {
		refused := os.NewSyscallError("connect", syscall.ECONNREFUSED)
		cancel(&net.OpError{Op: "dial", Net: network, Addr: peer, Err: refused})
	})
	c := &connection{udp: udp, tr: &quic.Transport{Conn: udp}, to: to}
	quicConf := config()
	quicConf.HandshakeIdleTimeout = dialWithin / 2
	quicConf.MaxIncomingStreams, quicConf.MaxIncomingUniStreams = -1, -1
	quicConf.Tracer = trace
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		if c.conn, err = c.tr.Dial(ctx, peer, conf, quicConf); err == nil {
			return c, nil
		}
		var refused *quic.TransportError
		if !errors.As(err, &refused) || refused.ErrorCode != quic.ConnectionRefused {
			break
		}
		// The server has too many handshakes at once. It will have room in a moment.
		select {
		case <-ctx.Done():
		case <-time.After(wait/2 + rand.N(wait)): //nolint:gosec // jitter
			continue
		}
		break
	}
	c.close()
	return nil, handshakeError(ctx, err)
}

// handshakeError returns the cause of a failed handshake. quic-go wraps it in errors that match
// net.ErrClosed, among others.
func handshakeError(ctx context.Context, err error) error {
	var crypto *quic.TransportError
	var idle *quic.IdleTimeoutError
	var slow *quic.HandshakeTimeoutError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &idle), errors.As(err, &slow):
		return fmt.Errorf("no answer: %w", os.ErrDeadlineExceeded)
	case errors.As(err, &crypto) && !crypto.Remote:
		for _, cause := range crypto.Unwrap() {
			if cause != nil && cause != net.ErrClosed { //nolint:errorlint // exactly this one
				return cause
			}
		}
	}
	if alert, ok := alertOf(err); ok {
		return fmt.Errorf("remote error: %w", alert)
	}
	return fmt.Errorf("%v", err) //nolint:errorlint // it would match net.ErrClosed
}

// alertOf returns the TLS alert with which the peer has ended a connection.
func alertOf(err error) (tls.AlertError, bool) {
	var e *quic.TransportError
	if !errors.As(err, &e) || !e.Remote || !e.ErrorCode.IsCryptoError() {
		return 0, false
	}
	return tls.AlertError(e.ErrorCode), true // its last byte: RFC 9001, section 4.8
}
