package transport

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"syscall"
	"time"
)

// peerTimeout is how long data or a probe may stay unanswered until the peer counts as dead.
const peerTimeout = 30 * time.Second

// keepAlive finds a dead peer on a stream that only receives, within peerTimeout.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}

// connectTCP connects with the options that must be set before the SYN. TCP_NODELAY is Go's default at both ends.
func connectTCP(ctx context.Context, addr string, cfg Config) (*net.TCPConn, error) {
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

func bindTCP(addr string, cfg Config) (*net.TCPListener, error) {
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
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}

// preset is what is asked of the socket buffers before connect or listen, so that the window scale in the SYN fits. Of an unknown path
// more is known a round trip later.
func preset(cfg Config) decision {
	switch {
	case cfg.SockBuf > 0:
		return decision{snd: cfg.SockBuf, rcv: cfg.SockBuf, exact: true}
	case cfg.Path.RTT > 0:
		return windowFor(cfg.Path, readLimits())
	}
	return decision{}
}

// settle sets what depends on the path, which a connected socket knows.
func (c *tcpConn) settle() error {
	if c.cfg.automatic() {
		chooseCongestion(c.tcp, c.pathNow(c.cfg.Path), c.cfg.SockBuf > 0)
	}
	if c.cfg.SockBuf > 0 {
		return c.fix(c.cfg.SockBuf)
	}
	c.Grow(c.cfg.Path)
	return nil
}

// pathNow is path with its RTT replaced by the kernel's, where that is known.
func (c *tcpConn) pathNow(path Path) Path {
	info, ok := c.Info()
	if rtt := cmp.Or(info.MinRTT, info.RTT); ok && rtt > 0 {
		path.RTT = rtt
	}
	return path
}

// Grow enlarges the send buffer for what is known of the path by now, where that beats autotuning, and tells what was obtained. The
// kernel's RTT goes before path's. A fixed window stays.
func (c *tcpConn) Grow(path Path) Windows {
	old := *c.window.Load()
	if old.exact {
		return c.Windows()
	}
	d := windowFor(c.pathNow(path), readLimits())
	// A receive buffer that is set now ends autotuning, and its window opens later: 10 MB took 14 instead of 9 RTT.
	d = decision{snd: max(d.snd, old.snd), rcv: old.rcv, force: d.force || old.force}
	grow(c.tcp, d)
	c.window.Store(&d)
	return c.Windows()
}

// Windows tells how large this host's buffers are, and how much of a stream they let be in flight.
func (c *tcpConn) Windows() Windows {
	d := *c.window.Load()
	snd, rcv := bufferSizes(c.tcp)
	return windowsOf(d, snd, rcv, readLimits())
}

// Apply changes the settings of a conn whose peer asks for others than the Config's: a sockBuf of 0 and an automatic congestion
// control leave what is. The error names the setting that the kernel refused, and why.
func (c *tcpConn) Apply(sockBuf int, congestion string) error {
	if sockBuf < 0 {
		return fmt.Errorf("socket buffer of %d bytes", sockBuf)
	}
	if sockBuf > 0 {
		if err := c.fix(sockBuf); err != nil {
			return err
		}
	}
	asked := Config{Congestion: congestion}
	switch {
	case !asked.automatic():
		raw, err := c.tcp.SyscallConn()
		if err != nil {
			return err
		}
		return setCongestion(raw, congestion)
	case sockBuf > 0 && c.cfg.automatic():
		chooseCongestion(c.tcp, Path{}, true)
	}
	return nil
}

// fix makes size bytes the window in both directions.
func (c *tcpConn) fix(size int) error {
	if err := fixWindow(c.tcp, size); err != nil {
		return err
	}
	c.window.Store(&decision{snd: size, rcv: size, exact: true})
	return nil
}

// socketReader reads a conn's socket and keeps a fixed window fixed: Linux since 6.6 replaces the clamp by its own reckoning when it
// measures the first segments (tcp_measure_rcv_mss in net/ipv4/tcp_input.c).
type socketReader struct{ c *tcpConn }

func (r socketReader) Read(p []byte) (int, error) {
	n, err := r.c.tcp.Read(p)
	if d := r.c.window.Load(); d.exact {
		keepWindow(r.c.tcp, d.rcv)
	}
	return n, err
}
