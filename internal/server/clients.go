package server

import (
	"cmp"
	"maps"
	"slices"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/wire"
)

// ClientStatus is a client that the server knows.
type ClientStatus struct {
	Key       string // pin, or name in its certificate; "*" is any name without an Admission
	Name      string // for people, "" if it has none
	Rights    string // such as "backup=wo", "" if it has none
	Revoked   bool
	Transfers int // that run
}

// Clients returns who is admitted or revoked: first those in authorized_clients, then those of the
// options, then those with a certificate that have sessions. An error is about lines that can't be
// read; the clients of all other lines are returned as well.
func (s *Server) Clients() ([]ClientStatus, error) {
	known, err := s.store.Clients()
	settings := s.live.Load()
	list := &clientList{settings: settings, listed: make(map[identity.Principal]bool)}
	for _, c := range known {
		list.add(c.ID, c.Comment, c.Grants, c.Revoked)
	}
	for _, id := range slices.Sorted(maps.Keys(settings.clients)) {
		if !list.listed[id] {
			list.add(id, "", nil, false)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Others with a session are admitted by the Admission for any name.
	for _, id := range slices.Sorted(maps.Keys(s.clients)) {
		if c := settings.admission(id); c != nil && !list.listed[id] {
			list.add(id, "", c.Rights, false)
		}
	}
	running := make(map[string]int)
	for _, x := range s.transfersLocked() {
		running[string(x.peer.id)]++
	}
	for i := range list.all {
		list.all[i].Transfers = running[list.all[i].Key]
	}
	return list.all, err
}

// clientList collects the result of Clients.
type clientList struct {
	settings *liveSettings
	listed   map[identity.Principal]bool
	all      []ClientStatus
}

func (l *clientList) add(id identity.Principal, name string, grants identity.Grants, revoked bool) {
	l.listed[id] = true
	if a := l.settings.clients[id]; a != nil {
		name = cmp.Or(a.Name, name)
		grants = grants.Merge(a.Rights)
	}
	c := ClientStatus{Key: string(id), Name: wire.Printable(name), Revoked: revoked}
	if !revoked {
		c.Rights = grants.String()
	}
	l.all = append(l.all, c)
}

// Revoke takes all rights from a client for good, and ends its sessions. key is the client's pin,
// or the name in its certificate.
func (s *Server) Revoke(key string) error {
	id, err := identity.ParsePrincipal(key)
	if err != nil {
		return session.Usage("", "%w", err)
	}
	if err := s.store.Revoke(id); err != nil {
		return &session.Error{Kind: session.KindLocalDisk, Err: err}
	}
	s.log.Warn("client is revoked by the administrator", "client", id.Short())
	s.review(false)
	return nil
}
