package server

import (
	"context"
	"fmt"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/wire"
)

// hello admits a client's session and serves it.
func (s *Server) hello(ctx context.Context, c *connection, m *wire.Hello) error {
	defer s.forget(endedSession{m.Session, c.peer.id})
	if err := checkVersion(m.Version); err != nil {
		return err
	}
	from := addressOf(c.RemoteAddr())
	who, grants, err := s.authorize(c, m)
	if err != nil {
		s.auditRefusal(ctx, from, who, m, err)
		return err
	}
	s.replace(ctx, m.Replaces, c.peer.id)
	r, err := s.reserve(ctx, who, from, c, grants)
	if err != nil {
		s.auditRefusal(ctx, from, who, m, err)
		return err
	}
	defer r.release()
	if err := s.spend(who.by); err != nil {
		s.auditRefusal(ctx, from, who, m, err)
		return err
	}
	s.counters.begin(intentName(m.Intent))
	q := &request{
		reservation: r, conn: c, hello: m, audit: r.newAudit(intentName(m.Intent), m.Share),
		log: c.log.With("session", r.id, "client", r.peer.label),
	}
	defer q.close()
	err = q.serve(r.ctx)
	q.audit.session(ctx, m.Paths, -1, err)
	return err
}

// authorize returns for whom a session works, and what it may do: the client itself, or the user whose
// capability it holds.
func (s *Server) authorize(c *connection, m *wire.Hello) (peerIdentity, identity.Grants, error) {
	if m.Intent == wire.Copy || len(m.Capability) > 0 {
		return s.delegate(c, m)
	}
	grants, err := s.authorizeSelf(c, m)
	return c.peer, grants, err
}

// authorizeSelf returns what a client may do for itself. A valid invitation enrols it, unless it was
// revoked or comes from an address that may not use the server.
func (s *Server) authorizeSelf(c *connection, m *wire.Hello) (identity.Grants, error) {
	id := c.peer.id
	if c.peer.refusal != nil {
		return nil, c.peer.refusal
	}
	if _, err := s.live.Load().checkClient(&c.peer, addressOf(c.RemoteAddr())); err != nil {
		return nil, err
	}
	grants, known, err := s.grantsOf(id)
	if err != nil {
		c.log.Warn("some lines of authorized_clients can't be read", "error", err)
	}
	switch {
	case len(m.Proof) == 32:
		return s.redeem(c, [32]byte(m.Proof), grants, known)
	case known:
		return grants, nil
	case id.IsName():
		return nil, wire.Errorf(wire.CodeCertificate,
			"this client's certificate is valid, but its name is not admitted: %s", id)
	}
	return nil, wire.Errorf(wire.CodeTrust, "this client's key is not admitted")
}

// redeem enrols the client that proves to have an invitation. A client that is known already keeps
// its grants if the invitation is spent: the user pasted its URL again.
func (s *Server) redeem(
	c *connection, proof [32]byte, grants identity.Grants, known bool,
) (identity.Grants, error) {
	if old, _, _ := s.store.Client(c.peer.id); old.Revoked { // the invitation stays good for others
		return nil, &wire.Error{Code: wire.CodeTrust, Text: identity.ErrRevoked.Error()}
	}
	exported, err := c.Exporter(session.ExporterLabel, 32)
	if err != nil {
		return nil, err
	}
	invited, comment, err := s.store.Redeem(proof, exported)
	if err != nil {
		if known {
			return grants, nil
		}
		return nil, &wire.Error{Code: wire.CodeTrust, Text: err.Error()}
	}
	if comment == "" {
		now := time.Now().UTC().Format(time.RFC3339)
		comment = fmt.Sprintf("invited %s from %s", now, c.RemoteAddr())
	}
	if err := s.store.Enrol(c.peer.id, invited, comment); err != nil {
		c.log.Error("enrol", "error", err)
		return nil, wire.Errorf(wire.CodeOther,
			"the server could not enrol this client; its invitation is spent")
	}
	c.log.Info("enrolled", "client", c.peer.label, "grants", invited.String())
	return grants.Merge(invited), nil
}

// grantsOf returns what a client may do by authorized_clients and the live settings. A revoked
// client is unknown.
func (s *Server) grantsOf(id identity.Principal) (grants identity.Grants, known bool, err error) {
	c, known, err := s.store.Client(id)
	if c.Revoked {
		return nil, false, nil
	}
	if a := s.live.Load().admission(id); a != nil && a.Rights != nil {
		return c.Grants.Merge(a.Rights), true, nil
	}
	return c.Grants, known, err
}
