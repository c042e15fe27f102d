package tcp

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/fxfer/fxfer/internal/transport/auth"
)

// peerTimeout is how long data or a probe may stay unanswered until the peer counts as dead.
const peerTimeout = 30 * time.Second

// keepAlive finds a dead peer within peerTimeout, also on a stream that only receives.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}

// Dial connects to addr ("host:port") and authenticates both ends. expect is called with the
// server's key before the handshake ends; its error ends the handshake. A BlackHoleError asks for a
// Path.MTU of SafeMTU.
func Dial(ctx context.Context, addr string, cfg Config, expect auth.Expect) (*Conn, error) {
	conf, err := cfg.Auth.Client(addr, expect)
	if err != nil {
		return nil, err
	}
	tcp, err := connectTo(ctx, addr, cfg)
	if err != nil {
		return nil, err
	}
	c := newConn(tcp, cfg)
	if err := c.settle(); err != nil {
		tcp.Close()
		return nil, err
	}
	stop := func() {}
	if cfg.Doubt && cfg.Path.MTU == 0 {
		stop = c.watchForBlackHole(ctx, addr, cfg, expect)
	}
	err = c.Client(ctx, conf)
	stop()
	if err != nil {
		err = c.explainSilence(err)
		tcp.Close()
		return nil, fmt.Errorf("handshake with %s: %w", addr, err)
	}
	c.Admit()
	return c, nil
}

// connectTo connects with the options that must be set before the SYN. Go sets TCP_NODELAY at both
// ends.
func connectTo(ctx context.Context, addr string, cfg Config) (*net.TCPConn, error) {
	d := net.Dialer{
		KeepAliveConfig: keepAlive,
		Control: func(network, _ string, raw syscall.RawConn) error {
			if cfg.Path.MTU > 0 {
				clampSegments(raw, cfg.Path.MTU-headersOf(network))
			}
			return prepare(raw, cfg)
		},
	}
	// An MPTCP socket refuses or loses several of the options.
	d.SetMultipathTCP(false)
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// headersOf is what IP and TCP take of a packet, without options.
func headersOf(network string) int {
	if network == "tcp6" {
		return 60
	}
	return 40
}
