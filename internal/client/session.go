package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/compress"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// maxListing bounds a listing, in bytes, of which an entry takes listedEntry and its names.
	maxListing  = 512 << 20
	listedEntry = 128
)

// clientSession is one session of a client: a control stream, data streams, and the engine between them.
type clientSession struct {
	client    *Client
	url       session.URL
	hello     wire.Hello
	tracker   *session.Tracker
	source    transfer.Source // of Push
	target    *disk.Tree      // of Pull
	path      string
	fresh     bool                // this transfer was never tried before
	again     bool                // a session before was lost
	mtu       int                 // bound for packets, 0 for none
	via       choice              // of the transport of data streams; guarded by mu once the session runs
	opened    atomic.Bool         // the control stream is there
	connected atomic.Bool         // some stream is
	heard     atomic.Int64        // bytes, on the control stream
	warned    func(*wire.Warning) // of a listing; nil for nobody

	cfg      transport.Config
	group    transport.Group // of QUIC connections
	set      *session.StreamSet
	coder    *compress.Meter // of Push; nil for none
	sender   *transfer.Sender
	receiver *transfer.Receiver
	ctx      context.Context
	cancel   context.CancelCauseFunc
	ready    chan struct{} // closed when sender or receiver is there
	stats    sessionStats
	watched  *session.Telemetry

	mu      sync.Mutex
	want    int
	most    int // that the server offers, 0 until it has told
	dialing int
	nextID  uint64
	refused int // streams in a row that ended at once
	over    bool
	dials   sync.WaitGroup // and what else ends with the session
}

// sessionStats is what the sockets of one or more sessions showed.
type sessionStats struct {
	path    session.PathStats
	carrier session.Transport
	reason  string // for it
	links   int    // connections of QUIC
	peer    map[string]int64
	streams int
	resent  int64
	raw     int64 // of the blocks that were compressed, bytes
	coded   int64
	push    bool

	cells            []diagnose.Cell
	sender, receiver diagnose.Host
	swallowed        *transport.BlackHoleError // the first
	connecting       time.Duration             // in vain, because of it
}

func (a *sessionStats) merge(b sessionStats) {
	retrans := a.path.Retrans
	a.streams = max(a.streams, b.streams)
	a.resent += b.resent
	a.raw += b.raw
	a.coded += b.coded
	a.push = b.push
	if b.path != (session.PathStats{}) {
		a.path, a.carrier, a.reason, a.links = b.path, b.carrier, b.reason, b.links
	}
	a.path.Retrans = retrans + b.path.Retrans
	if b.peer != nil {
		a.peer = b.peer
	}
	if len(b.cells) > 0 {
		a.sender, a.receiver = b.sender, b.receiver
		a.append(b.cells...)
	}
}

func (a *sessionStats) fill(r *session.Report, asked *diagnose.Asked) {
	r.Streams, r.Resent, r.Congestion, r.RTT, r.Retransmits = a.streams, a.resent, a.path.Congestion, a.path.MinRTT, a.path.Retrans
	r.Transport, r.TransportReason, r.Connections = a.carrier, a.reason, a.links
	r.SendBuffer, r.RecvBuffer = int64(a.path.SndBuf), a.peer["rcvbuf"]
	if !a.push {
		r.SendBuffer, r.RecvBuffer = a.peer["sndbuf"], int64(a.path.RcvBuf)
		r.Retransmits = a.peer["retrans"]
	}
	r.Raw, r.Coded = a.raw, a.coded
	r.BDP = int64(r.Peak / 8 * r.RTT.Seconds())
	r.Timeline = a.cells
	if hole := a.swallowed; hole != nil {
		host := session.HostFacts(session.Hostname(), 0)
		asked.Connecting = &host
		before := diagnose.Cell{Length: a.connecting, Limiter: diagnose.BlackHole, Sender: diagnose.Sample{
			Retrans: int64(hole.Info.RetransSegs), PMTU: int64(hole.Size()), MinRTT: hole.Info.MinRTT,
		}}
		r.Timeline = append([]diagnose.Cell{before}, r.Timeline...)
	}
	r.Limits = diagnose.Judge(r.Timeline, &a.sender, &a.receiver, asked)
}

