package server

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/compress"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/pace"
	"github.com/fxfer/fxfer/internal/path/probe"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// admitWithin is what a peer has for its handshake and first message, and a data stream for its session to appear.
	admitWithin = 10 * time.Second
	// drainWithin bounds the end of a server.
	drainWithin = 8 * time.Second
	// staleAfter is the age from which an abandoned partial file is removed when the server starts.
	staleAfter = 14 * 24 * time.Hour
)

// Server offers shares. New makes one that listens already.
type Server struct {
	opt       Options // of which what Reload changes is in rules
	log       *slog.Logger
	store     *identity.Store
	key       ed25519.PrivateKey
	pair      *identity.KeyPair    // for clients that ask for a certificate; nil for none
	listen    []transport.Listener // of TCP and QUIC, on one port
	host      string
	began     time.Time
	gate      *gate
	tally     *tally
	confined  atomic.Bool
	rules     atomic.Pointer[rules]
	reloading sync.Mutex

	in, out pace.Pacer // what comes, and what goes
	total   limit

	mu       sync.Mutex
	cond     *sync.Cond
	sessions map[[16]byte]*serverSession
	serving  bool
	guests   map[*guest]transport.Conn
	busy     map[identity.Principal]*busyClient
	draining bool
	seats    seats
	more     int          // data streams beyond the first of each session
	past     lastSessions // sessions that ended or were sent away
}

// serverSession is a session that was admitted.
type serverSession struct {
	server  *Server
	guest   *guest
	hello   *wire.Hello
	log     *slog.Logger
	audit   *audit
	set     *session.StreamSet
	share   *openShare
	coder   *compress.Meter // of Pull; nil for none
	clock   *transfer.Clock
	watched *session.Telemetry
	book    *book
	sender  *transfer.Sender
	receive *transfer.Receiver
	storing *storing        // of Store
	probe   *probe.Session  // of Probe, which has nothing above but server, guest, hello and log
	ctx     context.Context // of Probe: ends with the session
	in, out *pace.Flow      // of Probe
	drain   context.CancelCauseFunc
	streams int // data streams, guarded by server.mu
	offered int // the client was told last
}

// New opens the shares and listens. The caller calls Serve next.
func New(opt Options) (*Server, error) {
	s := &Server{
		opt: opt, log: opt.Log, began: time.Now(), tally: newTally(), sessions: make(map[[16]byte]*serverSession),
		guests: make(map[*guest]transport.Conn), busy: make(map[identity.Principal]*busyClient), seats: seats{of: make(map[string]int)},
	}
	s.cond = sync.NewCond(&s.mu)
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.host, _ = os.Hostname() // for messages only
	err := s.opt.fill(mostFiles())
	if err != nil {
		return nil, err
	}
	s.gate = newGate(&s.opt)
	if s.store, s.key, err = session.OpenIdentity(opt.Home); err != nil {
		return nil, err
	}
	if err := s.store.CheckAuthorized(); err != nil {
		s.log.Warn("authorised clients", "error", err)
	}
	if err := s.openTLS(); err != nil {
		return nil, err
	}
	r, err := s.rulesOf(&opt, nil)
	if err != nil {
		return nil, err
	}
	s.enforce(&opt, r)
	if err := s.listenOn(opt.Listen); err != nil {
		s.closeShares()
		return nil, err
	}
	return s, nil
}

