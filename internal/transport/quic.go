package transport

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quic-go/quic-go"
)

// QUIC, by quic-go: its congestion control is NewReno with at most linkFlight in flight, and a stream over a queue that drops its tail dies of
// "too many gaps in received data". So streams are spread over several connections, each with a socket of its own. Each also has its own queue of
// 256 packets between socket and decryption (MaxConnUnprocessedPackets), and drops what is more: on a busy host 1 Gbit/s × 50 ms took 2
// connections with 12 streams each 0.27 of the line, 4 with 6 0.78, and 16 with 1 0.87.
const (
	// linkFlight is what a connection has in flight at most, bytes: 10,000 packets (MaxCongestionWindowPackets in quic-go).
	linkFlight = 10_000 * 1452

	// strangeWindow is what a client may send on a connection before it is admitted, bytes.
	strangeWindow = 64 << 10
	// firstWindow is with what the other windows begin, bytes.
	firstWindow = 512 << 10
	// streamWindow and linkWindow bound what a peer may send that was not read, on a stream and on a connection, bytes. quic-go doubles a
	// window as long as it is used up within two round trips.
	streamWindow = 8 << 20
	linkWindow   = 2 * linkFlight
	// allWindows bounds the windows of all connections of this process beyond their first, bytes.
	allWindows = 256 << 20

	// silentLink is how long nothing may be heard on a connection. A session ends after as long.
	silentLink = 20 * time.Second
	keepLink   = 5 * time.Second
	// leaveWithin is how long a connection whose streams are closed is kept for what the peer has not got yet.
	leaveWithin = 10 * time.Second

	// maxLinkStreams bounds the streams that a peer may have open on a connection.
	maxLinkStreams = 128
	// maxStrangeLinks bounds the connections that are not admitted yet, strangeLinksFrom those from one address. From askBack on, clients
	// have to show that they are where they say: it costs a round trip (RFC 9000, section 8.1.2).
	maxStrangeLinks  = 1024
	strangeLinksFrom = 256
	askBack          = 128
)

// The first byte of each stream, which makes it known to the peer before there is anything to say.
const preface = 0

// Codes with which a connection or a stream ends.
const (
	codeDone   = 0 // all streams are closed
	codeClosed = 1 // this stream is closed
	codeIdle   = 2 // no stream for long
	codeGone   = 3 // the server's process is not there any more
)

// windowsLeft is what is left of allWindows.
var windowsLeft atomic.Int64

func init() { windowsLeft.Store(allWindows) }

// link is one QUIC connection, of either side.
type link struct {
	// Set before any stream.
	conn *quic.Conn
	udp  *udpSocket
	tls  tls.ConnectionState
	peer ed25519.PublicKey

	admitted atomic.Bool
	known    func()       // called when it is, of accepted ones
	granted  atomic.Int64 // of allWindows
	writing  atomic.Int64 // bytes in Writes that have not returned

	mu     sync.Mutex
	open   map[*quicConn]bool
	opened int64       // streams so far
	total  int64       // streams, as the client has said at the end; 0 before
	unused *time.Timer // ends an accepted one that has no stream
	teller *quicConn   // whose Info has the figures
	told   Info        // the last that a teller told
	passed Info        // what earlier tellers have told
	looked look
}

// linkKey finds a link in the context of its connection.
type linkKey struct{}

// quicConfig is for both sides. quic-go tunes the windows by the RTT and by how fast they are read.
func quicConfig() *quic.Config {
	return &quic.Config{
		Versions:                       []quic.Version{quic.Version1},
		HandshakeIdleTimeout:           HandshakeTimeout / 2, // quic-go gives twice that for the whole
		MaxIdleTimeout:                 silentLink,
		KeepAlivePeriod:                keepLink,
		InitialStreamReceiveWindow:     firstWindow,
		MaxStreamReceiveWindow:         streamWindow,
		InitialConnectionReceiveWindow: firstWindow,
		MaxConnectionReceiveWindow:     linkWindow,
		AllowConnectionWindowIncrease: func(conn *quic.Conn, delta uint64) bool {
			l, ok := conn.Context().Value(linkKey{}).(*link)
			return ok && l.grant(int64(delta))
		},
	}
}

// grant takes window from what is left, once the peer is admitted.
func (l *link) grant(n int64) bool {
	if !l.admitted.Load() {
		return false
	}
	if windowsLeft.Add(-n) < 0 {
		windowsLeft.Add(n)
		return false
	}
	l.granted.Add(n)
	return true
}

// settle takes what the handshake has shown.
func (l *link) settle(conn *quic.Conn) {
	l.conn, l.tls = conn, conn.ConnectionState().TLS
	l.peer = keyOf(l.tls.PeerCertificates)
	context.AfterFunc(conn.Context(), func() { windowsLeft.Add(l.granted.Swap(0)) })
}

