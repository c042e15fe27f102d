package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
)

const (
	// A stream that cannot be connected is tried again after firstPause, then after up to
	// longestPause.
	firstPause   = 250 * time.Millisecond
	longestPause = 5 * time.Second
	// livedLong is the life of a stream that the server did not reject.
	livedLong = time.Second
	// retireWithin is how long a server may take to end a stream that it shall not send on any more.
	// Older versions never end it.
	retireWithin = 20 * time.Second
)

// streamPool keeps as many data streams connected as the session wants and the server allows, and
// hands them to the engine.
type streamPool struct {
	*dialer
	set    *session.StreamSet
	ctx    context.Context         // of the session
	cancel context.CancelCauseFunc // ends it

	join   func(id uint64) (transport.Conn, error) // connects a data stream, over the chosen transport
	engine session.Engine
	ready  chan struct{} // closed when engine is set

	mu       sync.Mutex // guards what follows
	want     int        // streams, maybe more than boundLocked allows
	allowed  int        // streams that the server has room for; 0 until it has said so
	dialing  int        // streams being connected
	nextID   uint64
	rejected int  // streams in a row that ended at once
	over     bool // the session ends
}

// newStreamPool makes an empty pool. The pool calls cancel, which ends ctx and the session, where
// no stream can be connected.
func newStreamPool(ctx context.Context, cancel context.CancelCauseFunc, d *dialer, set *session.StreamSet) *streamPool {
	p := &streamPool{dialer: d, set: set, ctx: ctx, cancel: cancel, ready: make(chan struct{})}
	p.join = func(id uint64) (transport.Conn, error) { return d.join(ctx, id, d.cfg.Path) }
	set.Removed = p.replace
	return p
}

// use hands all streams, those already connected too, to an engine. It is called once.
func (p *streamPool) use(e session.Engine) {
	p.engine = e
	close(p.ready)
}

// close lets no more streams come. It does not wait for those under way.
func (p *streamPool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
}

// setWant asks for n data streams in total.
func (p *streamPool) setWant(n int) {
	p.mu.Lock()
	p.want = max(1, n)
	p.mu.Unlock()
	p.grow(0)
}

// boundLocked reduces n to what the path carries and the server allows, but at least 1.
func (p *streamPool) boundLocked(n int) int {
	if p.allowed > 0 {
		n = min(n, p.allowed)
	}
	return max(1, p.gate.bound(n))
}

// bound returns the largest number of streams allowed now.
func (p *streamPool) bound() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.boundLocked(p.client.opt.mostStreams())
}

// offered takes the number of streams that the server has room for now, and reports whether this is
// the first time. More streams are not connected again after the server rejects them. A sender also
// retires streams beyond that number: even unused, they would keep out streams of other clients,
// which would try again and again.
func (p *streamPool) offered(allowed int) (first bool) {
	allowed = max(1, allowed)
	p.mu.Lock()
	first = p.allowed == 0
	p.allowed = allowed
	p.mu.Unlock()
	if p.engine.Sends() {
		p.engine.Retire(p.set.Beyond(allowed)...)
	}
	return first
}

// replace connects another stream for one that ended after living so long, unless the session ends
// too.
func (p *streamPool) replace(lived time.Duration) {
	select {
	case <-p.engine.Done():
		return
	default:
	}
	p.mu.Lock()
	p.rejected++
	if lived > livedLong {
		p.rejected = 0
	}
	p.mu.Unlock()
	p.grow(0)
}

// grow connects the streams that are missing; want > 0 sets their number.
func (p *streamPool) grow(want int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if want > 0 {
		p.want = want
	}
	for !p.over && p.ctx.Err() == nil && p.set.Count()+p.dialing < p.boundLocked(p.want) {
		p.dialing++
		id := p.nextID
		p.nextID++
		p.tasks.Go(func() { p.connect(id) })
	}
}