// listenOn listens for what the options ask for. Where that is both, QUIC may fail: many firewalls let no UDP pass in any case.
func (s *Server) listenOn(addr string) error {
	of := func(p transport.Protocol, addr string) error {
		cfg := transport.Config{Identity: s.key, Protocol: p, SockBuf: s.opt.SockBuf, Congestion: s.opt.Congestion, Socket: s.opt.Socket, Datagrams: s.opt.Datagrams, Turn: s.gate.turn}
		if s.pair != nil {
			cfg.Certificate = s.pair.Certificate
		}
		l, err := transport.Listen(addr, cfg)
		if err != nil {
			return &session.Error{Kind: session.KindUsage, Err: fmt.Errorf("listen on %s: %w", addr, err)}
		}
		s.listen = append(s.listen, l)
		if w := transport.SmallBuffers(l); w != "" {
			s.log.Warn("QUIC will lose datagrams at high rates", "reason", w)
		}
		return nil
	}
	switch s.opt.Transport {
	case session.TransportTCP:
		if s.opt.Datagrams != nil { // nobody reads from it
			_ = s.opt.Datagrams.Close()
		}
		return of(transport.TCP, addr)
	case session.TransportQUIC:
		if s.opt.Socket != nil { // nobody accepts there
			_ = s.opt.Socket.Close()
		}
		return of(transport.QUIC, addr)
	case "", session.TransportAuto:
	default:
		return session.Usage("choose tcp, quic or auto", "there is no transport %q", s.opt.Transport)
	}
	for try := 1; ; try++ {
		if err := of(transport.TCP, addr); err != nil {
			return err
		}
		err := of(transport.QUIC, s.Addr().String())
		if err == nil {
			return nil
		}
		if _, port, _ := net.SplitHostPort(addr); port != "0" || s.opt.Socket != nil || try == 5 { // otherwise the system has another one that is free for both
			s.log.Warn("no QUIC: clients can use TCP only", "error", err)
			return nil
		}
		_ = s.listen[0].Close()
		s.listen = nil
	}
}

func (s *Server) closeShares() {
	for _, share := range s.rules.Load().shares {
		_ = share.tree.Close()
	}
}

// Alive tells whether the server admits sessions. A server that hangs does not return, which is what a watchdog wants to know.
func (s *Server) Alive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.serving && !s.draining
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.listen[0].Addr() }

// Pin is the server's key, as clients know it.
func (s *Server) Pin() string {
	return string(identity.PinOfPrivate(s.key))
}

// Invite makes a URL that admits one client to all shares, with their rights. It is valid once and for 10 minutes. host is the name
// or address at which the client reaches this server.
func (s *Server) Invite(host string) (string, error) {
	grants := make(identity.Grants)
	r := s.rules.Load()
	for name, share := range r.shares {
		grants[name] = share.Rights
	}
	token, err := s.store.Invite(grants, identity.InviteTTL, "")
	if err != nil {
		return "", err
	}
	port := identity.DefaultPort
	if at, ok := s.Addr().(interface{ AddrPort() netip.AddrPort }); ok {
		port = int(at.AddrPort().Port())
	}
	u := session.URL{Host: host, Port: port, Share: r.first, Token: token, Pin: identity.Pin(s.Pin())}
	return u.String(), nil
}

// Serve answers clients until ctx is done. Then it makes what runs durable, tells the clients to come again, and returns nil within 10 s.
func (s *Server) Serve(ctx context.Context) error {
	defer s.closeShares()
	var conns sync.WaitGroup
	live, kill := context.WithCancel(context.Background())
	defer kill()
	conns.Go(func() { s.sweep(ctx) })
	conns.Go(func() { s.measureSpace(ctx) })
	conns.Go(func() { s.countShares(ctx) })
	conns.Go(func() { s.watchCertificates(ctx) })
	s.mu.Lock()
	s.serving = true
	s.mu.Unlock()
	conns.Go(func() { s.keepReviewing(live) })
	unhook := context.AfterFunc(ctx, func() {
		for _, l := range s.listen {
			_ = l.Close()
		}
	})
	defer unhook()
	var accepting sync.WaitGroup
	for _, l := range s.listen {
		accepting.Go(func() {
			s.accept(ctx, l, func(conn transport.Conn, v *visit) { conns.Go(func() { s.serve(live, conn, v) }) })
		})
	}
	accepting.Wait()
	s.drain(kill)
	ended := make(chan struct{})
	go func() { conns.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(time.Second): // what hangs in the kernel ends with the process
	}
	parting, cancel := context.WithTimeout(context.Background(), session.PartWithin)
	defer cancel()
	for _, l := range s.listen {
		l.Shutdown(parting)
	}
	return nil
}