// admit lets the windows grow.
func (l *link) admit() {
	l.admitted.Store(true)
	if l.known != nil {
		l.known()
	}
}

// enter takes a stream in.
func (l *link) enter(c *quicConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = make(map[*quicConn]bool)
	}
	l.open[c] = true
	l.opened++
	if l.unused != nil {
		l.unused.Stop()
	}
}

// leave lets a stream go.
func (l *link) leave(c *quicConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.open[c] {
		return
	}
	delete(l.open, c)
	if l.teller == c {
		l.teller, l.passed = nil, l.told
	}
	if len(l.open) == 0 && l.unused != nil {
		patience := leaveWithin
		if !l.admitted.Load() {
			patience = closeWait
		}
		l.unused.Reset(patience)
	}
	if l.overLocked() {
		go func() { _ = l.conn.CloseWithError(codeDone, "") }()
	}
}

// overLocked tells that there were all streams, and none is open.
func (l *link) overLocked() bool { return l.total > 0 && l.opened >= l.total && len(l.open) == 0 }

// Group is the QUIC connections of one client to one server, which the streams that are dialled with it share. Its methods may be called
// concurrently. The zero Group is ready.
type Group struct {
	mu    sync.Mutex
	want  int // connections for shared streams, 0 is 1
	links []*dialled
	most  int           // links at a time
	over  chan struct{} // closed by Close; nil until somebody needs it
	ended bool
	addr  netip.AddrPort // where the server has answered
	all   sync.WaitGroup // of connections that are not gone
}

// dialled is a link of a Group.
type dialled struct {
	link
	group *Group
	users int           // streams that are open or about to be; guarded by group.mu
	idle  chan struct{} // closed when there are none, and no more will come
	ready chan struct{} // closed when the handshake is over
	err   error         // of the handshake
}

// SetWant sets how many connections the streams that are dialled from now on are spread over.
func (g *Group) SetWant(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.want = n
}

// Links is the most connections that were shared at a time.
func (g *Group) Links() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most
}

// Close waits until the peer has got what was written on the streams, which must be closed, but not longer than patience.
func (g *Group) Close(patience time.Duration) {
	gone := make(chan struct{})
	go func() { g.all.Wait(); close(gone) }()
	select {
	case <-gone:
	case <-time.After(patience):
	}
	g.mu.Lock()
	if !g.ended {
		g.ended = true
		close(g.overLocked())
	}
	g.mu.Unlock()
	<-gone
}

func (g *Group) overLocked() chan struct{} {
	if g.over == nil {
		g.over = make(chan struct{})
	}
	return g.over
}

// take returns a link for another stream: the one with the fewest, or a new one if it shall be apart or if there are fewer than wanted.
func (g *Group) take(apart bool, run func(d *dialled, over <-chan struct{}, hint netip.AddrPort)) (*dialled, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return nil, fmt.Errorf("connections are closed: %w", net.ErrClosed)
	}
	var best *dialled
	for _, d := range g.links {
		if best == nil || d.users < best.users {
			best = d
		}
	}
	if apart || best == nil || len(g.links) < g.want {
		best = &dialled{group: g, idle: make(chan struct{}), ready: make(chan struct{})}
		if !apart {
			g.links = append(g.links, best)
			g.most = max(g.most, len(g.links))
		}
		d, over, hint := best, g.overLocked(), g.addr
		g.all.Go(func() { run(d, over, hint) })
	}
	best.users++
	return best, nil
}

// giveBack lets a stream's place on a link go. A link without any ends.
func (g *Group) giveBack(d *dialled) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if d.users--; d.users == 0 {
		g.dropLocked(d)
		close(d.idle)
	}
}

// dropLocked takes a link out, so that no stream comes to it any more.
func (g *Group) dropLocked(d *dialled) {
	g.links = slices.DeleteFunc(g.links, func(other *dialled) bool { return other == d })
}

