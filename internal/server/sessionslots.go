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

// streamsPerSessionLocked is how many data streams each session of a client may have now: an equal
// part of all, and of what the client may have.
func (s *Server) streamsPerSessionLocked(client *clientUse) int {
	all := s.opt.extraStreams(s.slots.max)
	extra := min(all/max(1, s.slots.taken), extraPerClient(all)/max(1, client.sessions))
	return min(session.MaxStreams, 1+extra)
}

// extraPerClient is how many of all extra data streams the sessions of one client may have: half,
// but as many as a session may have.
func extraPerClient(all int) int { return max(all/2, min(all, session.MaxStreams-1)) }

// streamsPerSession is how many data streams a session of a client may have now.
func (s *Server) streamsPerSession(client *clientUse) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streamsPerSessionLocked(client)
}

// reserveStream counts a data stream of a session. It returns nil if there is no room; the first
// stream of a session always has room. The caller calls release when the stream ended.
func (s *Server) reserveStream(x *transferSession) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.streams > 0 {
		part := s.streamsPerSessionLocked(x.client)
		part += part / 4 // some replace streams that are dead, which the server can't know yet
		all := s.opt.extraStreams(s.slots.max)
		if s.extraStreams >= all || x.client.extraStreams >= extraPerClient(all) || x.streams > part {
			return nil
		}
		s.extraStreams++
		x.client.extraStreams++
	}
	x.streams++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if x.streams--; x.streams > 0 {
			s.extraStreams--
			x.client.extraStreams--
		}
	})
}
