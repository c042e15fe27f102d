package server

import (
	"context"
	"errors"
	"time"

	"github.com/fxfer/fxfer/internal/pace"
	"github.com/fxfer/fxfer/internal/path/probe"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/wire"
)

// MaxProbes bounds the probes that a server serves at a time: more would measure each other.
const MaxProbes = 4

// probing serves a Probe: the client measures the path.
type probing struct {
	*request
	probe *probe.Session
	ctx   context.Context // of its data streams, ends with the session
	in    *pace.Queue
	out   *pace.Queue
}

func newProbing(q *request) handler { return &probing{request: q} }

func (x *probing) serve(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, probe.MaxTime)
	defer stop()
	x.ctx = ctx
	x.probe = probe.NewSession(x.server.Addr())
	x.in, x.out = x.flows(0)
	if err := x.server.register(x); err != nil {
		return err
	}
	defer x.server.unregister(x)
	x.admit()
	_ = x.conn.SetDeadline(time.Now().Add(probe.MaxTime))
	defer interruptible(ctx, x.conn)()
	x.log.Info("probe begins", "agent", wire.Printable(x.hello.Agent))
	defer x.log.Info("probe ends")
	w := x.welcome(session.MaxStreams)
	w.MostPriority = x.server.live.Load().priorityOf(x.peer.id)
	if _, err := x.conn.Write(wire.Append(nil, w)); err != nil {
		return err
	}
	return x.waitForEnd(ctx)
}

// waitForEnd reads the control stream until the client or the server ends the session.
func (x *probing) waitForEnd(ctx context.Context) error {
	r := wire.NewReader(x.conn, wire.MaxMessage)
	for {
		if _, err := r.Next(); err != nil {
			var why *wire.Error
			if errors.As(context.Cause(ctx), &why) {
				return why
			}
			return nil
		}
	}
}

// join implements liveSession.
func (x *probing) join(c *connection, m *wire.Join) error {
	c.admit()
	return x.probe.Serve(x.ctx, session.NewStreamSet(x.in, x.out).Add(m.Stream, c.Conn, 1))
}

// drain implements liveSession.
func (x *probing) drain(context.Context) {}