// accept takes connections until ctx is done, and hands on those that there is room for.
func (s *Server) accept(ctx context.Context, l transport.Listener, serve func(transport.Conn, *visit)) {
	failing := false
	for {
		conn, err := l.Accept()
		switch {
		case err == nil: // also of one that comes while the server ends: it is told so
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		default: // such as too many open files: others may end
			if !failing {
				s.log.Error("accept", "error", err)
			}
			failing = true
			select {
			case <-ctx.Done():
				return
			case <-time.After(acceptPause):
			}
			continue
		}
		failing = false
		if v := s.gate.enter(conn.RemoteAddr()); v != nil {
			serve(conn, v)
		} else {
			s.tally.refuse(refusedCrowd)
			_ = conn.Close()
		}
	}
}

// sweep removes what abandoned transfers left.
func (s *Server) sweep(ctx context.Context) {
	for name, share := range s.rules.Load().shares {
		if share.Rights.Has(identity.Write) || share.Rights.Has(identity.Append) {
			if n, err := share.tree.Sweep(ctx, ".", staleAfter); n > 0 || err != nil {
				s.log.Info("swept abandoned partial files", "share", name, "removed", n, "error", err)
			}
		}
	}
}

// spaceEvery is how often the space of the shares is looked at.
const spaceEvery = 10 * time.Second

// measureSpace keeps the space that the shares have, until ctx is done. A file system may hang: nobody waits for this.
func (s *Server) measureSpace(ctx context.Context) {
	tick := time.NewTicker(spaceEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			for _, share := range s.folders() {
				share.free.Store(share.tree.Free())
			}
		}
	}
}

// drain ends all sessions at a checkpoint.
func (s *Server) drain(kill context.CancelFunc) {
	s.mu.Lock()
	s.draining = true
	sessions := make([]*serverSession, 0, len(s.sessions))
	for _, x := range s.sessions {
		sessions = append(sessions, x)
	}
	s.cond.Broadcast()
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), drainWithin)
	defer cancel()
	var all sync.WaitGroup
	for _, x := range sessions {
		all.Go(func() {
			if x.receive != nil {
				x.receive.Drain(ctx)
			}
			x.drain(wire.Errorf(wire.CodeDraining, "the server is shutting down"))
		})
	}
	all.Wait()
	defer context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cond.Broadcast()
	})()
	s.mu.Lock()
	for len(s.sessions) > 0 && ctx.Err() == nil { // until their clients have been told
		s.cond.Wait()
	}
	s.mu.Unlock()
	kill()
}

// serve admits one connection and carries what it is for.
func (s *Server) serve(ctx context.Context, conn transport.Conn, v *visit) {
	defer v.leave()
	defer conn.Close()
	release := hurry(ctx, conn)
	defer release()
	begin, cancel := context.WithTimeout(ctx, admitWithin)
	defer cancel()
	log := s.log.With("peer", conn.RemoteAddr().String())
	var err error
	info, _ := conn.Info()
	shaken := info.Protocol == transport.QUIC // its connection has had its turn
	if !shaken {
		err = v.wait(begin)
	}
	if err == nil {
		err = conn.Handshake(begin)
	}
	if err != nil {
		s.tally.refuse(refusedHandshake)
		log.Debug("handshake", "error", err)
		return
	}
	deadline, _ := begin.Deadline()
	_ = conn.SetDeadline(deadline)
	m, err := wire.NewReader(conn, wire.MaxFirstMessage).Next()
	if err != nil {
		s.tally.refuse(refusedGreeting)
		log.Debug("first message", "error", err)
		return
	}
	who := s.callerOf(conn)
	switch m := m.(type) {
	case *wire.Hello:
		err = s.hello(ctx, conn, who, m, log, v.admitted)
	case *wire.Join:
		err = s.join(begin, conn, who, m, v.admitted)
	default:
		err = wire.Errorf(wire.CodeProtocol, "a connection begins with Hello or Join")
	}
	var refused *wire.Error
	if errors.As(err, &refused) && !refused.Remote {
		if shaken { // a connection has many streams
			_ = v.wait(begin)
		}
		release() // the server may be ending, and this takes seconds at most
		s.tally.refuse(refused.Code.String())
		log.Info("refused", "client", who.shown, "code", refused.Code.String(), "reason", refused.Text)
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		if _, err := conn.Write(wire.Append(nil, &wire.Refuse{Code: refused.Code, Text: refused.Text})); err == nil {
			_ = conn.CloseWrite()
			linger(conn)
		}
	}
}