// connect connects one data stream. It tries again while the session lives and wants the stream. If
// no stream at all connects for long, the session ends.
func (p *streamPool) connect(id uint64) {
	p.mu.Lock()
	rejected := p.rejected
	p.mu.Unlock()
	if rejected > 0 && !session.Sleep(p.ctx, min(firstPause<<min(rejected, 8), longestPause)) {
		p.giveUp()
		return
	}
	since := time.Now()
	for wait := firstPause; ; wait = min(2*wait, longestPause) {
		conn, err := p.join(id)
		if err == nil {
			select {
			case <-p.ready:
				p.attach(id, conn)
			case <-p.ctx.Done():
				_ = conn.Close()
			}
			return
		}
		if errors.Is(err, errSpare) {
			p.giveUp()
			return
		}
		if p.set.Count() == 0 && (time.Since(since) > 2*session.DialTimeout || p.blackHole(err)) {
			p.cancel(fmt.Errorf("data stream: %w", err))
		}
		if !session.Sleep(p.ctx, wait) || p.tooMany() {
			p.giveUp()
			return
		}
	}
}

// blackHole reports whether err shows that large packets vanish on a path that is alive.
func (p *streamPool) blackHole(err error) bool {
	var hole *transport.BlackHoleError
	return p.opened.Load() && errors.As(err, &hole)
}

// tooMany reports whether there are more streams, or will be, than are wanted by now.
func (p *streamPool) tooMany() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.set.Count()+p.dialing > p.boundLocked(p.want)
}

// giveUp ends the try to connect a stream. The last one begins anew: those that failed may have seen
// more others than the path needed, which then gave up, too.
func (p *streamPool) giveUp() {
	p.mu.Lock()
	p.dialing--
	none := p.set.Count()+p.dialing == 0
	if none {
		p.rejected++ // not at once
	}
	p.mu.Unlock()
	if none {
		p.grow(0)
	}
}

// attach hands a connected stream to the engine.
func (p *streamPool) attach(id uint64, conn transport.Conn) {
	p.mu.Lock()
	d := p.set.Add(id, conn, session.MaxStreams)
	p.dialing-- // in one step: nobody counts the stream twice
	over := p.over
	via := session.ProtocolOf(p.chosen().transport)
	p.mu.Unlock()
	info, known := conn.Info()
	outdated := known && info.Protocol != via // the transport has changed meanwhile
	switch {
	case d == nil:
		_ = conn.Close()
	case over:
		_ = d.Close()
	case outdated && p.engine.Sends():
		d.Retired.Store(true)
		_ = d.Close()
	default:
		p.engine.AddStream(d)
		if outdated {
			p.retireOthers(via)
		}
	}
}

// turn changes the transport of the data streams, if the server answers by the new one: the streams
// there are finish their blocks and end. It returns when the first new stream is there, and tells
// whether it is.
func (p *streamPool) turn(to choice) bool {
	protocol := session.ProtocolOf(to.transport)
	p.mu.Lock()
	n, first := p.boundLocked(p.want), p.nextID
	p.nextID += uint64(n)
	p.mu.Unlock()
	turned := make(chan struct{})
	pending, done := n, false // guarded by p.mu
	var dials sync.WaitGroup
	for i := range n {
		dials.Go(func() {
			conn, err := p.joinBy(p.ctx, first+uint64(i), p.cfg.Path, protocol)
			p.mu.Lock()
			switch {
			case err == nil && !done:
				done, p.rejected = true, 0
				p.choose(to)
				p.dialing += pending
				close(turned)
			case err != nil && done:
				p.dialing--
			}
			pending--
			p.mu.Unlock()
			if err == nil {
				p.attach(first+uint64(i), conn)
			}
		})
	}
	ended := make(chan struct{})
	p.tasks.Go(func() { dials.Wait(); close(ended); p.grow(0) })
	select {
	case <-turned:
	case <-ended:
		select {
		case <-turned:
		default:
			return false
		}
	}
	p.retireOthers(protocol)
	p.client.notice("%v", &errSwitch{to})
	return true
}

// retireOthers ends the data streams of other protocols, when what is on its way has arrived.
func (p *streamPool) retireOthers(protocol transport.Protocol) {
	var old []*session.DataStream
	for _, d := range p.set.Streams() {
		if i, ok := d.Info(); ok && i.Protocol != protocol {
			old = append(old, d)
		}
	}
	p.engine.Retire(old...)
	if p.engine.Sends() {
		return
	}
	p.tasks.Go(func() {
		if session.Sleep(p.ctx, retireWithin) {
			for _, d := range old {
				_ = d.Close()
			}
		}
	})
}
