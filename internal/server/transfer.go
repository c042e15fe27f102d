package server

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/wire"
)

// direction is what receiving, sending and storing do differently.
type direction interface {
	// open checks the client's rights and sets share.
	open() error
	// newEngine makes the engine. The client's options may be hostile.
	newEngine(ctx context.Context, r *wire.Reader) (session.Engine, error)
	// close releases what newEngine opened.
	close()
}

// transferSession is a session that receives, sends or stores files.
type transferSession struct {
	*request
	direction direction
	own       rateLimit // the client's, for what it gets; it may change it

	wanted session.LivePriority // by the client
	forced session.LivePriority // by the administrator, "" is not at all

	siblings session.Siblings // what it hears if it sends
	carries  atomic.Uint64    // bytes/s that the line carries at least, by the client's handshakes; 0 is unknown

	// Set once before data streams can join.
	share     *liveShare
	set       *session.StreamSet
	clock     *transfer.Clock
	telemetry *session.Telemetry
	counters  *sessionCounters
	sibling   *session.Sibling // used by keepTellingSiblings only
	engine    session.Engine

	sums    entrySums     // used by the engine's events only
	offered *wire.Welcome // what the client was told last
	streams int           // data streams, guarded by Server.mu
}

func (x *transferSession) serve(ctx context.Context) error {
	if err := x.direction.open(); err != nil {
		return err
	}
	if err := x.conn.applySocketOptions(x.hello.SockBuf, x.hello.Congestion); err != nil {
		return err
	}
	x.admit()
	x.log = x.log.With("share", x.hello.Share)
	return x.transfer(ctx)
}

// transfer runs the session. It returns an error only if the session could not begin: the engine
// tells the client about later ones.
func (x *transferSession) transfer(ctx context.Context) (err error) {
	s := x.server
	began := time.Now()
	x.set = session.NewStreamSet(x.flows(&x.own))
	x.set.Carries = func() float64 { return float64(x.carries.Load()) }
	if info, ok := x.conn.Info(); ok {
		x.set.Narrow = session.NarrowLine(x.hello.Line, info.RTT, session.InitialStreams)
	}
	x.clock = transfer.NewClock()
	facts := session.HostFacts(s.host, int64(s.opt.SockBuf))
	x.telemetry = session.NewTelemetry(x.clock, x.set, x.written, facts)
	x.telemetry.SetPeer(x.conn.RemoteAddr())
	x.counters = newSessionCounters(x)
	r := wire.NewReader(x.conn, wire.MaxMessage)
	if x.engine, err = x.direction.newEngine(ctx, r); err != nil {
		return err
	}
	defer x.direction.close()
	x.sibling = session.NewSibling(x.telemetry, x.engine.Sends(), x.priority)
	x.wanted.Set(session.PriorityOf(x.hello.Priority))
	x.offered = x.offer()
	x.engine.Send(x.offered)
	if err := s.register(x); err != nil {
		return err
	}
	defer s.unregister(x)
	x.log.Info("session begins",
		"intent", intentName(x.hello.Intent), "agent", wire.Printable(x.hello.Agent))
	err = x.runEngine(ctx)
	x.counters.close(err)
	x.report(ctx, time.Since(began), err)
	if err != nil && !errors.Is(err, errReplaced) { // the client may not have read why yet
		_ = x.conn.CloseWrite()
		linger(x.conn)
	}
	return nil
}

// runEngine runs the engine. Beside it, it tunes the data streams and exchanges measurements.
func (x *transferSession) runEngine(ctx context.Context) error {
	beside, stop := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	asked := 0 // streams; repeating it would load a narrow line
	tuning := session.Tuning{
		Most: func() int {
			return int(min(x.hello.MaxStreams, uint64(x.server.streamsPerSession(x.client))))
		},
		Priority: session.Following(x.priority), Relayed: x.hello.Relayed, Siblings: &x.siblings,
		Want: func(n int, dead []uint64) {
			if n != asked || len(dead) > 0 {
				asked = n
				x.engine.Send(&wire.Streams{Want: uint64(n), Dead: dead})
			}
		},
	}
	tasks.Go(func() { x.engine.Tune(beside, x.set, tuning) })
	if !x.engine.Sends() {
		tasks.Go(func() { x.offerMore(beside) })
	}
	tasks.Go(func() { x.telemetry.Run(beside, x.engine.Send) })
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	crawl := session.Crawl{
		Peer: x.peer.label, Engine: x.engine, Set: x.set, Telemetry: x.telemetry,
		// A client may take as long as it wants for blocks, and gives up by itself.
		Patient: func(underway bool) bool { return underway || x.priority() == wire.LowPriority },
		Trusts:  true,
		Notice:  func(text string) { x.log.Info(text) },
	}
	tasks.Go(func() {
		crawl.Watch(beside, func(err error) { end(&wire.Error{Code: wire.CodeSilent, Text: err.Error()}) })
	})
	err := x.engine.Run(ctx)
	stop()
	tasks.Wait()
	return err
}

