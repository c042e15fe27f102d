package relay

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// idleAfter ends a connection on which nothing passes in either direction. A session that lives
	// makes new ones; its control stream is never silent for so long.
	idleAfter = 10 * time.Minute
	// halfOpenFor is the same once one direction has ended.
	halfOpenFor = time.Minute
	// paceEvery is the time between two decisions about the rate of a leg.
	paceEvery = 25 * time.Millisecond
	// pacedFrom is what a direction carries before its rate is decided on: less is over before the
	// path is known.
	pacedFrom = 1 << 20
	// pacedFor is how long a direction may be silent until nobody looks after its rate.
	pacedFor = 5 * time.Second
	// reviewEvery is how often a client's right is looked at again.
	reviewEvery = 5 * time.Second
)

// routeKey names a route: a client, and a server of the list.
type routeKey struct {
	client identity.Principal
	target string // host:port
}

// route is all connections of a client to a server. They share the paths of both legs, so that one decision is
// made about the rate of each.
type route struct {
	routeKey
	use      *clientUse
	up, down *direction
	ctx      context.Context // ends with the last connection, or when the client is revoked
	cancel   context.CancelFunc
	paced    chan struct{} // closed when look has returned
	began    time.Time

	connections int // guarded by Relay.mu
	nextID      atomic.Uint64
}

// direction is one direction of a route.
type direction struct {
	set   *session.StreamSet // that the relay writes to
	bytes atomic.Int64
}

// enter counts a new connection of a route. The caller calls leave.
func (r *Relay) enter(ctx context.Context, w routeKey) (*route, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	use := r.clients[w.client]
	if use == nil {
		use = new(clientUse)
		r.setRate(&use.limit, r.opt.ClientRateLimit)
		r.clients[w.client] = use
	}
	weight := r.weight(w.target)
	if use.connections > 0 && use.connections+weight > r.opt.MaxConnectionsPerClient {
		return nil, wire.Errorf(wire.CodeBusy, "the relay has no room for another connection of this client")
	}
	use.connections += weight
	x := r.routes[w]
	if x == nil {
		x = &route{
			routeKey: w, use: use, began: time.Now(), paced: make(chan struct{}),
			up:   &direction{set: session.NewStreamSet(nil, r.up.NewQueue(&r.total.up, &use.limit.up))},
			down: &direction{set: session.NewStreamSet(nil, r.down.NewQueue(&r.total.down, &use.limit.down))},
		}
		x.ctx, x.cancel = context.WithCancel(ctx)
		r.routes[w] = x
		go x.look(r)
		r.log.Info("begins", "client", w.client.Short(), "target", w.target)
	}
	x.connections++
	return x, nil
}

// weight is how many of the connections that the relay accepts one of a client takes: the connection of
// a server that calls is another one.
func (r *Relay) weight(target string) int {
	if r.targets[target] != "" {
		return 2
	}
	return 1
}

// leave counts a connection less.
func (r *Relay) leave(x *route) {
	r.mu.Lock()
	if x.use.connections -= r.weight(x.target); x.use.connections == 0 {
		delete(r.clients, x.client)
	}
	x.connections--
	last := x.connections == 0
	if last {
		delete(r.routes, x.routeKey)
	}
	r.mu.Unlock()
	if !last {
		return
	}
	x.cancel()
	<-x.paced
	r.log.Info("ends", "client", x.client.Short(), "target", x.target, "up", x.up.bytes.Load(), "down", x.down.bytes.Load(),
		"seconds", time.Since(x.began).Seconds())
}

