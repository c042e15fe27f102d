package tcp

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/fxfer/fxfer/internal/transport/auth"
	"github.com/fxfer/fxfer/internal/transport/stream"
	"github.com/fxfer/fxfer/internal/transport/tlsrecord"
)

// SelfTest tests the records of streams whose Config is not Standard.
func SelfTest() error { return tlsrecord.SelfTest() }

// records are the TLS records of a stream: a tlsrecord.Conn or a tlsrecord.Standard.
type records interface {
	net.Conn
	Client(ctx context.Context, conf *tls.Config) error
	Server(ctx context.Context, conf *tls.Config) error
	State() *tls.ConnectionState
	Exporter(label string, length int) ([]byte, error)
	Admit()
	ReadRest(p []byte) (int, error)
	WriteBuffers(header, payload []byte) (int, error)
	CloseWrite() error
}

// Conn is a stream over TCP: TLS records over a socket whose buffers fit the path.
type Conn struct {
	records
	tcp  *net.TCPConn
	cfg  Config
	conf *tls.Config // until the handshake, accepted streams only

	window atomic.Pointer[decision] // what was requested for the socket's buffers
	hole   atomic.Bool              // watchForBlackHole has proven one
	near   bool                     // the path stays within a building
	wakes  wakes                    // the reader's
	awaits int                      // what Await has set, 0 if nothing; the reader's
	each   *acknowledger            // of sparse segments, nil leaves them to the kernel; the reader's
	roomy  int                      // for what Await has made room; the reader's
	unread int                      // what LimitUnread has set, 0 if nothing; the reader's
	syns   uint64                   // that Dial has sent again; Dial's
	mute   bool                     // Dial waits for the peer's first byte; the reader's
	head   []byte                   // what Unencrypted has read, and the handshake has not; the reader's
}

func newConn(tcp *net.TCPConn, cfg Config) *Conn {
	c := &Conn{tcp: tcp, cfg: cfg}
	d := preset(cfg)
	c.window.Store(&d)
	if cfg.Standard {
		c.records = tlsrecord.NewStandard(socketOf{tcp, c})
	} else {
		c.records = tlsrecord.New(socketOf{tcp, c})
	}
	return c
}

// Abort closes the stream, and the kernel forgets what it has not sent. After Close, it would send that for as long as
// it takes, and longer than the session lasts.
func (c *Conn) Abort() error {
	_ = c.tcp.SetLinger(0)
	return c.Close()
}

// socketOf is the socket of a Conn. It keeps a fixed window fixed: Linux since 6.6 replaces the
// clamp by its own estimate when it measures the first segments (tcp_measure_rcv_mss in
// net/ipv4/tcp_input.c).
type socketOf struct {
	*net.TCPConn
	c *Conn
}

func (s socketOf) Read(p []byte) (int, error) {
	if head := s.c.head; len(head) > 0 && len(p) > 0 {
		s.c.head = head[copy(p, head):]
		return len(head) - len(s.c.head), nil
	}
	n, err := s.TCPConn.Read(p)
	if s.c.mute && n > 0 {
		s.c.mute = false
		_ = s.SetReadDeadline(time.Time{})
	}
	if d := s.c.window.Load(); d.exact {
		keepWindow(s.TCPConn, d.rcv)
	} else if !s.c.near {
		s.c.wakes.arrived(n, time.Now())
		if s.c.wakes.sparse && n > 0 && s.c.each != nil {
			s.c.each.acknowledge()
		}
	}
	return n, err
}

// Await sets how many bytes wake up a Read that waits. They take part of the window meanwhile, which a
// fixed one lacks. On a far path they are no more than wakes allow.
func (s socketOf) Await(n int) {
	c := s.c
	switch {
	case c.window.Load().exact:
		n = 1
	case !c.near:
		n = max(1, min(n, c.wakes.bytes))
	}
	if n == max(1, c.awaits) {
		return
	}
	if c.near && n > c.roomy { // the kernel enlarges its buffer for that
		setReadLowWater(s.TCPConn, 2*n)
		c.roomy = n
	}
	setReadLowWater(s.TCPConn, n)
	c.awaits = n
}

// Hurry lifts the low-water mark, which would otherwise hold back new bytes behind much unsent
// data.
func (s socketOf) Hurry() { setLowWater(s.TCPConn, 0) }

// Handshake authenticates an accepted stream, within stream.HandshakeTimeout at most. After an
// error the stream is closed. Once the handshake is done, it does nothing.
func (c *Conn) Handshake(ctx context.Context) error {
	if c.State() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stream.HandshakeTimeout)
	defer cancel()
	err := c.settle()
	if err == nil {
		err = c.Server(ctx, c.conf)
	}
	if err != nil {
		_ = c.Close()
		return fmt.Errorf("handshake with %s: %w", c.RemoteAddr(), err)
	}
	c.conf = nil
	return nil
}

// recordHandshake is the first byte of a TLS connection: the type of a record (RFC 8446, section
// 5.1).
const recordHandshake = 22

// Unencrypted reads the first byte of an accepted stream before its handshake. If that is not TLS's,
// it returns the byte and the socket. Otherwise the socket is nil, and the handshake may follow.
func (c *Conn) Unencrypted() (first byte, socket *net.TCPConn, err error) {
	head := make([]byte, 1)
	if _, err := c.tcp.Read(head); err != nil {
		return 0, nil, err
	}
	if head[0] != recordHandshake {
		return head[0], c.tcp, nil
	}
	c.head = head
	return 0, nil, nil
}

