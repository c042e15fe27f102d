package server

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/fxfer/fxfer/internal/path/probe"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// MaxProbes bounds the probes that a server carries at a time: more would measure each other.
const MaxProbes = 4

// probing carries a probe that was admitted.
func (s *Server) probing(ctx context.Context, conn transport.Conn, m *wire.Hello, g *guest, admitted func(), log *slog.Logger) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ctx, stop := context.WithTimeout(ctx, probe.MaxTime)
	defer stop()
	x := &serverSession{server: s, hello: m, guest: g, drain: cancel, probe: probe.NewSession(s.Addr()), log: log}
	x.ctx = ctx
	x.in, x.out = g.flows(0)
	if err := s.register(x); err != nil {
		return err
	}
	defer s.unregister(x)
	conn.Admit()
	admitted()
	_ = conn.SetDeadline(time.Now().Add(probe.MaxTime))
	defer hurry(ctx, conn)()
	x.log.Info("probe begins", "agent", wire.Printable(m.Agent))
	defer x.log.Info("probe ends")
	if _, err := conn.Write(wire.Append(nil, &wire.Welcome{Agent: session.Agent, Host: s.host, MaxStreams: session.MaxStreams})); err != nil {
		return err
	}
	r := wire.NewReader(conn, wire.MaxMessage)
	for {
		if _, err := r.Next(); err != nil { // the client has ended, or the session
			var drained *wire.Error
			if errors.As(context.Cause(ctx), &drained) {
				return drained
			}
			return nil
		}
	}
}