// maxMoments bounds the moments of a transfer of many sessions.
const maxMoments = 1024

// append adds moments. Of those past, pairs are joined when there are too many.
func (a *sessionStats) append(cells ...diagnose.Cell) {
	a.cells = append(a.cells, cells...)
	for len(a.cells) > maxMoments {
		var joined []diagnose.Cell
		for pair := range slices.Chunk(a.cells, 2) {
			joined = append(joined, diagnose.Join(pair))
		}
		a.cells = joined
	}
}

// run carries one session from the first packet to the last.
func (s *clientSession) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.ctx = ctx
	opt := &s.client.opt
	_, _ = rand.Read(s.hello.Session[:]) // never fails
	_, _ = rand.Read(s.hello.Secret[:])
	s.cfg = s.config()
	s.cfg.Path.MTU = s.mtu
	defer s.group.Close(session.PartWithin)
	limit := NewThrottle(0)
	if s.hello.Intent != wire.Pull { // then the server sends
		limit = opt.throttle()
	}
	s.set = session.NewStreamSet(nil, limit.pacer.Flow(&limit.limit))
	clock := transfer.NewClock()
	s.watched = session.NewTelemetry(clock, s.set, s.written, session.HostFacts(session.Hostname(), int64(opt.SockBuf)))
	s.set.Removed = func(lived time.Duration) { s.replace(ctx, lived) }
	s.cancel = cancel

	first := opt.Streams
	if first == 0 {
		first = min(max(session.InitialStreams, s.client.learned(s.client.pathName(s.url.Address(), s.via.of))), opt.MaxStreams)
	}
	trusted, err := s.client.knows(s.url)
	if err != nil {
		return err
	}
	// The data streams connect while the control stream does. Only an unknown server has to be confirmed first.
	s.ready = make(chan struct{})
	if trusted {
		if !s.again { // or else a server that had no room would have to refuse them all once more
			s.grow(ctx, first)
		}
		s.watch(ctx)
	}
	defer func() {
		s.mu.Lock()
		s.over = true
		s.mu.Unlock()
		cancel(nil)
		s.dials.Wait()
		s.stats.path, s.stats.streams, s.stats.push = s.set.Stats(), s.set.Peak(), s.source != nil
		s.stats.carrier, s.stats.reason, s.stats.links = s.carrier()
		s.judge()
	}()
	if opt.Transport == session.TransportAuto {
		s.dials.Go(func() { s.race(ctx, cancel) })
	}
	control, err := s.open(ctx)
	if sw := (*errSwitch)(nil); errors.As(context.Cause(ctx), &sw) {
		if err == nil {
			_ = control.Close()
		}
		return sw
	}
	if err != nil {
		return err
	}
	defer control.Close()
	s.opened.Store(true)
	s.watched.SetPeer(control.RemoteAddr())
	if err := s.begin(control, first, clock); err != nil {
		return err
	}
	close(s.ready)
	s.dials.Go(func() { doubt(ctx, s.heard.Load, s.reach, s.cancel) })
	s.grow(ctx, first)
	if opt.Transport == session.TransportAuto && s.cfg.Protocol == transport.TCP {
		s.dials.Go(func() { s.watchWindows(ctx, control) })
	}
	if !trusted { // until now it was the user who thought
		s.watch(ctx)
	}
	return s.work(ctx)
}

// config is for all streams of the session. The caller closes the group.
func (s *clientSession) config() transport.Config {
	opt := &s.client.opt
	s.group.SetWant(session.MaxStreams)
	if s.via.of == "" {
		s.via = s.client.firstChoice(s.url.Address())
	}
	cfg := s.client.transportTo(s.url)
	cfg.Protocol, cfg.Group, cfg.QLog, cfg.SockBuf, cfg.Congestion = s.via.of.Protocol(), &s.group, opt.QLog, opt.SockBuf, opt.Congestion
	return cfg
}