// dialQUIC is Dial over QUIC.
func dialQUIC(ctx context.Context, addr string, cfg Config, expect func(peer ed25519.PublicKey) error) (*quicConn, error) {
	if err := quicOnly(cfg.SockBuf, cfg.Congestion); err != nil {
		return nil, err
	}
	conf, err := clientTLS(&cfg, addr, expect)
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

// quicCongestion is the only congestion control of quic-go.
const quicCongestion = "newreno"

// quicOnly refuses settings that QUIC does not have.
func quicOnly(sockBuf int, congestion string) error {
	switch {
	case sockBuf != 0:
		return fmt.Errorf("socket buffer of %d bytes: QUIC has windows of its own: %w", sockBuf, errors.ErrUnsupported)
	case congestion != "" && congestion != "auto" && congestion != quicCongestion:
		return fmt.Errorf("congestion control %q: QUIC has %s: %w", congestion, quicCongestion, errors.ErrUnsupported)
	}
	return nil
}

// run connects, and keeps the connection as long as it lives and somebody uses it.
func (d *dialled) run(addr string, conf *tls.Config, trace tracer, over <-chan struct{}, hint netip.AddrPort) {
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), linkKey{}, &d.link))
	defer cancel()
	go func() { // nobody may wait for it any more
		select {
		case <-over:
		case <-d.idle:
		case <-ctx.Done():
		case <-d.ready:
			return
		}
		cancel()
	}()
	c, err := connectQUIC(ctx, addr, hint, conf, trace)
	if err == nil {
		defer c.close()
		c.udp.onRefused(func() { _ = c.conn.CloseWithError(codeGone, "nobody listens on its port any more") })
		d.udp = c.udp
		d.settle(c.conn)
	}
	d.group.mu.Lock()
	if err == nil {
		d.group.addr = c.to
	} else {
		d.err = err
		d.group.dropLocked(d)
	}
	d.group.mu.Unlock()
	d.admit()
	close(d.ready)
	if err != nil {
		return
	}
	select {
	case <-over:
	case <-d.conn.Context().Done():
	case <-d.idle:
		d.goodbye(over)
	}
	d.group.mu.Lock()
	d.group.dropLocked(d)
	d.group.mu.Unlock()
}

// stream opens another stream.
func (d *dialled) stream(ctx context.Context) (*quicConn, error) {
	s, err := d.conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	c := newQUICConn(&d.link, s)
	c.gone = func() { d.group.giveBack(d) }
	c.ready.Store(true)
	d.enter(c)
	if _, err := s.Write([]byte{preface}); err != nil {
		d.leave(c)
		return nil, err
	}
	return c, nil
}

// goodbye tells the server how many streams there were, and waits until it has seen the end of each. It then ends the connection.
func (d *dialled) goodbye(over <-chan struct{}) {
	d.mu.Lock()
	opened := d.opened
	d.mu.Unlock()
	if opened == 0 { // nobody waited for the handshake: there is nothing to get
		return
	}
	s, err := d.conn.OpenUniStream()
	if err != nil {
		return
	}
	if _, err := s.Write(binary.BigEndian.AppendUint32(nil, uint32(opened))); err != nil || s.Close() != nil {
		return
	}
	select {
	case <-over:
	case <-d.conn.Context().Done():
	case <-time.After(leaveWithin):
	}
}

// connected is a connection with what is below it.
type connected struct {
	udp  *udpSocket
	tr   *quic.Transport
	conn *quic.Conn
	to   netip.AddrPort
}

func (c *connected) close() {
	if c.conn != nil {
		_ = c.conn.CloseWithError(codeDone, "")
	}
	_ = c.tr.Close()
	_ = c.udp.Close()
}

// staggered is how long one address of a server is tried alone before another one is, as RFC 8305 proposes.
const staggered = 250 * time.Millisecond

// connectQUIC makes a connection to a server ("host:port"), with whichever of its addresses answers first. hint has answered before.
func connectQUIC(ctx context.Context, addr string, hint netip.AddrPort, conf *tls.Config, trace tracer) (*connected, error) {
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
		c   *connected
		err error
	}
	results := make(chan result)
	next := make(chan struct{}, len(addrs)) // one failed: no use in waiting
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
	var won *connected
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

// connectTo makes a connection to one address, with a socket of its own that is bound to no address of this host: it may change.
func connectTo(ctx context.Context, to netip.AddrPort, conf *tls.Config, trace tracer) (*connected, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	network := "udp6"
	if to.Addr().Is4() {
		network = "udp4"
	}
	udp, err := listenUDP(network, nil)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	peer := net.UDPAddrFromAddrPort(to)
	udp.onRefused(func() {
		cancel(&net.OpError{Op: "dial", Net: network, Addr: peer, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)})
	})
	c := &connected{udp: udp, tr: &quic.Transport{Conn: udp}, to: to}
	quicConf := quicConfig()
	quicConf.MaxIncomingStreams, quicConf.MaxIncomingUniStreams = -1, -1
	quicConf.Tracer = trace
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		if c.conn, err = c.tr.Dial(ctx, peer, conf, quicConf); err == nil {
			return c, nil
		}
		var refused *quic.TransportError
		if !errors.As(err, &refused) || refused.ErrorCode != quic.ConnectionRefused { // too many at once, who go on in a moment
			break
		}
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

// How long a client waits that was refused.
const (
	firstWait   = 50 * time.Millisecond
	longestWait = 2 * time.Second
)

// handshakeError puts the cause into the place of what quic-go makes of it, which is net.ErrClosed among others.
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
			if cause != nil && cause != net.ErrClosed { //nolint:errorlint // the very one
				return cause
			}
		}
	}
	if alert, ok := alertOf(err); ok {
		return fmt.Errorf("remote error: %w", alert)
	}
	return fmt.Errorf("%v", err) //nolint:errorlint // it would match net.ErrClosed
}
