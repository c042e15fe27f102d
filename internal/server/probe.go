package server

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"time"

	"github.com/fxfer/fxfer/internal/pace"
	"github.com/fxfer/fxfer/internal/path/probe"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
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
	x.in, x.out = x.flows(new(rateLimit))
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
	w.Ways = true
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

// probes returns the probes that run.
func (s *Server) probes() (all []*probing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.sessions {
		if p, ok := x.(*probing); ok {
			all = append(all, p)
		}
	}
	return all
}

// servePlain serves a connection without TLS to the probe that expects it, until it ends. It reports
// whether the connection has none. While no probe expects one, it reads nothing.
func (s *Server) servePlain(ctx context.Context, c *connection) bool {
	probes := s.probes()
	if !slices.ContainsFunc(probes, func(x *probing) bool { return x.probe.AwaitsPlain() }) {
		return false
	}
	deadline, _ := ctx.Deadline()
	_ = c.SetDeadline(deadline)
	first, socket, err := transport.Unencrypted(c.Conn)
	if err == nil && socket == nil {
		return false
	}
	head := [probe.PlainHead]byte{first}
	if err == nil {
		_, err = io.ReadFull(socket, head[1:])
	}
	if err != nil {
		s.lose(c, refusedFirstMessage, err)
		return true
	}
	i := slices.IndexFunc(probes, func(x *probing) bool { return x.probe.ExpectsPlain(head) })
	if i < 0 {
		s.counters.refuse(refusedFirstMessage)
		return true
	}
	x := probes[i]
	c.slot.Authenticated()
	defer context.AfterFunc(x.ctx, func() { _ = c.Close() })()
	_ = x.probe.ServePlain(&plainLine{socket, x}, head) // the client notices its end
	return true
}

// plainLine is a connection of a probe without TLS, within the rate limits of its client.
type plainLine struct {
	*net.TCPConn
	of *probing
}

// SetCork implements probe.PlainLine.
func (l *plainLine) SetCork(on bool) error { return transport.SetCork(l.TCPConn, on) }

// Read implements io.Reader, within the rate limit.
func (l *plainLine) Read(p []byte) (int, error) {
	if l.of.in.Limited() {
		p = p[:min(len(p), l.of.in.Step())]
	}
	n, err := l.TCPConn.Read(p)
	_ = l.of.in.Wait(l.of.ctx, n) // fails only when the session is over: the next Read does, too
	return n, err
}

// Write implements io.Writer, within the rate limit.
func (l *plainLine) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		part := p[n:]
		if l.of.out.Limited() {
			part = part[:min(len(part), l.of.out.Step())]
		}
		if err = l.of.out.Wait(l.of.ctx, len(part)); err == nil {
			var wrote int
			wrote, err = l.TCPConn.Write(part)
			n += wrote
		}
	}
	return n, err
}