// carrier is what carries the data, and the QUIC connections it takes.
func (s *clientSession) carrier() (of session.Transport, reason string, links int) {
	via := s.chosen()
	switch {
	case s.set.Peak() == 0:
		return "", "", 0
	case via.of == session.TransportQUIC:
		return session.TransportQUIC, via.reason, s.group.Links()
	}
	return session.TransportTCP, via.reason, 0
}

// watch tells the user of silences of the server until ctx is done.
func (s *clientSession) watch(ctx context.Context) {
	if s.client.opt.Notice == nil {
		return
	}
	v := vigil{peer: s.url.Address()}
	s.dials.Go(func() { v.keep(ctx, s.signs, s.client.opt.Notice) })
}

// signs counts the signs of life of the server.
func (s *clientSession) signs() int64 {
	n := s.heard.Load()
	select {
	case <-s.ready:
		n += s.written()
	default: // there is no engine yet
	}
	return n
}

// open connects the control stream and sends Hello. The server's answer comes while data already flows.
func (s *clientSession) open(ctx context.Context) (transport.Conn, error) {
	dialCtx, cancel := context.WithTimeout(ctx, session.DialTimeout)
	defer cancel()
	cfg := s.cfg
	cfg.Doubt, cfg.Apart = true, true
	conn, err := s.client.dial(dialCtx, s.url, cfg)
	if err != nil {
		return nil, err
	}
	s.connected.Store(true)
	s.hello.Version, s.hello.Agent = wire.Version, session.Agent
	s.hello.SockBuf, s.hello.Congestion = int64(s.cfg.SockBuf), s.cfg.Congestion
	s.hello.MaxStreams = uint64(s.client.opt.MaxStreams)
	if s.client.opt.Streams > 0 {
		s.hello.MaxStreams = uint64(s.client.opt.Streams)
	}
	if s.url.Token != "" {
		exported, err := conn.Exporter(session.ExporterLabel, 32)
		if err != nil {
			_ = conn.Close()
			return nil, err
		}
		proof := identity.InviteProof(s.url.Token, exported)
		s.hello.Proof = proof[:]
	}
	if _, err := conn.Write(wire.Append(nil, &s.hello)); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// reach connects to the server, and no more.
func (s *clientSession) reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, deafAfter)
	defer cancel()
	conn, err := transport.Dial(ctx, s.url.Address(), s.cfg, s.client.expect(s.url))
	if err != nil {
		return err
	}
	return conn.Close()
}

// openThrough is open, also through a black hole.
func (s *clientSession) openThrough(ctx context.Context) (transport.Conn, error) {
	first, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if s.client.opt.Transport == session.TransportAuto {
		s.dials.Go(func() { s.race(first, stop) })
		defer s.dials.Wait()
	}
	conn, err := s.open(first)
	if err == nil {
		s.opened.Store(true)
		stop(nil)
	} else if cause := context.Cause(first); cause != nil && ctx.Err() == nil {
		err = cause
	}
	var hole *transport.BlackHoleError
	if to := s.instead(ctx, err); to.of != "" {
		s.via, s.cfg.Protocol = to, to.of.Protocol()
		return s.open(ctx)
	}
	if errors.As(err, &hole) {
		s.client.tellHole(hole, s.url.Address())
		s.cfg.Path.MTU = transport.SafeMTU
		return s.open(ctx)
	}
	return conn, err
}