// hurry has whoever reads and writes on conn give up when ctx ends. After release, which may be called again, deadlines are the caller's.
func hurry(ctx context.Context, conn transport.Conn) (release func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		_ = conn.SetDeadline(time.Unix(1, 0))
	})
	return sync.OnceFunc(func() {
		if !stop() {
			<-done
		}
	})
}

// linger reads what the peer has sent already: closing with it unread would reset the connection, and the peer might not
// see why it was refused.
func linger(conn transport.Conn) {
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	buf := make([]byte, 16<<10)
	for range 64 {
		if _, err := conn.Read(buf); err != nil {
			return
		}
	}
}

// grants tells what a client may do. A valid invitation enrols it.
func (s *Server) grants(conn transport.Conn, who caller, m *wire.Hello, log *slog.Logger) (identity.Grants, error) {
	if who.why != nil {
		return nil, who.why
	}
	grants, known, err := s.admission(who.id)
	if err != nil {
		log.Warn("authorised clients", "error", err)
	}
	if len(m.Proof) != 32 {
		switch {
		case known:
		case who.id.IsName():
			return nil, wire.Errorf(wire.CodeCertificate, "this client's certificate is valid, but its name is not admitted: %s", who.id)
		default:
			return nil, wire.Errorf(wire.CodeTrust, "this client's key is not admitted")
		}
		return grants, nil
	}
	exported, err := conn.Exporter(session.ExporterLabel, 32)
	if err != nil {
		return nil, err
	}
	invited, comment, err := s.store.Redeem([32]byte(m.Proof), exported)
	if err != nil {
		if known { // the URL was pasted again
			return grants, nil
		}
		return nil, &wire.Error{Code: wire.CodeTrust, Text: err.Error()}
	}
	if comment == "" {
		comment = fmt.Sprintf("invited %s from %s", time.Now().UTC().Format(time.RFC3339), conn.RemoteAddr())
	}
	if err := s.store.AddAuthorized(who.id, invited, comment); err != nil {
		log.Error("enrol", "error", err)
		return nil, wire.Errorf(wire.CodeOther, "the server could not enrol this client; its invitation is spent")
	}
	log.Info("enrolled", "client", who.shown, "grants", invited.String())
	return grants.Merge(invited), nil
}

// hello admits a session and runs it.
func (s *Server) hello(ctx context.Context, conn transport.Conn, who caller, m *wire.Hello, log *slog.Logger, admitted func()) (err error) {
	if m.Version != wire.Version {
		return wire.Errorf(wire.CodeVersion, "the server speaks protocol version %d, the client %d", wire.Version, m.Version)
	}
	grants, err := s.grants(conn, who, m, log)
	if err != nil {
		s.refused(ctx, conn, who, m, err)
		return err
	}
	s.replace(ctx, m.Replaces, who.id)
	ctx, g, err := s.sit(ctx, conn, who, m.Session)
	if err != nil {
		s.refused(ctx, conn, who, m, err)
		return err
	}
	defer g.leave()
	defer s.pass(m.Session)
	g.grants = grants
	audit := g.auditOf(m)
	log = log.With("session", g.id, "client", who.shown)
	s.tally.begin(m.Intent)
	carried := false // by an engine, which has its own last word
	defer func() {
		if !carried {
			audit.session(ctx, m.Paths, -1, err)
		}
	}()
	switch m.Intent {
	case wire.List:
		return s.list(ctx, conn, m, g)
	case wire.Verify:
		return s.verify(ctx, conn, m, g, admitted, log)
	case wire.Probe:
		return s.probing(ctx, conn, m, g, admitted, log)
	case wire.Series:
		return s.listSeries(conn, m, g)
	case wire.Scrub:
		return s.scrub(ctx, conn, m, g, admitted)
	case wire.Expire:
		return s.expire(ctx, conn, m, g, admitted)
	}
	x := &serverSession{server: s, guest: g, hello: m, audit: audit}
	need := identity.Write
	if m.Intent == wire.Pull {
		need = identity.Read
	} else if m.Intent != wire.Push && m.Intent != wire.Store || len(m.Paths) != 1 {
		return wire.Errorf(wire.CodeProtocol, "a session sends or gets")
	}
	switch m.Intent {
	case wire.Store:
		if x.share, err = g.open(m.Share, identity.Append); err != nil {
			x.share, err = g.open(m.Share, identity.Write)
		}
		if err == nil && (m.Target.Compare.Checksum || m.Target.DryRun) { // they show what is there
			_, err = g.open(m.Share, identity.Append)
		}
	case wire.Pull:
		if len(m.Paths) == 0 {
			return wire.Errorf(wire.CodeProtocol, "nothing to get")
		}
		for _, p := range m.Paths {
			if x.share, err = g.openPath(m.Share, p, need); err != nil {
				break
			}
		}
	default:
		x.share, err = g.open(m.Share, need)
		if err == nil && (m.Target.Delete || m.Target.Compare.Checksum || m.Target.DryRun) {
			_, err = g.open(m.Share, identity.Read)
		}
		if err == nil {
			err = x.spareSnapshots(m.Paths[0])
		}
	}
	if err != nil {
		return err
	}
	shows := identity.Read
	if m.Intent == wire.Store {
		shows = identity.Append
	}
	if !x.share.Rights.And(grants.On(m.Share)).Has(shows) { // digests of its pieces tell what a file holds
		m.Target.Delta = wire.DeltaNone
	}
	if err := conn.Apply(int(min(m.SockBuf, 1<<30)), m.Congestion); err != nil {
		return wire.Errorf(wire.CodeUnsupported, "the server's kernel refuses: %v", err)
	}
	conn.Admit()
	admitted()
	_ = conn.SetDeadline(time.Time{})
	x.log = log.With("share", m.Share)
	carried, err = x.run(ctx, conn)
	return err
}