// PeerKey is the key that the peer has proven to own; see auth.PeerKey.
func (c *Conn) PeerKey() ed25519.PublicKey { return auth.PeerKey(c.State()) }

// PeerCertificates is the chain of a peer that presents more than a key; see auth.PeerCertificates.
func (c *Conn) PeerCertificates() []*x509.Certificate { return auth.PeerCertificates(c.State()) }

// preset is what to request for the buffers before connect or listen, so that the window scale in
// the SYN fits. An unknown path is better known one round trip later.
func preset(cfg Config) decision {
	switch {
	case cfg.SockBuf > 0:
		return decision{snd: cfg.SockBuf, rcv: cfg.SockBuf, exact: true}
	case cfg.Path.RTT > 0:
		return windowFor(cfg.Path, limits())
	}
	return decision{}
}

// settle sets what depends on the path. A connected socket knows the RTT.
func (c *Conn) settle() error {
	path := c.pathNow(c.cfg.Path)
	c.near = 0 < path.RTT && path.RTT < nearPath
	c.wakes.pathIs(path.RTT)
	if c.cfg.automatic() {
		chooseCongestion(c.tcp, path, c.cfg.SockBuf > 0)
	}
	if c.cfg.SockBuf > 0 {
		return c.fix(c.cfg.SockBuf)
	}
	c.grow(path)
	return nil
}

// pathNow is path with the kernel's RTT, where the kernel knows one.
func (c *Conn) pathNow(path Path) Path {
	info, ok := c.Info()
	if rtt := cmp.Or(info.MinRTT, info.RTT); ok && rtt > 0 {
		path.RTT = rtt
	}
	return path
}

// grow enlarges the send buffer for path, where that beats autotuning. A fixed window stays.
func (c *Conn) grow(path Path) {
	old := *c.window.Load()
	if old.exact {
		return
	}
	d := windowFor(path, limits())
	// To set the receive buffer now would end its autotuning and open the window later: 10 MB took
	// 14 RTT instead of 9.
	d = decision{snd: max(d.snd, old.snd), rcv: old.rcv, force: d.force || old.force}
	enlarge(c.tcp, d)
	c.window.Store(&d)
}

// Windows returns the sizes of this host's buffers, and how much of a stream they allow in flight.
func (c *Conn) Windows() stream.Windows {
	d := *c.window.Load()
	snd, rcv := bufferSizes(c.tcp)
	return windowsOf(d, snd, rcv, limits())
}

// Apply changes the settings of a stream whose peer asks for others than those of the Config. A
// sockBuf of 0 and an automatic congestion control change nothing. The error names the setting that
// the kernel refused, and why.
func (c *Conn) Apply(sockBuf int, congestion string) error {
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
func (c *Conn) fix(size int) error {
	if err := fixWindow(c.tcp, size); err != nil {
		return err
	}
	c.window.Store(&decision{snd: size, rcv: size, exact: true})
	return nil
}

// Prefer makes BBR the congestion control if quick, and otherwise cubic, or reno where the system
// does not allow it, unless the Config names one.
func (c *Conn) Prefer(quick bool) error {
	raw, err := c.tcp.SyscallConn()
	if err != nil || !c.cfg.automatic() {
		return err
	}
	if quick {
		return setCongestion(raw, "bbr")
	}
	if setCongestion(raw, "cubic") != nil {
		return setCongestion(raw, "reno") // allowed to everyone
	}
	return nil
}

// Pace bounds the rate at which the kernel sends, in bytes/s, where it can; +Inf is no bound.
func (c *Conn) Pace(rate float64) { setPacing(c.tcp, rate) }

// SetLowerEffort marks packets with the codepoint LE, or with none. An IPv6 socket may carry IPv4, so
// both are tried.
func (c *Conn) SetLowerEffort(on bool) error {
	class := 0
	if on {
		class = stream.LowerEffort
	}
	v4, v6 := ipv4.NewConn(c.tcp).SetTOS(class), ipv6.NewConn(c.tcp).SetTrafficClass(class)
	if v4 != nil && v6 != nil {
		return v4
	}
	return nil
}

// LimitUnsent bounds how much unsent data the kernel takes, where it can. Write waits for room.
func (c *Conn) LimitUnsent(bytes int) { setLowWater(c.tcp, bytes) }

// LimitUnread sets the window that the peer gets, where it can. About twice as much may wait until it is
// read. It is for the goroutine that reads, and for windows that grow.
func (c *Conn) LimitUnread(bytes int) {
	limitUnread(c.tcp, bytes)
	c.unread = bytes
}

// AcknowledgeEach has the kernel acknowledge each segment at once, where single ones come far from each other on a far
// path, and where it can. It is for the goroutine that reads. A fixed window is left alone.
func (c *Conn) AcknowledgeEach() { c.each = newAcknowledger(c.tcp) }

// SetNoDelay sets TCP_NODELAY, which is on by default.
func (c *Conn) SetNoDelay(on bool) error { return c.tcp.SetNoDelay(on) }

// SetCork sets TCP_CORK, which is off by default.
func (c *Conn) SetCork(on bool) error { return SetCork(c.tcp, on) }
