package server

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/pace"
	"github.com/fxfer/fxfer/internal/session"
)

// liveSettings are the settings that Reload can replace. They are never changed in place.
type liveSettings struct {
	shares      map[string]*liveShare
	firstShare  string // the first one in Options
	clients     map[identity.Principal]*Admission
	tls         TLS                   // with the names of the files of authorities
	authorities *identity.Authorities // the CAs for clients, nil for none
	allow       []netip.Prefix
	clientRate  int64 // for clients without a rate of their own, bit/s
	partialAge  time.Duration
}

// liveShare is a share of the live settings.
type liveShare struct {
	Share
	*shareFolder
}

// rateLimit is a rate in both directions.
type rateLimit struct{ in, out pace.Bucket }

func (s *Server) setRate(l *rateLimit, bitsPerSecond int64) {
	s.in.SetRate(&l.in, bitsPerSecond)
	s.out.SetRate(&l.out, bitsPerSecond)
}

// openSettings checks options, and opens the folders and CAs that are not open yet. present is nil
// at the start.
func (s *Server) openSettings(opt *Options, present *liveSettings) (*liveSettings, error) {
	next := &liveSettings{
		shares: make(map[string]*liveShare), clients: make(map[identity.Principal]*Admission),
		tls: opt.TLS, allow: opt.Allow, clientRate: opt.ClientRateLimit,
		partialAge: cmp.Or(opt.PartialAge, DefaultPartialAge),
	}
	opened, err := s.openShares(opt.Shares, next, present)
	if err == nil {
		err = next.setClients(opt)
	}
	if err == nil {
		next.authorities, err = s.openAuthorities(&opt.TLS, present)
	}
	if err != nil {
		closeFolders(opened)
		return nil, err
	}
	return next, nil
}

// openShares fills in next.shares. It returns the folders that it opened, also with an error.
func (s *Server) openShares(shares []Share, next, present *liveSettings) (
	opened []*shareFolder, err error,
) {
	for _, share := range shares {
		if err := next.checkShare(&share); err != nil {
			return opened, err
		}
		live := &liveShare{Share: share}
		if old := present.share(share.Name); old.has(share.Dir) {
			live.shareFolder = old.shareFolder
		} else {
			folder, err := access.Open(share.Dir)
			if err != nil {
				return opened, s.folderError(share.Name, err)
			}
			live.shareFolder = s.newShareFolder(share.Name, folder)
			opened = append(opened, live.shareFolder)
		}
		if err := live.folder.Writable(); err != nil && (share.Rights.Has(identity.Write) || share.Rights.Has(identity.Append)) {
			s.log.Warn("clients may write this share, but the server can't write its folder",
				"share", share.Name, "folder", share.Dir, "error", err)
		}
		next.shares[share.Name] = live
		next.firstShare = cmp.Or(next.firstShare, share.Name)
	}
	if len(next.shares) == 0 {
		return opened, session.Usage("name a folder", "nothing to share")
	}
	return opened, nil
}

func (l *liveSettings) checkShare(share *Share) error {
	if err := identity.CheckShare(share.Name); err != nil {
		return &session.Error{Kind: session.KindUsage, Err: err}
	}
	if l.shares[share.Name] != nil {
		return session.Usage("give them different names",
			"two shares have the name %q", share.Name)
	}
	if share.Rights == 0 {
		return session.Usage("give it rights, such as ro or rw",
			"share %q has no rights: no client could use it", share.Name)
	}
	return nil
}

func (l *liveSettings) setClients(opt *Options) error {
	for i := range opt.Clients {
		c := &opt.Clients[i]
		id, err := c.principal()
		if err != nil {
			return &session.Error{Kind: session.KindUsage, Err: err}
		}
		if err := session.CheckPriority(c.Priority); err != nil {
			return err
		}
		if other := l.clients[id]; other != nil {
			return session.Usage("",
				"the clients %q and %q have the same key or name", other.Name, c.Name)
		}
		if id.IsName() && opt.TLS.ClientCA == "" {
			return session.Usage("name the CA that vouches for it",
				"client %q is known by its certificate, but there is no CA for clients", c.Name)
		}
		l.clients[id] = c
	}
	return nil
}