// register makes a session known to its data streams.
func (s *Server) register(x *serverSession) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.draining:
		return wire.Errorf(wire.CodeDraining, "the server is shutting down")
	case s.sessions[x.hello.Session] != nil:
		return wire.Errorf(wire.CodeProtocol, "this session exists")
	case x.probe != nil:
		probes := 0
		for _, other := range s.sessions {
			if other.probe != nil {
				probes++
			}
		}
		if probes >= MaxProbes {
			return wire.Errorf(wire.CodeBusy, "%d probes are under way", probes)
		}
	}
	s.sessions[x.hello.Session] = x
	s.cond.Broadcast()
	return nil
}

// replaceWithin bounds the end of a session that another one replaces.
const replaceWithin = 5 * time.Second

// errReplaced ends a session whose client has come again.
var errReplaced = wire.Errorf(wire.CodeSilent, "the client has come again")

// replace ends the session id, if it is of this client, and returns when it has let go of its files or that takes too long.
func (s *Server) replace(ctx context.Context, id [16]byte, client identity.Principal) {
	s.mu.Lock()
	x := s.sessions[id]
	s.mu.Unlock()
	if id == ([16]byte{}) || x == nil || x.drain == nil || x.guest.who.id != client {
		return
	}
	x.drain(errReplaced)
	ctx, cancel := context.WithTimeout(ctx, replaceWithin)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cond.Broadcast()
	})()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.sessions[id] == x && ctx.Err() == nil {
		s.cond.Wait()
	}
}

func (s *Server) unregister(x *serverSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, x.hello.Session)
	s.cond.Broadcast()
}

// join hands a data stream to its session, which may appear only after it. What does not fit any session hears nothing about
// sessions.
func (s *Server) join(ctx context.Context, conn transport.Conn, who caller, m *wire.Join, admitted func()) error {
	if m.Version != wire.Version {
		return wire.Errorf(wire.CodeVersion, "the server speaks protocol version %d, the client %d", wire.Version, m.Version)
	}
	if who.why != nil {
		return who.why
	}
	refused := wire.Errorf(wire.CodeTrust, "there is no such session")
	x := s.await(ctx, m.Session)
	if x == nil || x.guest.who.id != who.id || subtle.ConstantTimeCompare(x.hello.Secret[:], m.Secret[:]) != 1 {
		return refused
	}
	if err := conn.Apply(int(min(m.SockBuf, 1<<30)), m.Congestion); err != nil {
		return wire.Errorf(wire.CodeUnsupported, "the server's kernel refuses: %v", err)
	}
	if x.probe != nil {
		conn.Admit()
		admitted()
		return x.probe.Serve(x.ctx, session.NewStreamSet(x.in, x.out).Add(m.Stream, conn, 1))
	}
	leave := s.enterStream(x)
	if leave == nil {
		return wire.Errorf(wire.CodeBusy, "the server has no room for another data stream of this session")
	}
	defer leave()
	d := x.set.Add(m.Stream, conn, session.MaxStreams)
	if d == nil {
		return wire.Errorf(wire.CodeBusy, "a session has at most %d data streams, each with its number", session.MaxStreams)
	}
	conn.Admit()
	admitted()
	_ = conn.SetDeadline(time.Time{})
	if x.sender != nil {
		x.sender.AddStream(m.Stream, d)
	} else {
		x.receive.AddStream(d)
	}
	<-d.Context.Done()
	return nil
}