// look decides on the rates of both legs until the route ends, and whether the client still may use
// it.
func (x *route) look(r *Relay) {
	defer close(x.paced)
	tick := time.NewTicker(paceEvery)
	defer tick.Stop()
	up, down := pacing{direction: x.up}, pacing{direction: x.down}
	reviewed := time.Now()
	for {
		select {
		case <-x.ctx.Done():
			return
		case now := <-tick.C:
			up.step(now)
			down.step(now)
			if now.Sub(reviewed) < reviewEvery {
				continue
			}
			if reviewed = now; !r.stillMay(x.routeKey) {
				r.log.Warn("the client may not use this route any more", "client", x.client.Short(), "target", x.target)
				x.cancel()
			}
		}
	}
}

// pacing holds what the relay sends in one direction to the rate of the path.
type pacing struct {
	*direction
	flow  *session.Flow // nil until there is enough to know
	seen  int64
	moved time.Time // when seen changed
}

func (p *pacing) step(now time.Time) {
	if bytes := p.bytes.Load(); bytes != p.seen {
		p.seen, p.moved = bytes, now
	}
	if p.seen < pacedFrom || now.Sub(p.moved) > pacedFor {
		return
	}
	if p.flow == nil {
		p.flow = session.NewFlow(p.set, 0, session.MaxStreams, wire.NormalPriority)
	}
	// What a stream has to carry was decided by the sender. So all of them stay at an equal part of
	// the rate, as they do at the end of a transfer, where others are on the line as well.
	p.flow.Next(now, p.seen, true)
}

// pair is two connections that are joined.
type pair struct {
	passed atomic.Int64 // when something did last, in Unix nanoseconds
	half   atomic.Bool  // one direction has ended
}

// join passes on what the client at near and the server at far send, until both have ended.
func (x *route) join(r *Relay, near, far transport.Conn) {
	id := x.nextID.Add(1)
	up, down := x.up.set.Add(id, far, math.MaxInt), x.down.set.Add(id, near, math.MaxInt)
	defer up.Close()
	defer down.Close()
	defer context.AfterFunc(x.ctx, func() {
		_ = near.Close()
		_ = far.Close()
	})()
	p := new(pair)
	p.passed.Store(time.Now().UnixNano())
	var running sync.WaitGroup
	defer running.Wait()
	most := func() int { return allWindows / max(1, r.conns.Count()) }
	pass := func(to *session.DataStream, from transport.Conn, d *direction) {
		if err := p.pass(to, from, d, most); err != nil { // neither direction is whole without the other
			_ = up.Close()
			_ = down.Close()
			return
		}
		p.half.Store(true)
		_ = to.SetReadDeadline(time.Now().Add(halfOpenFor))
	}
	running.Go(func() { pass(down, far, x.down) })
	pass(up, near, x.up)
}

// patience is how long the pair may be silent.
func (p *pair) patience() time.Duration {
	if p.half.Load() {
		return halfOpenFor
	}
	return idleAfter
}

// pass passes on what from sends until its end, and that end. It returns an error where from does
// not end properly, to does not take it, or nothing passes for long. most bounds the window of from.
func (p *pair) pass(to *session.DataStream, from transport.Conn, d *direction, most func() int) error {
	g := bufferTuner{from: from, to: to}
	buf := make([]byte, leastPiece)
	piece := len(buf)
	for {
		now := time.Now()
		if now.Sub(g.at) >= tuneEvery {
			piece = g.adapt(now, most())
		}
		_ = from.SetReadDeadline(now.Add(p.patience()))
		n, err := from.Read(buf[:min(piece, len(buf))])
		if n > 0 {
			now := time.Now()
			p.passed.Store(now.UnixNano())
			_ = to.SetWriteDeadline(now.Add(idleAfter))
			if _, err := to.Write(buf[:n]); err != nil {
				return err
			}
			d.bytes.Add(int64(n))
			g.passed += int64(n)
		}
		switch {
		case errors.Is(err, io.EOF):
			return to.CloseWrite()
		case errors.Is(err, os.ErrDeadlineExceeded) && time.Since(time.Unix(0, p.passed.Load())) < p.patience():
		case err != nil:
			return err
		case piece > len(buf):
			buf = make([]byte, piece)
		}
	}
}