// share returns a share by its name, nil if there is none. l may be nil.
func (l *liveSettings) share(name string) *liveShare {
	if l == nil {
		return nil
	}
	return l.shares[name]
}

// admission returns the options about a client, nil if there are none.
func (l *liveSettings) admission(id identity.Principal) *Admission {
	c := l.clients[id]
	if c == nil && id.IsName() {
		c = l.clients[anyName]
	}
	return c
}

// rateOf returns the rate limit of a client, in bit/s.
func (l *liveSettings) rateOf(id identity.Principal) int64 {
	if c := l.admission(id); c != nil && c.RateLimit > 0 {
		return c.RateLimit
	}
	return l.clientRate
}

// sortedShares returns the shares by name.
func (s *Server) sortedShares() []*liveShare {
	byName := func(a, b *liveShare) int { return cmp.Compare(a.Name, b.Name) }
	return slices.SortedFunc(maps.Values(s.live.Load().shares), byName)
}

// Reload replaces the shares, the clients and their CAs, the allowed addresses, the rate limits, the
// priorities and the bounds of sessions. Rates and priorities change at once. Sessions go on, except those of clients that lose a
// right that they use. Home, Listen, Socket, Datagrams, and the options for sockets, connections,
// memory and logs stay as they were. After an error nothing has changed.
func (s *Server) Reload(opt Options) error {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	limits := s.opt
	limits.MaxSessions, limits.MaxSessionsPerClient = opt.MaxSessions, opt.MaxSessionsPerClient
	if err := limits.fill(0); err != nil {
		return err
	}
	if s.pair != nil {
		s.pair.Renew()
	}
	present := s.live.Load()
	next, err := s.openSettings(&opt, present)
	if err != nil {
		return err
	}
	s.apply(&opt, next)
	s.retireFolders(present, next)
	s.review(false)
	return nil
}

// apply puts settings into force.
func (s *Server) apply(opt *Options, next *liveSettings) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live.Store(next)
	s.slots.max = cmp.Or(opt.MaxSessions, DefaultMaxSessions)
	s.slots.maxPerClient = cmp.Or(opt.MaxSessionsPerClient, DefaultMaxSessionsPerClient)
	s.setRate(&s.total, opt.RateLimit)
	for _, share := range next.shares {
		s.setRate(&share.limit, share.RateLimit)
		share.quota.set(share.Quota, share.QuotaFiles)
	}
	for id, c := range s.clients {
		s.setRate(&c.limit, next.rateOf(id))
	}
}

// refresh opens the folder of a share again if its path leads to another folder now: somebody has
// made it anew, or mounted something there. It returns why the share has no usable folder.
func (s *Server) refresh(name string) error {
	share := s.live.Load().share(name)
	if share == nil {
		return nil // the caller refuses it
	}
	err := share.checkFolder()
	if !errors.Is(err, errFolderReplaced) {
		return err
	}
	s.reloading.Lock()
	defer s.reloading.Unlock()
	present := s.live.Load()
	share = present.share(name)
	if share == nil || !errors.Is(share.checkFolder(), errFolderReplaced) {
		return nil // another session has done it
	}
	folder, err := access.Open(share.Dir)
	if err != nil {
		err = fmt.Errorf("%w, and the new one does not open: %w", errFolderReplaced, err)
		return s.folderError(name, err)
	}
	fresh := &liveShare{Share: share.Share, shareFolder: s.newShareFolder(name, folder)}
	fresh.quota.set(share.Quota, share.QuotaFiles)
	next := *present
	next.shares = maps.Clone(present.shares)
	next.shares[name] = fresh
	s.mu.Lock()
	s.setRate(&fresh.limit, share.RateLimit)
	s.live.Store(&next)
	s.mu.Unlock()
	s.retireFolders(present, &next)
	s.log.Info("the folder of a share was replaced and has been opened again",
		"share", name, "folder", share.Dir)
	return nil
}