// begin makes the engine, for that many data streams at first.
func (s *clientSession) begin(control transport.Conn, streams int, clock *transfer.Clock) error {
	r := wire.NewReader(counted{control, &s.heard}, wire.MaxMessage)
	message := func(m wire.Message) { s.message(control, m) }
	if s.source == nil {
		s.receiver = transfer.NewReceiver(control, r, s.target, transfer.ReceiverOptions{
			Path: s.path, Target: s.hello.Target, Names: namesOf(&s.hello), Leave: true, Event: s.tracker.Event, Message: message, Clock: clock,
		})
		return nil
	}
	var err error
	if s.coder, err = session.Coder(s.client.opt.Compress); err != nil {
		return err
	}
	session.AssumePath(s.coder, control)
	s.sender = transfer.NewSender(control, r, s.source, transfer.SenderOptions{
		Speculate: s.fresh, Streams: streams, Prune: s.hello.Target.Delete, Coder: s.coder, Clock: clock,
		Event: s.tracker.Event, Message: message, WalkFailed: s.tracker.WalkFailed,
	})
	return nil
}

// namesOf returns what a server may send of what a Pull asks for; nil is anything, as for what a folder holds.
func namesOf(m *wire.Hello) (names []string) {
	for _, p := range m.Paths {
		name := path.Base(cmp.Or(p, m.Share))
		if strings.HasSuffix(p, "/") || name == "." {
			return nil
		}
		names = append(names, name)
	}
	return names
}

// message acts on what the engine does not know.
func (s *clientSession) message(control transport.Conn, m wire.Message) {
	switch m := m.(type) {
	case *wire.Welcome:
		first := s.offered(int(min(m.MaxStreams, session.MaxStreams)))
		s.shed()
		if !first {
			return
		}
		s.watched.SetPeerName(m.Host)
		if s.url.Pin != "" || s.client.pin != "" {
			if err := s.client.remember(s.url, control.PeerKey()); err != nil && s.client.opt.Notice != nil {
				s.client.opt.Notice(err.Error())
			}
		}
	case *wire.Streams:
		for _, id := range m.Dead {
			s.set.Drop(id)
		}
		s.setWant(min(int(min(m.Want, session.MaxStreams)), s.client.opt.MaxStreams))
	case *wire.Sample:
		values := m.Map()
		s.mu.Lock()
		s.stats.peer = values
		s.mu.Unlock()
		s.watched.AddPeerSample(values)
	}
}

// work runs the engine and what watches it.
func (s *clientSession) work(ctx context.Context) error {
	watch, stop := context.WithCancelCause(ctx)
	var tasks sync.WaitGroup
	tasks.Go(func() { s.report(watch) })
	tasks.Go(func() { s.watched.Run(watch, s.send) })
	var err error
	if s.sender != nil {
		t := session.Tuner{Sender: s.sender, Set: s.set, Fixed: s.client.opt.Streams > 0, Most: s.bound,
			Want: func(n int, _ []uint64) { s.setWant(n) }}
		tasks.Go(func() { t.Run(watch) })
		if s.coder != nil {
			tasks.Go(func() { session.FeedMeter(watch, s.set, s.coder) })
		}
		err = s.sender.Run(ctx)
	} else {
		err = s.receiver.Run(ctx)
	}
	stop(nil)
	tasks.Wait()
	var done transfer.Stats
	if s.sender != nil {
		done = s.sender.Stats()
	} else {
		done = s.receiver.Stats()
	}
	s.stats.resent = done.Resent
	if c := s.client.opt.Compress; c != "" && c != "none" {
		s.stats.raw, s.stats.coded = done.Raw, done.Coded
	}
	return err
}

// report shows progress until ctx is done.
func (s *clientSession) report(ctx context.Context) {
	tick := time.NewTicker(session.ReportEvery)
	defer tick.Stop()
	limiter := ""
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			p := s.tracker.Progress(s.set.Count(), s.set.Stats().MinRTT)
			if s.client.opt.Progress == nil {
				continue
			}
			if n%session.LimiterEvery == 0 {
				limiter = s.watched.Limiter(s.sender != nil, s.client.opt.asked(s.sender != nil))
			}
			p.Limiter = limiter
			s.client.opt.Progress(p)
		}
	}
}

// written is the payload written at the target so far, bytes.
func (s *clientSession) written() int64 {
	switch {
	case s.sender != nil:
		return s.sender.Stats().Written
	case s.receiver != nil:
		return s.receiver.Stats().Written
	}
	return 0
}