// pass lets the data streams of a session that is over not wait for it: some of a short one come when it has ended.
func (s *Server) pass(id [16]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.past.add(id)
	s.cond.Broadcast()
}

// await returns the session of this name when it is there, nil if it is over or that takes too long.
func (s *Server) await(ctx context.Context, id [16]byte) *serverSession {
	defer context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cond.Broadcast()
	})()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.sessions[id] == nil && ctx.Err() == nil && !s.draining && !s.past.has(id) {
		s.cond.Wait()
	}
	return s.sessions[id]
}

// run carries an admitted session. An error, without carried, says why it could not.
func (x *serverSession) run(ctx context.Context, conn transport.Conn) (carried bool, err error) {
	s := x.server
	ctx, x.drain = context.WithCancelCause(ctx)
	defer x.drain(nil)
	start := time.Now()
	r := wire.NewReader(conn, wire.MaxMessage)
	var limit int64
	if x.hello.Intent == wire.Pull {
		limit = x.hello.RateLimit
	}
	x.set = session.NewStreamSet(x.guest.flows(limit))
	x.clock = transfer.NewClock()
	x.watched = session.NewTelemetry(x.clock, x.set, x.written, session.HostFacts(s.host, int64(s.opt.SockBuf)))
	x.watched.SetPeer(conn.RemoteAddr())
	x.book = newBook(x, conn.RemoteAddr().String())
	count := &counts{audit: x.audit}
	run, err := x.engine(ctx, conn, r, count)
	if err != nil {
		return false, err
	}
	if x.storing != nil {
		defer x.share.quota.Freed()
		defer x.storing.close()
	}
	x.offered = s.offer()
	x.send(&wire.Welcome{Agent: session.Agent, Host: s.host, MaxStreams: uint64(x.offered)})
	if err := s.register(x); err != nil {
		return false, err
	}
	defer s.unregister(x)
	x.log.Info("session begins", "intent", x.intent(), "agent", wire.Printable(x.hello.Agent))
	err = x.watch(ctx, run)
	x.book.close(err)
	level := slog.LevelInfo
	if err != nil {
		level = slog.LevelWarn
	}
	seconds := time.Since(start).Seconds()
	x.log.Log(ctx, level, "session ends", "intent", x.intent(), "seconds", seconds, "bytes", count.written, "files", count.committed,
		"unchanged", count.same, "removed", count.removed, "failed", count.failed, "streams", x.set.Peak(), "error", err)
	x.audit.session(ctx, x.hello.Paths, count.written, err)
	if err != nil && !errors.Is(err, errReplaced) { // the engine has told the peer, who may not have read it yet
		_ = conn.CloseWrite()
		linger(conn)
	}
	return true, nil
}

