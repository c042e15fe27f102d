package server

import (
	"context"
	"crypto/subtle"
	"slices"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/wire"
)

// liveSession is a session that data streams can join: a transfer or a probe.
type liveSession interface {
	base() *request
	// join serves a data stream until it ends.
	join(c *connection, m *wire.Join) error
	// drain makes durable what the session has received, before the server ends.
	drain(ctx context.Context)
	// stop ends the session for the given reason.
	stop(why error)
}

// register lets data streams join a session.
func (s *Server) register(x liveSession) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := x.base().hello.Session
	if s.draining {
		return errDraining
	}
	if s.sessions[id] != nil {
		return wire.Errorf(wire.CodeProtocol, "there is a session with this ID already")
	}
	if _, transfers := x.(*transferSession); !transfers {
		if probes := len(s.sessions) - len(s.transfersLocked()); probes >= MaxProbes {
			return wire.Errorf(wire.CodeBusy, "%d probes are under way", probes)
		}
	}
	s.sessions[id] = x
	s.cond.Broadcast()
	return nil
}

func (s *Server) unregister(x liveSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, x.base().hello.Session)
	s.cond.Broadcast()
}

// transfersLocked returns the transfers that run, without probes.
func (s *Server) transfersLocked() (all []*transferSession) {
	for _, x := range s.sessions {
		if t, ok := x.(*transferSession); ok {
			all = append(all, t)
		}
	}
	return all
}

// join hands a data stream to its session, which may appear later than the stream. Streams that fit
// no session learn nothing about sessions.
func (s *Server) join(ctx context.Context, c *connection, m *wire.Join) error {
	if err := checkVersion(m.Version); err != nil {
		return err
	}
	own := endedSession{m.Session, c.peer.id}
	x, over := s.await(ctx, own)
	switch {
	case over:
		return errSessionOver
	case c.peer.refusal != nil:
		return c.peer.refusal
	case x == nil || x.base().conn.peer.id != c.peer.id ||
		subtle.ConstantTimeCompare(x.base().hello.Secret[:], m.Secret[:]) != 1:
		return wire.Errorf(wire.CodeTrust, "%s", errSessionOver.Text)
	}
	if err := c.applySocketOptions(m.SockBuf, m.Congestion); err != nil {
		return err
	}
	return x.join(c, m)
}

func (c *connection) applySocketOptions(sockBuf int64, congestion string) error {
	if err := c.Apply(int(min(sockBuf, 1<<30)), congestion); err != nil {
		return wire.Errorf(wire.CodeUnsupported, "the server's kernel refuses: %v", err)
	}
	return nil
}

// errSessionOver refuses a data stream of a session that has ended, or was refused itself. The
// session was counted and logged, so its streams are not.
var errSessionOver = wire.Errorf(wire.CodeTrust, "there is no such session")

// await waits for a session. It returns nil if the session is over, or if ctx is done first. It
// reports whether the session is over.
func (s *Server) await(ctx context.Context, own endedSession) (x liveSession, over bool) {
	s.waitUntil(ctx, func() bool {
		x, over = s.sessions[own.id], s.recent.has(own)
		return x != nil || over || s.draining
	})
	return x, over && x == nil
}

const (
	// replaceWithin bounds the wait for the end of a session that another one replaces.
	replaceWithin = 5 * time.Second
	// maxRecent is how many ended sessions are remembered for their late data streams.
	maxRecent = 256
)

// errReplaced ends a session whose client has started another one in its place.
var errReplaced = wire.Errorf(wire.CodeSilent, "the client has started another session in place of this one")

// replace ends a session, if it belongs to this client. It returns when the session has let go of
// its files, or after replaceWithin.
func (s *Server) replace(ctx context.Context, id [16]byte, client identity.Principal) {
	if id == ([16]byte{}) {
		return
	}
	s.mu.Lock()
	x := s.sessions[id]
	s.mu.Unlock()
	if x == nil || x.base().conn.peer.id != client {
		return
	}
	x.stop(errReplaced)
	ctx, cancel := context.WithTimeout(ctx, replaceWithin)
	defer cancel()
	s.waitUntil(ctx, func() bool { return s.sessions[id] != x })
}

// forget keeps the data streams of a session that is over from waiting for it: those of a short
// session, or of one that was refused, may arrive after its end.
func (s *Server) forget(x endedSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recent.add(x)
	s.cond.Broadcast()
}

// endedSession is a session that is over. Only the streams of the same peer belong to it.
type endedSession struct {
	id   [16]byte
	peer identity.Principal // "" if nothing was proven
}

// recentSessions is a set of the sessions that were added last.
type recentSessions struct {
	all  [maxRecent]endedSession
	next int
}

func (r *recentSessions) add(x endedSession) {
	r.all[r.next%len(r.all)] = x
	r.next++
}

func (r *recentSessions) has(x endedSession) bool {
	return slices.Contains(r.all[:min(r.next, len(r.all))], x)
}
