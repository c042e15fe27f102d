package transport

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
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

	// strangeWindow is what a client may send on a connection before it is admitted, bytes. As long as there are fewer than askBack of such clients,
	// it is roomyWindow, so that a client with a ticket need not wait: in two round trips slow start sends 120 KB.
	strangeWindow = 64 << 10
	roomyWindow   = 256 << 10
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

	// earlyMost is what a client sends on a connection in 0-RTT, bytes: about what the first congestion window lets through, and less than
	// strangeWindow, so that there is room for what comes when the handshake is over.
	earlyMost = 48 << 10

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
	// Set before any stream. Of a dialled one that has early streams, conn and udp may change until the handshake is over, guarded by mu, and
	// tls and peer are set then.
	conn *quic.Conn
	udp  *udpSocket
	tls  tls.ConnectionState
	peer ed25519.PublicKey

	admitted atomic.Bool
	known    func()              // called when it is, of accepted ones
	words    *quic.ReceiveStream // what the client of an accepted one says about the connection, if it has begun
	granted  atomic.Int64        // of allWindows
	writing  atomic.Int64        // bytes in Writes that have not returned

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
func (l *link) settle(conn *quic.Conn, udp *udpSocket) {
	l.mu.Lock()
	l.conn, l.udp = conn, udp
	l.mu.Unlock()
	l.tls = conn.ConnectionState().TLS
	l.peer = keyOf(l.tls.PeerCertificates)
	context.AfterFunc(conn.Context(), func() { windowsLeft.Add(l.granted.Swap(0)) })
}