// engine makes the engine and returns its Run. What the client asks of it may be hostile.
func (x *serverSession) engine(ctx context.Context, conn transport.Conn, r *wire.Reader, count *counts) (func(context.Context) error, error) {
	if x.hello.Intent == wire.Store {
		return x.storeEngine(ctx, conn, r, count)
	}
	if x.hello.Intent == wire.Push {
		if dir := x.hello.Target.BackupDir; dir != "" {
			if err := disk.CheckPath(dir); err != nil || dir == "." {
				return nil, wire.Errorf(wire.CodePath, "%q is no folder for backups", dir)
			}
		}
		x.receive = transfer.NewReceiver(conn, r, x.share.tree, transfer.ReceiverOptions{
			Path: cmp.Or(x.hello.Paths[0], "."), Target: x.hello.Target, Quota: x.share.quota, Event: x.event(count), Message: x.message, Clock: x.clock, Finishing: func() { x.watched.SendLast(x.send) },
		})
		return x.receive.Run, nil
	}
	source := transfer.TreeSource{OneFileSystem: x.hello.Select.OneFileSystem}
	var err error
	if source.Filter, err = session.FilterOf(&x.hello.Select); err != nil {
		return nil, &wire.Error{Code: wire.CodeUnsupported, Text: err.Error()}
	}
	if x.coder, err = compress.Parse(x.hello.Select.Compress); err != nil {
		return nil, &wire.Error{Code: wire.CodeUnsupported, Text: err.Error()}
	}
	session.AssumePath(x.coder, conn)
	if source.Roots, err = x.roots(); err != nil {
		return nil, err
	}
	if x.audit != nil {
		x.audit.roots = source.Roots
	}
	x.sender = transfer.NewSender(conn, r, &source, transfer.SenderOptions{
		Speculate: x.hello.Fresh, Streams: int(min(x.hello.MaxStreams, session.InitialStreams)), Prune: x.hello.Target.Delete, Coder: x.coder, Clock: x.clock,
		Event: x.event(count), Message: x.message, WalkFailed: func(path string, err error) { x.log.Warn("not sent", "path", path, "error", err) },
	})
	return x.sender.Run, nil
}

func (x *serverSession) intent() string { return intentName(x.hello.Intent) }

// event takes the engine's events.
func (x *serverSession) event(count *counts) func(transfer.Event) {
	return func(e transfer.Event) {
		count.event(e)
		x.book.event(e)
	}
}

// message takes what the engine does not know: what the client has measured.
func (x *serverSession) message(m wire.Message) {
	switch m := m.(type) {
	case *wire.Sample:
		x.watched.AddPeerSample(m.Map())
	case *wire.Retire:
		for _, id := range m.Streams[:min(len(m.Streams), session.MaxStreams)] {
			if x.sender != nil {
				x.set.Retire(id)
				x.sender.Retire(id)
			}
		}
	}
}

// watch runs the engine, tunes its streams where we send, and tells the client about our sockets.
func (x *serverSession) watch(ctx context.Context, run func(context.Context) error) error {
	watch, stop := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	if x.sender != nil {
		t := session.Tuner{Sender: x.sender, Set: x.set, Tuning: session.Tuning{Most: func() int { return int(min(x.hello.MaxStreams, uint64(x.server.offer()))) },
			Want: func(n int, dead []uint64) { x.send(&wire.Streams{Want: uint64(n), Dead: dead}) }}}
		tasks.Go(func() { t.Run(watch) })
		if x.coder != nil {
			tasks.Go(func() { session.FeedMeter(watch, x.set, x.coder) })
		}
	}
	if x.receive != nil {
		tasks.Go(func() { x.tellShare(watch) })
	}
	tasks.Go(func() { x.watched.Run(watch, x.send) })
	err := run(ctx)
	stop()
	tasks.Wait()
	return err
}

// shareEvery is how often a client is told that it may use another number of data streams.
const shareEvery = time.Second

// tellShare tells the client, who sends, how many data streams it may use, whenever others come or go.
func (x *serverSession) tellShare(ctx context.Context) {
	tick := time.NewTicker(shareEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if now := x.server.offer(); now != x.offered {
				x.offered = now
				x.send(&wire.Welcome{Agent: session.Agent, Host: x.server.host, MaxStreams: uint64(now)})
			}
		}
	}
}

// written is the payload written at the target so far, bytes.
func (x *serverSession) written() int64 {
	if x.sender != nil {
		return x.sender.Stats().Written
	}
	return x.receive.Stats().Written
}

func (x *serverSession) send(m wire.Message) {
	if x.sender != nil {
		x.sender.Send(m)
	} else {
		x.receive.Send(m)
	}
}

// counts sums a session's events up for the log.
type counts struct {
	audit                            *audit
	written                          int64
	committed, same, removed, failed int
}

