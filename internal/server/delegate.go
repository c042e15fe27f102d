package server

import (
	"errors"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/wire"
)

// delegate returns the user whose capability a client holds, with the rights that both the user has
// now and the capability names. The user's limits and addresses hold for the session.
func (s *Server) delegate(c *connection, m *wire.Hello) (peerIdentity, identity.Grants, error) {
	switch {
	case c.peer.refusal != nil:
		return c.peer, nil, c.peer.refusal
	case m.Intent != wire.Copy || len(m.Capability) == 0 || len(m.Paths) != 1 || len(m.Proof) > 0:
		return c.peer, nil, wire.Errorf(wire.CodeProtocol, "a copy is to one path and needs a capability, and nothing else does")
	}
	by, err := identity.ParseCapability(m.Capability)
	if err == nil {
		err = by.Admits(identity.PinOfPrivate(s.key), c.peer.id, m.Share, seriesPath(m.Paths[0]), time.Now())
	}
	if err != nil {
		return c.peer, nil, refusedCapability(err)
	}
	id := identity.Principal(by.User)
	user := peerIdentity{id: id, by: &by, label: id.Short() + " by " + c.peer.label}
	if err := s.checkHolder(&user); err != nil {
		return user, nil, err
	}
	if _, err := s.live.Load().checkClient(&user, addressOf(c.RemoteAddr())); err != nil {
		return user, nil, err
	}
	grants, known, err := s.grantsOf(id)
	if err != nil {
		c.log.Warn("some lines of authorized_clients can't be read", "error", err)
	}
	if !known {
		return user, nil, wire.Errorf(wire.CodeRight, "the user who signed the capability is not admitted")
	}
	return user, identity.Grants{m.Share: grants.On(m.Share).And(by.Rights)}, nil
}

// checkHolder returns why nobody may work for a user by its capability any more, or nil.
func (s *Server) checkHolder(user *peerIdentity) error {
	if user.by == nil {
		return nil
	}
	if !time.Now().Before(user.by.Until) {
		return refusedCapability(identity.ErrCapabilityExpired)
	}
	if holder, _, _ := s.store.Client(identity.Principal(user.by.Holder)); holder.Revoked {
		return wire.Errorf(wire.CodeRight, "the holder of the capability: %s", identity.ErrRevoked)
	}
	return nil
}

// spend counts the use of a capability, nil for none.
func (s *Server) spend(by *identity.Capability) error {
	if by == nil {
		return nil
	}
	err := s.store.Spend(by)
	switch {
	case errors.Is(err, identity.ErrCapabilityUsed), errors.Is(err, identity.ErrCapabilityMany):
		return refusedCapability(err)
	case err != nil:
		s.log.Error("count the use of a capability", "error", err)
		return wire.Errorf(wire.CodeOther, "the server could not count the use of the capability")
	}
	return nil
}

func refusedCapability(err error) error { return &wire.Error{Code: wire.CodeRight, Text: err.Error()} }

// reach returns the path to which the session is confined, "" for none.
func (r *reservation) reach() string {
	if r.peer.by == nil {
		return ""
	}
	return r.peer.by.Path
}
