package client

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// transferSession is one session that transfers files: a control stream, data streams, and the
// engine between them.
type transferSession struct {
	dialer
	call     *Transfer
	intent   intent
	tracker  *session.Tracker
	throttle *Throttle
	priority *priority
	fresh    bool // the transfer was never tried before: the sender need not wait for an answer
	again    bool // a session before was lost
	mtu      int  // bound of packets, 0 for none

	// Set by run before anything else uses them.
	clock    *transfer.Clock
	set      *session.StreamSet
	measured *session.Telemetry
	streams  *streamPool
	first    int // data streams at first

	engine session.Engine // set before streams.ready is closed

	heard    controlActivity
	siblings session.Siblings
	stats    sessionStats
}

func newTransferSession(j *job) *transferSession {
	return &transferSession{
		dialer: dialer{client: j.Client, url: j.url, hello: j.hello, via: j.via},
		call:   j.call, intent: j.intent, tracker: j.tracker, throttle: j.throttle, priority: j.priority,
		fresh: j.fresh, again: j.tries > 0, mtu: j.mtu,
	}
}

// run carries the session from the first packet to the last.
func (s *transferSession) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.prepare(s.mtu)
	defer s.group.Close(session.PartWithin)
	s.measure()
	s.streams = newStreamPool(ctx, cancel, &s.dialer, s.set)
	s.first = s.firstStreams()
	trusted, err := s.client.knows(s.url)
	if err != nil {
		return err
	}
	switch automatic := s.client.opt.Streams == 0 && len(s.client.opt.Via) == 0; { // a relay's SYNs show one leg alone
	case automatic && s.cfg.Protocol == transport.TCP:
		s.gate.hold(s.first)
	case automatic && trusted && s.client.learned(s.client.pathName(s.url.Address(), s.via.transport)) == 0:
		s.gate.holdAll(s.first) // the time that a user takes would look like a narrow line
	}
	defer s.end(cancel)
	// The data streams connect while the control stream does. Only an unknown server has to be
	// confirmed first.
	if trusted {
		if !s.again && !s.gate.alone { // a server without room would have to reject all of them once more
			s.streams.grow(s.first)
		}
		s.watchSilence(ctx)
	}
	control, err := s.connect(ctx, cancel)
	if err != nil {
		return err
	}
	defer control.Close()
	s.first = s.gate.first(s.first)
	if err := s.begin(ctx, control); err != nil {
		return err
	}
	crawl := session.Crawl{
		Peer: s.url.Address(), Engine: s.engine, Set: s.set, Telemetry: s.measured,
		Patient: func(bool) bool { return s.priority.now() == wire.LowPriority },
		Notice:  func(text string) { s.client.notice("%s", text) },
	}
	s.tasks.Go(func() { crawl.Watch(ctx, cancel) })
	s.tasks.Go(func() { watchDead(ctx, s.heard.look, session.TimeoutOf(control), s.reach, cancel) })
	s.streams.grow(s.first)
	if s.client.opt.Transport == session.TransportAuto && s.cfg.Protocol == transport.TCP {
		s.tasks.Go(func() { s.watchWindows(ctx, control) })
	}
	if !trusted { // the user needed time to confirm the key
		s.watchSilence(ctx)
	}
	return s.work(ctx)
}

// measure prepares the data streams and the measurements of them.
func (s *transferSession) measure() {
	s.set = session.NewStreamSet(nil, s.intent.out(s.throttle))
	s.set.Narrow, s.set.Carries = s.gate.narrow, s.gate.carries
	s.clock = transfer.NewClock()
	s.measured = session.NewTelemetry(s.clock, s.set, s.written, thisHost(s.client.opt.SockBuf))
}

// firstStreams is the number of data streams to begin with.
func (s *transferSession) firstStreams() int {
	opt := &s.client.opt
	if opt.Streams > 0 {
		return opt.Streams
	}
	learned := s.client.learned(s.client.pathName(s.url.Address(), s.via.transport))
	n := session.StartingStreams(0, learned)
	if s.relayed() {
		n = max(n, session.RelayedStreams)
	}
	return min(n, opt.MaxStreams)
}

// connect opens the control stream. With an automatic transport, it ends with an errSwitch where
// only the other transport connects.
func (s *transferSession) connect(ctx context.Context, cancel context.CancelCauseFunc) (transport.Conn, error) {
	if s.client.opt.Transport == session.TransportAuto {
		s.tasks.Go(func() { s.race(ctx, cancel) })
	}
	began := time.Now()
	control, err := s.open(ctx)
	if sw := (*errSwitch)(nil); errors.As(context.Cause(ctx), &sw) {
		if err == nil {
			_ = control.Close()
		}
		return nil, sw
	}
	if err != nil {
		return nil, err
	}
	s.opened.Store(true)
	if info, ok := control.Info(); ok {
		s.gate.shook(time.Since(began), info.RTT)
	}
	s.measured.SetPeer(control.RemoteAddr())
	if s.relayed() {
		s.measured.SetRelayed()
	}
	return control, nil
}

// begin makes the engine.
func (s *transferSession) begin(ctx context.Context, control transport.Conn) (err error) {
	r := wire.NewReader(heardReader{control, &s.heard}, wire.MaxMessage)
	if s.engine, err = s.intent.engine(ctx, s, control, r); err != nil {
		return err
	}
	s.streams.use(s.engine)
	return nil
}