// send tells the server something, once the engine is there.
func (s *clientSession) send(m wire.Message) {
	if s.sender != nil {
		s.sender.Send(m)
	} else {
		s.receiver.Send(m)
	}
}

// judge finds what held the session back.
func (s *clientSession) judge() {
	if s.watched == nil || s.sender == nil && s.receiver == nil {
		return
	}
	s.watched.Sample()
	x := s.watched.Session(s.stats.push)
	s.stats.cells, s.stats.sender, s.stats.receiver = diagnose.Cells(x), x.SenderHost, x.ReceiverHost
	since := s.watched.Start.Sub(s.tracker.Start)
	for i := range s.stats.cells {
		s.stats.cells[i].Start += since
	}
}

// setWant asks for n data streams in all.
func (s *clientSession) setWant(n int) {
	s.mu.Lock()
	s.want = s.boundLocked(n)
	s.mu.Unlock()
	s.grow(s.ctx, 0)
}

// boundLocked returns the number of data streams to have where n are wanted.
func (s *clientSession) boundLocked(n int) int {
	if s.most > 0 {
		n = min(n, s.most)
	}
	return max(1, n)
}

// bound is how many data streams there may be now.
func (s *clientSession) bound() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.boundLocked(cmp.Or(s.client.opt.Streams, s.client.opt.MaxStreams))
}

// offered takes the most data streams that the server has room for now, and tells whether it has told that the first time. It refuses
// those beyond, and they are not dialled again.
func (s *clientSession) offered(most int) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first = s.most == 0
	s.most = max(1, most)
	s.want = s.boundLocked(s.want)
	return first
}

// shed lets the streams of a Push go that are more than the server has room for now: even at rest they would keep other clients from theirs,
// who would ask again and again, with a block each time.
func (s *clientSession) shed() {
	if s.sender == nil {
		return
	}
	s.mu.Lock()
	most := s.most
	s.mu.Unlock()
	for _, d := range s.set.Beyond(most) {
		d.Retired.Store(true)
		s.sender.Retire(d.ID)
	}
}

// replace dials another stream for one that ended, unless the session does. One that did not live was refused: then it waits.
func (s *clientSession) replace(ctx context.Context, lived time.Duration) {
	select {
	case <-s.engineDone():
		return
	default:
	}
	s.mu.Lock()
	s.refused++
	if lived > time.Second {
		s.refused = 0
	}
	s.mu.Unlock()
	s.grow(ctx, 0)
}

// engineDone is closed when the engine ends its session. It is called after ready.
func (s *clientSession) engineDone() <-chan struct{} {
	if s.sender != nil {
		return s.sender.Done()
	}
	return s.receiver.Done()
}

// grow dials the streams that are missing; want > 0 sets their number.
func (s *clientSession) grow(ctx context.Context, want int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if want > 0 {
		s.want = s.boundLocked(want)
	}
	for !s.over && ctx.Err() == nil && s.set.Count()+s.dialing < s.want {
		s.dialing++
		id := s.nextID
		s.nextID++
		s.dials.Add(1)
		go func() {
			defer s.dials.Done()
			s.stream(ctx, id)
		}()
	}
}

// stream dials one data stream, again and again while the session lives. Without any stream for long, the session ends.
func (s *clientSession) stream(ctx context.Context, id uint64) {
	s.mu.Lock()
	refused := s.refused
	s.mu.Unlock()
	if refused > 0 && !session.Pause(ctx, min(firstPause<<min(refused, 8), longestPause)) {
		s.gaveUp()
		return
	}
	since := time.Now()
	for wait := firstPause; ; wait = min(2*wait, longestPause) {
		conn, err := s.join(ctx, id, s.cfg.Path)
		if err == nil {
			select {
			case <-s.ready:
				s.attach(id, conn)
			case <-ctx.Done():
				_ = conn.Close()
			}
			return
		}
		hole := (*transport.BlackHoleError)(nil)
		if s.set.Count() == 0 && (time.Since(since) > 2*session.DialTimeout || s.opened.Load() && errors.As(err, &hole)) {
			s.cancel(fmt.Errorf("data stream: %w", err))
		}
		if !session.Pause(ctx, wait) || s.tooMany() {
			s.gaveUp()
			return
		}
	}
}

