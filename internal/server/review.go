package server

import (
	"context"
	"io"
	"maps"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// reviewEvery is how often the rights of running sessions are checked again.
	reviewEvery = 250 * time.Millisecond
	// evictWithin is the time that a session has to tell its client why it ends.
	evictWithin = 3 * time.Second
)

// keepReviewing ends the sessions of clients that lose their rights, until ctx is done.
func (s *Server) keepReviewing(ctx context.Context) {
	tick := time.NewTicker(reviewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.review(true)
		}
	}
}

// standing is what the lists say about a client.
type standing struct {
	grants identity.Grants
	known  bool
	err    error // the lists can't be read
}

// review ends the sessions of clients that have lost their rights. With twice, a session ends only
// when two reviews in a row agree: a file that is being edited may be empty for a moment.
func (s *Server) review(twice bool) {
	s.mu.Lock()
	reservations := maps.Clone(s.reservations)
	s.mu.Unlock()
	standings := make(map[identity.Principal]standing)
	for r, conn := range reservations {
		now, ok := standings[r.peer.id]
		if !ok {
			now.grants, now.known, now.err = s.grantsOf(r.peer.id)
			standings[r.peer.id] = now
		}
		why := s.checkVouchers(r)
		if why == nil {
			why = s.checkStanding(r, &now)
		}
		if why == nil {
			why = s.checkHolder(&r.peer)
		}
		if s.confirmed(r, why, twice) {
			s.evict(r, conn, why)
		}
	}
}

// keeps returns why the client does not have the rights any more that its session needs, or nil.
// Like review, it asks twice.
func (s *Server) keeps(ctx context.Context, r *reservation) error {
	for again := false; ; again = true {
		var now standing
		now.grants, now.known, now.err = s.grantsOf(r.peer.id)
		why := s.checkStanding(r, &now)
		if why == nil || again {
			return why
		}
		if !session.Sleep(ctx, reviewEvery) {
			return context.Cause(ctx)
		}
	}
}

// checkVouchers returns why no CA vouches for the client any more, or nil.
func (s *Server) checkVouchers(r *reservation) error {
	vouchers, err := s.vouchAgain(r)
	if err != nil {
		return certificateRefusal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.peer.vouchers = vouchers
	return nil
}

// checkStanding returns which right the client has lost, or nil.
func (s *Server) checkStanding(r *reservation, now *standing) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case now.err != nil: // nothing is known against the client
		return nil
	case !now.known:
		return wire.Errorf(wire.CodeTrust, "this client has been revoked")
	case r.inUse != nil && !now.grants.On(r.inUse.Name).Has(r.used):
		return wire.Errorf(wire.CodeRight,
			"this client has lost its right on share %q", r.inUse.Name)
	}
	return nil
}

// confirmed reports whether there is a reason to end a session and, with twice, whether there was
// one at the last review, too.
func (s *Server) confirmed(r *reservation, why error, twice bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := r.suspect
	r.suspect = why != nil
	return why != nil && (before || !twice)
}

func (s *Server) evict(r *reservation, conn io.Closer, why error) {
	s.log.Warn("session is ended", "session", r.id, "client", r.peer.label, "reason", why)
	r.cancel(why)
	if conn != nil {
		time.AfterFunc(evictWithin, func() { _ = conn.Close() })
	}
}
