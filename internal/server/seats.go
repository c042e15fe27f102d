package server

import (
	"cmp"
	"sync"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/wire"
)

// seats counts sessions of any intent, of clients that are admitted.
type seats struct {
	most, mostOf int // in all, and of one key
	taken        int
	of           map[string]int // by key
}

// take counts a session of a key, or says why there is no room for it. most, unless 0, is a bound of this key's own.
func (s *seats) take(key string, most int) error {
	switch {
	case s.of[key] >= cmp.Or(most, s.mostOf):
		return wire.Errorf(wire.CodeBusy, "this client has %d sessions on the server, its most", s.of[key])
	case s.taken >= s.most:
		return wire.Errorf(wire.CodeBusy, "the server has %d sessions, its most", s.taken)
	}
	s.taken++
	s.of[key]++
	return nil
}

func (s *seats) leave(key string) {
	s.taken--
	if s.of[key]--; s.of[key] == 0 {
		delete(s.of, key)
	}
}

// shareLocked is how many data streams each session may have now: what there is, in equal parts.
func (s *Server) shareLocked() int {
	return min(session.MaxStreams, 1+s.opt.moreStreams(s.seats.most)/max(1, s.seats.taken))
}

// offer is how many data streams a session that has a seat is to have.
func (s *Server) offer() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shareLocked()
}

// enterStream counts a data stream of a session; nil says that there is no room for it. The first of a session always has some.
func (s *Server) enterStream(x *serverSession) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.streams > 0 {
		share := s.shareLocked()
		if s.more >= s.opt.moreStreams(s.seats.most) || x.streams > share+share/4 { // some may be in place of others that are not known to be dead
			return nil
		}
		s.more++
	}
	x.streams++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if x.streams--; x.streams > 0 {
			s.more--
		}
	})
}

// lastSessions is a set of the last sessions that were put into it.
type lastSessions struct {
	ids  [256][16]byte
	next int
}

func (r *lastSessions) add(id [16]byte) {
	r.ids[r.next%len(r.ids)] = id
	r.next++
}

func (r *lastSessions) has(id [16]byte) bool {
	for i := range min(r.next, len(r.ids)) {
		if r.ids[i] == id {
			return true
		}
	}
	return false
}