const (
	firstPause   = 250 * time.Millisecond
	longestPause = 5 * time.Second
)

// tooMany tells whether more streams are there or under way than are wanted by now.
func (s *clientSession) tooMany() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set.Count()+s.dialing > s.want
}

func (s *clientSession) gaveUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dialing--
}

func (s *clientSession) attach(id uint64, conn transport.Conn) {
	d := s.set.Add(id, conn, session.MaxStreams)
	s.mu.Lock()
	s.dialing--
	over := s.over
	via := s.via.of.Protocol()
	s.mu.Unlock()
	info, known := conn.Info()
	switch {
	case d == nil:
		_ = conn.Close()
	case over:
		_ = d.Close()
	case s.sender != nil && known && info.Protocol != via: // the session has turned meanwhile
		d.Retired.Store(true)
		_ = d.Close()
	case s.sender != nil:
		s.sender.AddStream(id, d)
	default:
		s.receiver.AddStream(d)
		if known && info.Protocol != via {
			s.retire(via)
		}
	}
}

// join connects one data stream to the session.
func (s *clientSession) join(ctx context.Context, id uint64, path transport.Path) (transport.Conn, error) {
	return s.joinBy(ctx, id, path, s.chosen().of.Protocol())
}

func (s *clientSession) joinBy(ctx context.Context, id uint64, path transport.Path, by transport.Protocol) (transport.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, session.DialTimeout)
	defer cancel()
	cfg := s.cfg
	cfg.Path, cfg.Protocol = path, by
	cfg.Doubt = s.opened.Load() // then the path is alive
	conn, err := transport.Dial(ctx, s.url.Address(), cfg, s.client.expect(s.url))
	if err != nil {
		return nil, err
	}
	s.connected.Store(true)
	m := &wire.Join{Version: wire.Version, Session: s.hello.Session, Secret: s.hello.Secret, Stream: id,
		SockBuf: int64(s.cfg.SockBuf), Congestion: s.cfg.Congestion}
	if _, err := conn.Write(wire.Append(nil, m)); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// list asks for a listing.
func (s *clientSession) list(ctx context.Context) ([]Entry, error) {
	_, _ = rand.Read(s.hello.Session[:])
	_, _ = rand.Read(s.hello.Secret[:])
	s.cfg = s.config()
	defer s.group.Close(session.PartWithin)
	conn, err := s.openThrough(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	r := wire.NewReader(conn, wire.MaxMessage)
	var entries []Entry
	held := 0
	for {
		if err := conn.SetReadDeadline(time.Now().Add(session.DialTimeout)); err != nil {
			return nil, err
		}
		m, err := r.Next()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			return nil, err
		}
		switch m := m.(type) {
		case *wire.Welcome:
			s.message(conn, m)
		case *wire.Refuse:
			return nil, &wire.Error{Code: m.Code, Text: m.Text, Remote: true}
		case *wire.Warning:
			if s.warned != nil {
				s.warned(m)
			}
		case *wire.Entries:
			for i := range m.Entries {
				held += listedEntry + len(m.Entries[i].Path) + len(m.Entries[i].Link)
				entries = append(entries, listed(&m.Entries[i]))
			}
			if held > maxListing {
				return nil, wire.Errorf(wire.CodeProtocol, "the listing does not end")
			}
		case *wire.EndManifest:
			return entries, nil
		}
	}
}

func listed(x *wire.Entry) Entry {
	e := Entry{Path: x.Path, Kind: session.KindNames[x.Kind], Bytes: max(0, x.Size), ModTime: x.Time(), Mode: x.Mode, Link: x.Link}
	if x.Kind == wire.Share {
		e.Rights, e.Link = x.Link, ""
	}
	return e
}