// end waits for everything that belongs to the session, and sums it up.
func (s *transferSession) end(cancel context.CancelCauseFunc) {
	s.streams.close()
	cancel(nil)
	s.tasks.Wait()
	s.stats.path, s.stats.streams = s.set.Stats(), s.set.Peak()
	s.stats.carrier, s.stats.reason, s.stats.links = s.carrier()
	s.judge()
}

// carrier is the transport that carried the data, why it was chosen, and its QUIC connections.
func (s *transferSession) carrier() (of session.Transport, reason string, links int) {
	via := s.chosen()
	switch {
	case s.set.Peak() == 0:
		return "", "", 0
	case via.transport == session.TransportQUIC:
		return session.TransportQUIC, via.reason, s.group.Links()
	}
	return session.TransportTCP, via.reason, 0
}

// watchSilence tells the user when the server falls silent, until ctx is done.
func (s *transferSession) watchSilence(ctx context.Context) {
	w := idleWatch{peer: s.url.Address()}
	s.tasks.Go(func() { w.run(ctx, s.received, func(text string) { s.client.notice("%s", text) }) })
}

// received grows with whatever the server sends. It can be called before there is an engine.
func (s *transferSession) received() int64 {
	n := s.heard.bytes.Load()
	if s.running() {
		n += s.written()
	}
	return n
}

// running reports whether there is an engine.
func (s *transferSession) running() bool {
	select {
	case <-s.streams.ready:
		return true
	default:
		return false
	}
}

// written is the payload written at the target so far, in bytes. It is called after begin.
func (s *transferSession) written() int64 { return s.engine.Stats().Written }

// message acts on a message that the engine does not know. The engine calls it from one goroutine.
func (s *transferSession) message(m wire.Message) {
	switch m := m.(type) {
	case *wire.Welcome:
		if first := s.streams.offered(int(min(m.MaxStreams, session.MaxStreams))); first {
			s.measured.SetPeerName(m.Host)
		}
		s.priority.bound(m.LeastPriority, m.MostPriority)
	case *wire.Siblings:
		s.siblings.Hear(m)
	case *wire.Streams:
		for _, id := range m.Dead {
			s.set.Drop(id)
		}
		s.streams.setWant(min(int(min(m.Want, session.MaxStreams)), s.client.opt.MaxStreams))
	case *wire.Sample:
		s.measured.AddPeerSample(m.Map())
	}
}

// work runs the engine, together with what measures and tunes it.
func (s *transferSession) work(ctx context.Context) error {
	watch, stop := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	tasks.Go(func() { s.showProgress(watch) })
	tasks.Go(func() { s.tellWishes(watch) })
	tasks.Go(func() { s.measured.Run(watch, s.engine.Send) })
	tasks.Go(func() { s.widen(watch) })
	tasks.Go(func() {
		s.engine.Tune(watch, s.set, session.Tuning{
			Relayed: s.hello.Relayed,
			Fixed:   s.client.opt.Streams > 0, Most: s.streams.bound, Priority: session.Following(s.priority.now),
			Siblings: &s.siblings,
			Want:     func(n int, _ []uint64) { s.streams.setWant(n) },
		})
	})
	err := s.engine.Run(ctx)
	stop()
	tasks.Wait()
	done := s.engine.Stats()
	s.stats.resent = done.Resent
	if c := s.client.opt.Compress; c != "" && c != "none" {
		s.stats.raw, s.stats.coded = done.Raw, done.Coded
	}
	return err
}

// showProgress reports progress until ctx is done.
func (s *transferSession) showProgress(ctx context.Context) {
	tick := time.NewTicker(session.ReportEvery)
	defer tick.Stop()
	limiter := ""
	sends := s.intent.sends()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			streams := s.set.Count()
			p := s.tracker.Progress(streams, s.set.Stats().MinRTT, session.AheadOf(s.ahead(), streams)) // also keeps the peak rate
			s.watchDeadline(&p)
			if s.call.Progress == nil {
				continue
			}
			if n%session.LimiterEvery == 0 {
				limiter = s.measured.Limiter(sends, s.client.opt.asked(s.call, s.throttle, sends))
			}
			p.Limiter = limiter
			s.call.Progress(p)
		}
	}
}

// judge finds what held the session back.
func (s *transferSession) judge() {
	if !s.running() {
		return
	}
	s.measured.Sample()
	sends := s.intent.sends()
	sender, receiver := s.measured.Latest(sends)
	s.stats.sharing = session.SharingOf(&sender)
	if s.stats.peer = sender; sends {
		s.stats.peer = receiver
	}
	x := s.measured.Session(sends)
	s.stats.cells, s.stats.sender, s.stats.receiver = diagnose.Cells(x), x.SenderHost, x.ReceiverHost
	since := s.measured.Start.Sub(s.tracker.Start)
	for i := range s.stats.cells {
		s.stats.cells[i].Start += since
	}
}

// controlActivity is what the client hears on the control stream. It is safe for concurrent use.
type controlActivity struct {
	bytes   atomic.Int64
	waiting atomic.Bool  // for more
	busy    atomic.Int64 // grows with each look while nobody waits
}

// look returns a number that grows with what is heard, and while this host is busy with what it has
// heard: then the silence is its own.
func (h *controlActivity) look() int64 {
	if !h.waiting.Load() {
		h.busy.Add(1)
	}
	return h.bytes.Load() + h.busy.Load()
}

type heardReader struct {
	io.Reader
	heard *controlActivity
}

func (r heardReader) Read(p []byte) (int, error) {
	r.heard.waiting.Store(true)
	n, err := r.Reader.Read(p)
	r.heard.waiting.Store(false)
	r.heard.bytes.Add(int64(n))
	return n, err
}
