package server

import (
	"cmp"
	"sync"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/wire"
)

// sessionSlots counts the sessions of admitted clients, whatever their intent. Server.mu guards it.
type sessionSlots struct {
	max, maxPerClient int
	taken             int
	byClient          map[identity.Principal]int
}

// take counts a session of a client, or returns why there is no room. ownMax, unless 0, takes the
// place of maxPerClient.
func (s *sessionSlots) take(client identity.Principal, ownMax int) error {
	has := s.byClient[client]
	switch {
	case has >= cmp.Or(ownMax, s.maxPerClient):
		return wire.Errorf(wire.CodeBusy,
			"this client has %d sessions on the server, which is its limit", has)
	case s.taken >= s.max:
		return wire.Errorf(wire.CodeBusy,
			"the server has %d sessions, which is its limit", s.taken)
	}
	s.taken++
	s.byClient[client]++
	return nil
}

func (s *sessionSlots) release(client identity.Principal) {
	s.taken--
	if s.byClient[client]--; s.byClient[client] == 0 {
		delete(s.byClient, client)
	}
}

// streamsPerSessionLocked is how many data streams each session may have now: an equal part.
func (s *Server) streamsPerSessionLocked() int {
	extra := s.opt.extraStreams(s.slots.max) / max(1, s.slots.taken)
	return min(session.MaxStreams, 1+extra)
}

// streamsPerSession is how many data streams a session that has a slot may have now.
func (s *Server) streamsPerSession() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streamsPerSessionLocked()
}

// reserveStream counts a data stream of a session. It returns nil if there is no room; the first
// stream of a session always has room. The caller calls release when the stream ended.
func (s *Server) reserveStream(x *transferSession) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.streams > 0 {
		part := s.streamsPerSessionLocked()
		part += part / 4 // some replace streams that are dead, which the server can't know yet
		if s.extraStreams >= s.opt.extraStreams(s.slots.max) || x.streams > part {
			return nil
		}
		s.extraStreams++
	}
	x.streams++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if x.streams--; x.streams > 0 {
			s.extraStreams--
		}
	})
}