func (c *counts) event(e transfer.Event) {
	c.audit.event(e)
	switch e.Kind {
	case transfer.Written:
		c.written += max(0, e.Bytes)
	case transfer.Committed:
		c.committed++
	case transfer.Same:
		c.same++
	case transfer.Removed:
		c.removed++
	case transfer.Failed:
		c.failed++
	}
}

// roots opens what a client wants to get.
func (x *serverSession) roots() ([]transfer.Root, error) {
	if len(x.hello.Paths) == 0 {
		return nil, wire.Errorf(wire.CodeProtocol, "nothing to get")
	}
	var roots []transfer.Root
	for _, p := range x.hello.Paths {
		name := strings.TrimSuffix(p, "/")
		root := transfer.Root{Tree: x.share.tree, Path: cmp.Or(name, "."), As: path.Base(cmp.Or(name, x.share.Name))}
		m, err := root.Tree.Stat(root.Path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, wire.Errorf(wire.CodeNotFound, "%q does not exist in share %q", name, x.share.Name)
		case errors.Is(err, disk.ErrPath), errors.Is(err, disk.ErrNotFolder):
			return nil, &wire.Error{Code: wire.CodePath, Text: err.Error()}
		case err != nil:
			return nil, &wire.Error{Code: wire.CodeSourceDisk, Text: err.Error()}
		}
		if strings.HasSuffix(p, "/") {
			if m.Kind != disk.Dir {
				return nil, wire.Errorf(wire.CodePath, "%q is not a folder", name)
			}
			root.As = ""
		}
		roots = append(roots, root)
	}
	return roots, nil
}

// list answers a listing.
func (s *Server) list(ctx context.Context, conn transport.Conn, m *wire.Hello, g *guest) error {
	var out []byte
	var batch wire.Entries
	flush := func() error {
		out = wire.Append(out[:0], &batch)
		batch = wire.Entries{First: batch.First + uint64(len(batch.Entries))}
		_ = conn.SetWriteDeadline(time.Now().Add(admitWithin))
		_, err := conn.Write(out)
		return err
	}
	add := func(e wire.Entry) error {
		if batch.Entries = append(batch.Entries, e); len(batch.Entries) < 128 {
			return nil
		}
		return flush()
	}
	if m.Share == "" {
		if err := s.listShares(g.grants, add); err != nil {
			return err
		}
	} else {
		if len(m.Paths) != 1 {
			return wire.Errorf(wire.CodeProtocol, "a listing is of one path")
		}
		share, shown, err := g.openList(m.Share, cmp.Or(m.Paths[0], "."))
		if err != nil {
			return err
		}
		err = share.tree.List(ctx, cmp.Or(m.Paths[0], "."), func(m disk.Meta) error {
			if !shown(m) {
				return nil
			}
			return add(transfer.EntryOf(m, path.Base(m.Path)))
		})
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return wire.Errorf(wire.CodeNotFound, "%q does not exist in share %q", m.Paths[0], m.Share)
		case errors.Is(err, disk.ErrPath), errors.Is(err, disk.ErrNotFolder):
			return &wire.Error{Code: wire.CodePath, Text: err.Error()}
		case err != nil:
			return &wire.Error{Code: wire.CodeSourceDisk, Text: err.Error()}
		}
	}
	if err := flush(); err != nil {
		return err
	}
	out = wire.Append(out[:0], &wire.Welcome{Agent: session.Agent, Host: s.host, MaxStreams: session.MaxStreams})
	out = wire.Append(out, &wire.EndManifest{Count: batch.First})
	if _, err := conn.Write(out); err != nil {
		return err
	}
	_ = conn.CloseWrite()
	linger(conn)
	return nil
}

func (s *Server) listShares(grants identity.Grants, add func(wire.Entry) error) error {
	for _, share := range s.folders() {
		rights := share.Rights.And(grants.On(share.Name))
		if rights == 0 {
			continue
		}
		m, err := share.tree.Stat(".")
		if err != nil {
			return &wire.Error{Code: wire.CodeSourceDisk, Text: err.Error()}
		}
		if err := add(wire.Entry{Kind: wire.Share, Path: share.Name, Link: rights.String(), ModTime: m.ModTime.UnixNano()}); err != nil {
			return err
		}
	}
	return nil
}

// newRequestID names a session in logs.
func newRequestID() string {
	var id [4]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}
