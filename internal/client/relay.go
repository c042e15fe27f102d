package client

import (
	"cmp"
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// direct stands for the way without a relay in Options.Via.
var direct session.URL

// ParseVia reads an element of Options.Via: host or host:port of a relay, its invitation, or "direct".
func ParseVia(s string) (session.URL, error) {
	switch {
	case s == "direct":
		return direct, nil
	case session.IsURL(s):
		return session.ParseURL(s)
	}
	host, port, err := identity.SplitHost(s)
	return session.URL{Host: host, Port: port}, err
}

// errRelay says that a relay is why a connection was not made.
type errRelay struct{ error }

func (e *errRelay) Unwrap() error { return e.error }

// relayed reports whether connections lead through a relay at present.
func (d *dialer) relayed() bool {
	if len(d.client.opt.Via) == 0 {
		return false
	}
	relay, _ := d.client.way()
	return relay != direct
}

// way returns the relay to connect through, or direct, and its number.
func (c *Client) way() (relay session.URL, n int64) {
	n = c.route.Load()
	return c.opt.Via[n%int64(len(c.opt.Via))], n
}

// nextWay takes the way after number n, unless others have already.
func (c *Client) nextWay(n int64) { c.route.CompareAndSwap(n, n+1) }

// by is cfg for the present way.
func (d *dialer) by(cfg transport.Config) transport.Config {
	if len(d.client.opt.Via) == 0 {
		return cfg
	}
	relay, _ := d.client.way()
	if relay == direct {
		return cfg
	}
	path := cfg.Path
	cfg.Connect = func(ctx context.Context) (*net.TCPConn, error) {
		socket, err := d.client.askRelay(ctx, relay, d.url, path)
		if err != nil && ctx.Err() == nil && !errors.As(err, new(*errAskFirst)) {
			err = &errRelay{describeRelay(ctx, err, relay)}
		}
		return socket, err
	}
	return cfg
}

// describeRelay is describe for an error of the connection to a relay.
func describeRelay(ctx context.Context, err error, relay session.URL) error {
	var e *session.Error
	err = describe(ctx, err, "relay "+serverOf(relay))
	if !errors.As(err, &e) {
		return err
	}
	var coded *wire.Error
	advice := e.Advice
	switch {
	case errors.Is(err, identity.ErrUnknownServer), advice == session.AdviceInvitation:
		advice = session.AdviceRelayInvitation
	case errors.As(err, &coded) && coded.Code == wire.CodeRight, errors.Is(err, syscall.ECONNREFUSED):
		advice = session.AdviceRelay
	}
	return &session.Error{Kind: e.Kind, Err: e.Err, Advice: advice}
}

// dial connects the control stream. It tries each way once, until one leads to a server.
func (d *dialer) dial(ctx context.Context, cfg transport.Config, expect checkKey) (transport.Conn, error) {
	for range len(d.client.opt.Via) - 1 {
		_, n := d.client.way()
		conn, err := d.client.dial(ctx, d.url, d.by(cfg), expect)
		if err == nil || ctx.Err() != nil || !blocked(err) {
			return conn, err
		}
		d.client.notice("%v: trying another way", describe(ctx, err, serverOf(d.url)))
		d.client.nextWay(n)
	}
	return d.client.dial(ctx, d.url, d.by(cfg), expect)
}

// blocked reports whether another way may lead to a server where one has ended with err.
func blocked(err error) bool {
	if errors.As(err, new(*errAskFirst)) {
		return false
	}
	return errors.As(err, new(*errRelay)) || temporary(err)
}

// otherWay reports whether a session shall take over at once from one that ended with err, by another
// way. Each way gets one chance to get somewhere, so that this ends.
func (j *job) otherWay(ctx context.Context, err error) bool {
	if err == nil || ctx.Err() != nil || !j.intent.repeatable() || !temporary(err) || j.tries >= len(j.opt.Via)-1 {
		return false
	}
	_, n := j.way()
	j.nextWay(n)
	return true
}

// askRelay connects to a relay and asks it for the server of u. The socket that it returns is then
// one to that server, with nothing but what the server and this host send.
func (c *Client) askRelay(ctx context.Context, relay, u session.URL, path transport.Path) (*net.TCPConn, error) {
	cfg := transport.Config{Certificate: c.ownCertificate, Standard: c.opt.StandardCrypto, Path: path, Doubt: path.MTU == 0}
	conn, err := transport.Dial(ctx, serverOf(relay), cfg, c.expectPin(relay, relay.Pin))
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	if err = c.request(conn, relay, u); err == nil && stop() {
		return transport.Detach(conn)
	}
	stop()
	_ = conn.Close()
	return nil, cmp.Or(err, ctx.Err())
}

// request asks a relay for the server of u, and waits for the answer.
func (c *Client) request(conn transport.Conn, relay, u session.URL) error {
	m := &wire.Relay{Version: wire.Version, Target: serverOf(u)}
	if relay.Token != "" {
		exported, err := conn.Exporter(session.ExporterLabel, 32)
		if err != nil {
			return err
		}
		proof := identity.InviteProof(relay.Token, exported)
		m.Proof = proof[:]
		c.keepRelay(relay)
	}
	_ = conn.SetDeadline(time.Now().Add(session.DialTimeout))
	if _, err := conn.Write(wire.Append(nil, m)); err != nil {
		return err
	}
	answer, err := wire.NewReader(conn, wire.MaxFirstMessage).Next()
	if err != nil {
		return err
	}
	switch answer := answer.(type) {
	case *wire.Relayed:
		return conn.SetDeadline(time.Time{})
	case *wire.Refuse:
		return &wire.Error{Code: answer.Code, Text: answer.Text, Remote: true}
	}
	return wire.Errorf(wire.CodeProtocol, "the relay answered with a message of type %d", answer.Type())
}

// keepRelay stores the key of a relay that has proven to have it, as keepPin does.
func (c *Client) keepRelay(relay session.URL) {
	if _, known, err := c.store.KnownServer(serverOf(relay)); known && err == nil || c.opt.Forget {
		return
	}
	if err := c.store.AddKnownServer(serverOf(relay), relay.Pin); err != nil {
		c.notice("%v", err)
	}
}