// offer says what the client may use now.
func (x *transferSession) offer() *wire.Welcome {
	w := x.welcome(x.server.streamsPerSession(x.client))
	w.LeastPriority, w.MostPriority = x.priorityBounds()
	return w
}

// offerEvery is how often a client may hear that it can use another number of data streams, or
// another priority.
const offerEvery = time.Second

// offerMore tells a client that sends how many data streams it may use, and which priority,
// whenever that changes.
func (x *transferSession) offerMore(ctx context.Context) {
	tick := time.NewTicker(offerEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if now := x.offer(); *now != *x.offered {
				x.offered = now
				x.engine.Send(now)
			}
		}
	}
}

// report writes the session's end to the log and the audit log.
func (x *transferSession) report(ctx context.Context, took time.Duration, err error) {
	level := slog.LevelInfo
	if err != nil {
		level = slog.LevelWarn
	}
	x.log.Log(ctx, level, "session ends", "intent", intentName(x.hello.Intent),
		"seconds", took.Seconds(), "bytes", x.sums.written, "files", x.sums.committed,
		"unchanged", x.sums.same, "removed", x.sums.removed, "failed", x.sums.failed,
		"streams", x.set.Peak(), "error", err)
	x.audit.session(ctx, x.hello.Paths, x.sums.written, err)
}

// event takes the engine's events. In a dry run, what would be removed is not for logs and counters.
func (x *transferSession) event(e *transfer.Event) {
	if e.Kind == transfer.Removed && x.hello.Target.DryRun {
		return
	}
	x.audit.event(e)
	x.sums.add(e)
	x.counters.event(e)
}

// message takes the messages that the engine does not know: the client's measurements, the priority
// that it wants, and from a client that receives its limit and the streams that it wants to give up.
func (x *transferSession) message(m wire.Message) {
	switch m := m.(type) {
	case *wire.Sample:
		x.telemetry.AddPeerSample(m.Map())
	case *wire.Prefer:
		x.wanted.Set(session.PriorityOf(m.Priority))
	case *wire.Limit:
		if x.engine.Sends() {
			x.server.out.SetRate(&x.own.out, m.RateLimit)
		}
	case *wire.Retire:
		if x.engine.Sends() {
			x.retire(m.Streams[:min(len(m.Streams), session.MaxStreams)])
		}
	}
}

func (x *transferSession) retire(streams []uint64) {
	for _, id := range streams {
		if d := x.set.Find(id); d != nil {
			x.engine.Retire(d)
		}
	}
}

// written is the payload that has been written at the target so far, in bytes.
func (x *transferSession) written() int64 { return x.engine.Stats().Written }

// join implements liveSession.
func (x *transferSession) join(c *connection, m *wire.Join) error {
	release := x.server.reserveStream(x)
	if release == nil {
		return wire.Errorf(wire.CodeBusy,
			"the server has no room for another data stream of this session")
	}
	defer release()
	for old := x.carries.Load(); m.Line > old && !x.carries.CompareAndSwap(old, m.Line); {
		old = x.carries.Load()
	}
	d := x.set.Add(m.Stream, c.Conn, session.MaxStreams)
	if d == nil {
		return wire.Errorf(wire.CodeBusy,
			"a session has at most %d data streams, each with its number", session.MaxStreams)
	}
	c.admit()
	_ = c.SetDeadline(time.Time{})
	x.engine.AddStream(d)
	<-d.Context.Done()
	return nil
}

// drain implements liveSession.
func (x *transferSession) drain(ctx context.Context) { x.engine.Drain(ctx) }

// entrySums counts a session's entries for the log.
type entrySums struct {
	written                          int64 // bytes
	committed, same, removed, failed int
}

func (n *entrySums) add(e *transfer.Event) {
	switch e.Kind {
	case transfer.Written:
		n.written += max(0, e.Bytes)
	case transfer.Committed:
		n.committed++
	case transfer.Same:
		n.same++
	case transfer.Removed:
		n.removed++
	case transfer.Failed:
		n.failed++
	}
}
