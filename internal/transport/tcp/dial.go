package tcp

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fxfer/fxfer/internal/transport/auth"
)

// connectTimeout is how long a peer may take to answer SYNs.
const connectTimeout = 15 * time.Second

// answerTimeout is how long a peer may take, beyond answerTrips times the RTT of its SYN, for the first byte
// of its handshake. Over 9.6 kbit/s, our first message and the peer's first packet take 3 s, and the SYNs of
// other streams that were sent again as much. Only tests change it.
var answerTimeout = 15 * time.Second

const answerTrips = 4

// ErrSilent says that a peer has accepted a connection, but sends nothing: its process hangs, or its
// protocol lets the client begin.
var ErrSilent = fmt.Errorf("it accepts connections, but says nothing: %w", os.ErrDeadlineExceeded)

// peerTimeout is how long data or a probe may stay unanswered until the peer counts as dead. On a
// narrow line, a packet waits in a full queue for half of that.
const peerTimeout = 60 * time.Second

// keepAlive finds a dead peer about within peerTimeout, also on a stream that only receives.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}

// Dial connects to addr ("host:port") and authenticates both ends. expect is called with the
// server's key before the handshake ends; its error ends the handshake. A BlackHoleError asks for a
// Path.MTU of SafeMTU. The error is ErrSilent if the peer has sent no byte.
func Dial(ctx context.Context, addr string, cfg Config, expect auth.Expect) (*Conn, error) {
	conf, err := cfg.Auth.Client(addr, expect)
	if err != nil {
		return nil, err
	}
	tcp, sent, err := connectTo(ctx, addr, cfg)
	if err != nil {
		return nil, err
	}
	c := newConn(tcp, cfg)
	if err := c.wait(ctx, sent); err != nil {
		abort(tcp)
		return nil, err
	}
	if err := c.settle(); err != nil {
		tcp.Close()
		return nil, err
	}
	var rtt time.Duration
	if info, ok := c.Info(); ok {
		c.syns, rtt = info.RetransSegs, cmp.Or(info.MinRTT, info.RTT)
	}
	stop := func() {}
	if cfg.Doubt && cfg.Path.MTU == 0 {
		stop = c.watchForBlackHole(ctx, addr, cfg, expect)
	}
	c.mute = true
	_ = tcp.SetReadDeadline(time.Now().Add(answerTimeout + answerTrips*rtt))
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

// wait lets the caller decide when, and whether, the handshake begins.
func (c *Conn) wait(ctx context.Context, sent time.Time) error {
	if c.cfg.Connected == nil {
		return nil
	}
	rtt := time.Since(sent)
	if info, ok := c.Info(); ok && info.RTT > 0 {
		rtt = info.RTT // of the SYN, without the time until this goroutine ran
	}
	return c.cfg.Connected(ctx, sent, rtt)
}

// abort closes a connection that has sent nothing, with a single packet.
func abort(tcp *net.TCPConn) {
	_ = tcp.SetLinger(0)
	_ = tcp.Close()
}

// connectTo connects with the options that must be set before the SYN, and returns when that left.
// Go sets TCP_NODELAY at both ends.
func connectTo(ctx context.Context, addr string, cfg Config) (*net.TCPConn, time.Time, error) {
	began := time.Now()
	if cfg.Connect != nil {
		tcp, err := cfg.Connect(ctx)
		if err == nil {
			began = synOf(tcp, began)
			err = adopt(tcp, cfg)
		}
		return tcp, began, err
	}
	var sent atomic.Int64 // since then; of the last SYN, where several addresses are tried
	d := net.Dialer{
		Timeout:         connectTimeout,
		KeepAliveConfig: keepAlive,
		Control: func(network, to string, raw syscall.RawConn) error {
			if err := permit(to, cfg); err != nil {
				return err
			}
			defer func() { sent.Store(int64(time.Since(began))) }()
			if cfg.Path.MTU > 0 {
				ClampSegments(raw, cfg.Path.MTU-headersOf(network))
			}
			return prepare(raw, cfg)
		},
	}
	// An MPTCP socket refuses or loses several of the options.
	d.SetMultipathTCP(false)
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, began, err
	}
	return conn.(*net.TCPConn), began.Add(time.Duration(sent.Load())), nil
}

// permit asks whether an address, as net.Dialer has it, may be connected to.
func permit(to string, cfg Config) error {
	if cfg.Permit == nil {
		return nil
	}
	at, err := netip.ParseAddrPort(to)
	if err != nil {
		return err
	}
	return cfg.Permit(at.Addr())
}

// synOf returns when the SYN-ACK of a connection that just came left this host. It does not count
// the time until the peer began to connect. Where the system does not know, it returns began.
func synOf(tcp *net.TCPConn, began time.Time) time.Time {
	if info, ok := InfoOf(tcp); ok && info.RTT > 0 {
		return time.Now().Add(-info.RTT)
	}
	return began
}

// adopt sets the options of a connected socket as far as it still takes them. After an error the
// socket is closed.
func adopt(tcp *net.TCPConn, cfg Config) error {
	_ = tcp.SetKeepAliveConfig(keepAlive)
	raw, err := tcp.SyscallConn()
	if err == nil {
		err = prepare(raw, cfg)
	}
	if err != nil {
		tcp.Close()
	}
	return err
}

// headersOf is what IP and TCP take of a packet, without options.
func headersOf(network string) int {
	if network == "tcp6" {
		return 60
	}
	return 40
}