// below returns what carries the link.
func (l *link) below() (*quic.Conn, *udpSocket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn, l.udp
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
	if conn := l.conn; l.overLocked() {
		go func() { _ = conn.CloseWithError(codeDone, "") }()
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
	box   *ticketBox     // nil until it is needed
	all   sync.WaitGroup // of connections that are not gone
}

// dialled is a link of a Group.
type dialled struct {
	link
	group *Group
	users int              // streams that are open or about to be; guarded by group.mu
	idle  chan struct{}    // closed when there are none, and no more will come
	ready chan struct{}    // closed when the handshake is over, and on a resumed connection the server has shown its key
	err   error            // of the handshake
	begun chan struct{}    // closed when there may be early streams
	said  *quic.SendStream // what the client says about the connection; nil until then

	// Guarded by link.mu.
	early []*quicConn // streams that were opened before the handshake was over
	room  int         // for them, bytes: of earlyMost
	past  bool        // it is too late for early streams
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
func (g *Group) take(cfg *Config, addr string, run func(d *dialled, over <-chan struct{}, hint netip.AddrPort)) (*dialled, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return nil, fmt.Errorf("connections are closed: %w", net.ErrClosed)
	}
	if g.box == nil {
		g.box = newTicketBox(cfg.Tickets, addr, cfg.Identity.Public().(ed25519.PublicKey))
	}
	var best *dialled
	for _, d := range g.links {
		if best == nil || d.users < best.users {
			best = d
		}
	}
	if cfg.Apart || best == nil || len(g.links) < g.want {
		best = &dialled{group: g, idle: make(chan struct{}), ready: make(chan struct{}), begun: make(chan struct{}), room: earlyMost}
		if !cfg.Apart {
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
	cache := &ticketCache{}
	conf, err := clientTLS(&cfg, addr, func(key ed25519.PublicKey) error {
		cache.server.Store(&key)
		return expect(key)
	})
	if err != nil {
		return nil, err
	}
	g := cfg.Group
	if g == nil {
		g = &Group{}
	}
	d, err := g.take(&cfg, addr, func(d *dialled, over <-chan struct{}, hint netip.AddrPort) {
		if cfg.Certificate == nil && cfg.Verify == nil {
			cache.box = g.box
			conf.SessionTicketsDisabled, conf.ClientSessionCache = false, cache
			if cfg.Early {
				cache.use = g.box.usable(expect)
			}
		}
		d.run(addr, conf, cache.use != nil, traceTo(cfg.QLog, &g.all), over, hint)
	})
	if err != nil {
		return nil, err
	}
	var begun chan struct{}
	if cfg.Early {
		begun = d.begun
	}
	select {
	case <-begun:
		if c := d.earlyStream(); c != nil {
			return c, nil
		}
	case <-d.ready:
	case <-ctx.Done():
	}
	select {
	case <-d.ready:
		err = d.err
	case <-ctx.Done():
		err = dialError(addr, context.Cause(ctx))
	}
	if err != nil {
		g.giveBack(d)
		return nil, err
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

// dialError says that a handshake failed, unless err is nil.
func dialError(addr string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("handshake with %s: %w", addr, err)
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

// run connects, and keeps the connection as long as it lives and somebody uses it. If it resumes, streams may begin before the handshake is over.
func (d *dialled) run(addr string, conf *tls.Config, resumes bool, trace tracer, over <-chan struct{}, hint netip.AddrPort) {
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
	var begin func(*connected)
	if resumes {
		begin = d.begin
	}
	c, err := connectQUIC(ctx, addr, hint, conf, trace, begin)
	stop := func() bool { return true }
	lost := false // what early streams have sent
	if err == nil {
		defer c.close()
		c.udp.onRefused(func() { _ = c.conn.CloseWithError(codeGone, "nobody listens on its port any more") })
		stop = context.AfterFunc(ctx, func() { _ = c.conn.CloseWithError(codeDone, "") })
		lost = !c.conn.ConnectionState().Used0RTT // the server has not taken it, or this is another connection
		if lost {
			_, _ = c.conn.NextConnection(ctx) // comes at once, as the handshake is over
		}
		d.settle(c.conn, c.udp)
		if d.tls.DidResume {
			d.said, err = d.show(conf.Certificates[0].PrivateKey, clientSigns)
		}
	}
	early := d.moveEarly(err, lost)
	stop()
	for _, c := range early {
		c.arrive(dialError(addr, err))
	}
	if err == nil && d.tls.DidResume { // meanwhile early streams write, but what comes back is not believed
		err = d.hear(over)
	}
	d.group.mu.Lock()
	if err == nil {
		d.group.addr = c.to
	} else {
		d.err = dialError(addr, err)
		d.group.dropLocked(d)
	}
	d.group.mu.Unlock()
	d.admit()
	close(d.ready)
	for _, c := range early {
		c.trust()
	}
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

// begin lets early streams be opened.
func (d *dialled) begin(c *connected) {
	d.mu.Lock()
	d.conn, d.udp = c.conn, c.udp
	d.mu.Unlock()
	close(d.begun)
}

// earlyStream opens a stream before the handshake is over. It returns nil if it is, or there can't be one.
func (d *dialled) earlyStream() *quicConn {
	d.mu.Lock()
	if d.past {
		d.mu.Unlock()
		return nil
	}
	s, err := d.conn.OpenStream()
	if err != nil {
		d.mu.Unlock()
		return nil
	}
	c := newQUICConn(&d.link, s)
	c.gone = func() { d.group.giveBack(d) }
	c.early = newEarly(d)
	d.early = append(d.early, c)
	d.mu.Unlock()
	d.enter(c)
	c.writeEarly([]byte{preface})
	return c
}

// moveEarly brings the early streams to the connection that there is now, with all that they have sent if that was lost.
func (d *dialled) moveEarly(err error, lost bool) []*quicConn {
	d.mu.Lock()
	d.past = true
	early := d.early
	d.early = nil
	d.mu.Unlock()
	if err != nil {
		return early
	}
	var anew *quic.Conn
	if lost {
		anew = d.conn
	}
	for _, c := range early {
		c.move(anew)
	}
	return early
}

// hear waits until the server of a resumed connection has shown its key, and ends a connection on which it does not.
func (d *dialled) hear(over <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(d.conn.Context(), HandshakeTimeout)
	defer cancel()
	d.group.all.Go(func() {
		select {
		case <-over:
			cancel()
		case <-ctx.Done():
		}
	})
	_, err := d.shown(ctx, serverSigns)
	if err == nil {
		return nil
	}
	_ = d.conn.CloseWithError(codeClosed, "")
	if !errors.Is(err, ErrImpostor) {
		err = fmt.Errorf("%w: %v", io.ErrUnexpectedEOF, err) //nolint:errorlint // quic-go's errors match net.ErrClosed
	}
	return err
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
	s := d.said
	if s == nil {
		var err error
		if s, err = d.conn.OpenUniStream(); err != nil {
			return
		}
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

// connectQUIC makes a connection to a server ("host:port"), with whichever of its addresses answers first. hint has answered before. begin, if not
// nil, is called with the first that 0-RTT data can be sent on. It may not be the one that is returned.
func connectQUIC(ctx context.Context, addr string, hint netip.AddrPort, conf *tls.Config, trace tracer, begin func(*connected)) (*connected, error) {
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
			begin := begin
			if i > 0 {
				begin = nil
			}
			c, err := connectTo(ctx, to, conf, trace, begin)
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
func connectTo(ctx context.Context, to netip.AddrPort, conf *tls.Config, trace tracer, begin func(*connected)) (*connected, error) {
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
	quicConf.MaxIncomingStreams, quicConf.MaxIncomingUniStreams = -1, 1
	quicConf.Tracer = trace
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		if begin == nil {
			c.conn, err = c.tr.Dial(ctx, peer, conf, quicConf)
		} else if c.conn, err = c.tr.DialEarly(ctx, peer, conf, quicConf); err == nil {
			select {
			case <-c.conn.HandshakeComplete(): // the ticket was none for 0-RTT
			default:
				begin(c)
				err = shaken(ctx, c.conn)
			}
			begin = nil
		}
		if err == nil {
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

// shaken waits until the handshake of a connection is over.
func shaken(ctx context.Context, conn *quic.Conn) error {
	select {
	case <-conn.HandshakeComplete():
		return nil
	case <-conn.Context().Done():
		return context.Cause(conn.Context())
	case <-ctx.Done():
		return context.Cause(ctx)
	}
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
