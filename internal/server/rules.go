package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/pace"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// rules are what of a server can change while it runs. They are never changed but replaced, by Reload.
type rules struct {
	shares      map[string]*openShare
	first       string // share
	clients     map[identity.Principal]*Admission
	tls         TLS                   // of which authorities are
	authorities *identity.Authorities // that vouch for clients; nil: nobody does
	allow       []netip.Prefix
	clientRate  int64 // of those that have none of their own
}

// openShare is a share under the present rules.
type openShare struct {
	Share
	*shareFolder
}

// shareFolder is the folder of a share, whatever rules come and go.
type shareFolder struct {
	tree  *disk.Tree
	limit limit
	quota *shareQuota
	free  atomic.Int64 // bytes that are left, as of some seconds ago; -1 if unknown

	// Guarded by Server.mu.
	users int
	gone  bool // no share is here any more
}

func (s *Server) folderOf(share string, tree *disk.Tree) *shareFolder {
	f := &shareFolder{tree: tree, quota: newShareQuota(share, tree, s.log)}
	f.free.Store(tree.Free())
	return f
}

// limit is a rate in both directions.
type limit struct{ in, out pace.Bucket }

func (s *Server) setRate(l *limit, bitsPerSecond int64) {
	s.in.SetRate(&l.in, bitsPerSecond)
	s.out.SetRate(&l.out, bitsPerSecond)
}

// rulesOf checks options and opens the folders that are not open yet.
func (s *Server) rulesOf(opt *Options, present *rules) (r *rules, err error) {
	var opened []*shareFolder
	r = &rules{shares: make(map[string]*openShare), clients: make(map[identity.Principal]*Admission), tls: opt.TLS, allow: opt.Allow, clientRate: opt.ClientRateLimit}
	defer func() {
		if err != nil {
			closeFolders(opened)
		}
	}()
	for _, share := range opt.Shares {
		if err := identity.CheckShare(share.Name); err != nil {
			return nil, &session.Error{Kind: session.KindUsage, Err: err}
		}
		if r.shares[share.Name] != nil {
			return nil, &session.Error{Kind: session.KindUsage, Err: fmt.Errorf("two shares have the name %q", share.Name), Remedy: "name them apart: --share NAME=DIR"}
		}
		open := &openShare{Share: share}
		if old := present.share(share.Name); old != nil && old.Dir == share.Dir && !errors.Is(old.inPlace(), errReplacedFolder) {
			open.shareFolder = old.shareFolder
		} else {
			tree, err := disk.Open(share.Dir)
			if err != nil {
				return nil, s.cannotOpen(share.Name, err)
			}
			open.shareFolder = s.folderOf(share.Name, tree)
			opened = append(opened, open.shareFolder)
		}
		r.shares[share.Name] = open
		r.first = cmp.Or(r.first, share.Name)
	}
	if len(r.shares) == 0 {
		return nil, &session.Error{Kind: session.KindUsage, Err: errors.New("nothing to share"), Remedy: "name a folder: fxfer serve DIR"}
	}
	for i := range opt.Clients {
		c := &opt.Clients[i]
		id, err := c.principal()
		if err != nil {
			return nil, &session.Error{Kind: session.KindUsage, Err: err}
		}
		if other := r.clients[id]; other != nil {
			return nil, &session.Error{Kind: session.KindUsage, Err: fmt.Errorf("the clients %q and %q have the same key or name", other.Name, c.Name)}
		}
		if id.IsName() && opt.TLS.ClientCA == "" {
			return nil, session.Usage("name the CA that vouches for it", "client %q is known by its certificate, and there is no CA of clients", c.Name)
		}
		r.clients[id] = c
	}
	r.authorities, err = s.openAuthorities(&opt.TLS, present)
	return r, err
}

func (s *Server) cannotOpen(share string, err error) error {
	e := &session.Error{Kind: session.KindLocalDisk, Err: fmt.Errorf("share %q: %w", share, err)}
	if s.confined.Load() && errors.Is(err, fs.ErrPermission) {
		e.Remedy = "this process is confined to the folders that it had when it started: restart it"
	}
	return e
}

func (r *rules) share(name string) *openShare {
	if r == nil {
		return nil
	}
	return r.shares[name]
}

func closeFolders(folders []*shareFolder) {
	for _, p := range folders {
		_ = p.tree.Close()
	}
}

// Reload puts shares, clients and their CAs, allowed addresses, rate limits and bounds of sessions into force without touching running sessions, but
// those of clients that lose their right. Their rates change at once. Home, Listen, Socket, Datagrams and what concerns sockets and logs stay as they
// were. After an error nothing has changed.
func (s *Server) Reload(opt Options) error {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	present := s.rules.Load()
	bounds := s.opt
	bounds.MaxSessions, bounds.MaxSessionsPerClient = opt.MaxSessions, opt.MaxSessionsPerClient
	if err := bounds.fill(0); err != nil {
		return err
	}
	if s.pair != nil {
		s.pair.Renew()
	}
	r, err := s.rulesOf(&opt, present)
	if err != nil {
		return err
	}
	s.enforce(&opt, r)
	s.leaveFolders(present, r)
	s.review(false)
	return nil
}

// leaveFolders closes the folders of old rules that the present ones do not have, once nobody uses them.
func (s *Server) leaveFolders(was, now *rules) {
	var unused []*shareFolder
	s.mu.Lock()
	for name, old := range was.shares {
		if share := now.shares[name]; share == nil || share.shareFolder != old.shareFolder {
			old.gone = true
			if old.users == 0 {
				unused = append(unused, old.shareFolder)
			}
		}
	}
	s.mu.Unlock()
	closeFolders(unused)
}

// errReplacedFolder says that the folder of a share is another one than that which is open.
var errReplacedFolder = errors.New("the folder was replaced")

// inPlace tells whether the path of a share leads to the folder that is open: nil, errReplacedFolder, or why it leads to none.
func (p *openShare) inPlace() error {
	is, err := os.Stat(p.Dir)
	if err == nil && !p.tree.Is(is) {
		err = errReplacedFolder
	}
	return err
}

// refresh opens the folder of a share anew where its path leads to another one than when it was opened: somebody has made it again, or
// mounted something there.
func (s *Server) refresh(name string) error {
	share := s.rules.Load().share(name)
	if share == nil {
		return nil // others say so
	}
	err := share.inPlace()
	if !errors.Is(err, errReplacedFolder) {
		return err
	}
	s.reloading.Lock()
	defer s.reloading.Unlock()
	present := s.rules.Load()
	if share = present.share(name); share == nil || !errors.Is(share.inPlace(), errReplacedFolder) {
		return nil // another session has done it
	}
	tree, err := disk.Open(share.Dir)
	if err != nil {
		return s.cannotOpen(name, fmt.Errorf("%w, and the new one does not open: %w", errReplacedFolder, err))
	}
	next := *present
	next.shares = maps.Clone(present.shares)
	fresh := &openShare{Share: share.Share, shareFolder: s.folderOf(name, tree)}
	fresh.quota.set(share.Quota, share.QuotaFiles)
	next.shares[name] = fresh
	s.mu.Lock()
	s.setRate(&fresh.limit, share.RateLimit)
	s.rules.Store(&next)
	s.mu.Unlock()
	s.leaveFolders(present, &next)
	s.log.Info("the folder of a share was replaced, and is opened anew", "share", name, "folder", share.Dir)
	return nil
}

// enforce puts rules into force.
func (s *Server) enforce(opt *Options, r *rules) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules.Store(r)
	s.seats.most = cmp.Or(opt.MaxSessions, DefaultMaxSessions)
	s.seats.mostOf = cmp.Or(opt.MaxSessionsPerClient, DefaultMaxSessionsPerClient)
	s.setRate(&s.total, opt.RateLimit)
	for _, share := range r.shares {
		s.setRate(&share.limit, share.RateLimit)
		share.quota.set(share.Quota, share.QuotaFiles)
	}
	for id, c := range s.busy {
		s.setRate(&c.limit, r.rateOf(id))
	}
}

// client is what is said of a client: nil if there is nothing.
func (r *rules) client(id identity.Principal) *Admission {
	c := r.clients[id]
	if c == nil && id.IsName() {
		c = r.clients[anyName]
	}
	return c
}

// rateOf is the limit of a client, bit/s.
func (r *rules) rateOf(id identity.Principal) int64 {
	if c := r.client(id); c != nil && c.RateLimit > 0 {
		return c.RateLimit
	}
	return r.clientRate
}

// admission tells what a client may do, from authorized_clients and the rules. Who is revoked is not known.
func (s *Server) admission(id identity.Principal) (grants identity.Grants, known bool, err error) {
	c, known, err := s.store.Client(id)
	if c.Revoked {
		return nil, false, nil
	}
	if rule := s.rules.Load().client(id); rule != nil && rule.Rights != nil {
		return c.Grants.Merge(rule.Rights), true, nil
	}
	return c.Grants, known, err
}

// addressOf is a peer's address.
func addressOf(addr net.Addr) netip.Addr {
	p, _ := netip.ParseAddrPort(addr.String())
	return p.Addr().Unmap().WithZone("")
}

// allowed refuses an address that is in none of the prefixes, if there are any.
func allowed(from netip.Addr, prefixes []netip.Prefix, what string) error {
	if len(prefixes) == 0 || slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(from) }) {
		return nil
	}
	return wire.Errorf(wire.CodeRight, "the address %s may not %s", from, what)
}

// busyClient is a client that has sessions.
type busyClient struct {
	limit limit
	users int
}

// guest is an admitted client in one session of any intent.
type guest struct {
	server *Server
	id     string // of the session, in logs
	who    caller
	from   netip.Addr
	client *busyClient
	grants identity.Grants // to begin with
	cancel context.CancelCauseFunc

	// Guarded by Server.mu.
	share   *openShare
	need    identity.Rights // on it
	doubted bool            // it had no right when it was looked at last
}

// flows returns what holds a session to the rates of the server, its share if it has one, its client and its own.
func (g *guest) flows(own int64) (in, out *pace.Flow) {
	s := g.server
	share, last := new(limit), new(limit)
	if g.share != nil {
		share = &g.share.limit
	}
	s.out.SetRate(&last.out, own)
	return s.in.Flow(&s.total.in, &share.in, &g.client.limit.in, &last.in),
		s.out.Flow(&s.total.out, &share.out, &g.client.limit.out, &last.out)
}

// open returns a share on which the client has a right. A share that does not exist and one that the client may not know look
// the same.
func (g *guest) open(name string, need identity.Rights) (*openShare, error) {
	s := g.server
	there := s.refresh(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	share := s.rules.Load().share(name)
	granted := g.grants.On(name)
	if share == nil || granted == 0 {
		return nil, wire.Errorf(wire.CodeRight, "there is no share %q for this client", name)
	}
	for _, r := range []struct {
		right identity.Rights
		done  string
	}{{identity.Write, "written to"}, {identity.Read, "read"}, {identity.List, "listed"}, {identity.Append, "appended to"}} {
		if need&r.right != 0 && !share.Rights.And(granted).Has(r.right) {
			return nil, wire.Errorf(wire.CodeRight, "share %q may not be %s by this client", name, r.done)
		}
	}
	if err := allowed(g.from, share.Allow, fmt.Sprintf("use share %q", name)); err != nil {
		return nil, err
	}
	if there != nil {
		remedy := ""
		if e := (*session.Error)(nil); errors.As(there, &e) {
			remedy = e.Remedy
		}
		s.log.Error("the folder of a share is not there", "share", name, "error", there, "hint", remedy)
		return nil, wire.Errorf(wire.CodeTargetDisk, "the folder of share %q is not there, or not the one that the server has opened: see its log", name)
	}
	if g.share == nil {
		share.users++
		g.share = share
	}
	g.need |= need
	return share, nil
}

// openPath is open for who wants to read a path. Who may only append may read what is in the snapshots of series that are his own.
func (g *guest) openPath(name, p string, need identity.Rights) (*openShare, error) {
	share, err := g.open(name, need)
	if err == nil {
		return share, nil
	}
	share, appends := g.open(name, identity.Append)
	if appends != nil {
		return nil, err
	}
	p = seriesPath(p)
	if disk.CheckPath(p) != nil {
		return nil, err
	}
	in, rest, failed := share.tree.SeriesOf(p)
	if failed != nil || in == "" {
		return nil, err
	}
	series, failed := share.tree.OpenSeries(in)
	if failed != nil {
		return nil, err
	}
	first, _, _ := strings.Cut(rest, "/")
	_, notSnapshot := snapshot.ParseName(first)
	owned, failed := series.Owned(string(g.who.id))
	if failed != nil || !owned || notSnapshot != nil && (rest != "" || need != identity.List) {
		return nil, err
	}
	return share, nil
}

// openList is open for who wants to list a path, and tells what he is shown of it. Who may only append sees his own snapshots, and the folders
// that hold them.
func (g *guest) openList(name, p string) (share *openShare, shown func(disk.Meta) bool, err error) {
	if share, err = g.open(name, identity.List); err == nil {
		return share, func(disk.Meta) bool { return true }, nil
	}
	refused := err
	p = seriesPath(p)
	if share, err = g.openPath(name, p, identity.List); err == nil {
		if _, rest, _ := share.tree.SeriesOf(p); rest != "" {
			return share, func(disk.Meta) bool { return true }, nil
		}
		return share, func(m disk.Meta) bool {
			_, err := snapshot.ParseName(m.Path)
			return err == nil || m.Kind == disk.Symlink
		}, nil
	}
	if share, err = g.open(name, identity.Append); err != nil || disk.CheckPath(p) != nil {
		return nil, nil, refused
	}
	return share, func(m disk.Meta) bool {
		series, err := share.tree.OpenSeries(path.Join(p, m.Path))
		if err != nil {
			return false
		}
		owned, err := series.Owned(string(g.who.id))
		return err == nil && owned
	}, nil
}

// sit takes a seat for a session. The caller leaves it, once. The data streams of a session that is refused need not wait for it.
func (s *Server) sit(ctx context.Context, conn transport.Conn, who caller, session [16]byte) (context.Context, *guest, error) {
	g := &guest{server: s, id: newRequestID(), who: who, from: addressOf(conn.RemoteAddr())}
	r := s.rules.Load()
	rule := r.client(who.id)
	err := allowed(g.from, r.allow, "use this server")
	most := 0
	if rule != nil {
		most = rule.MaxSessions
		if err == nil {
			err = allowed(g.from, rule.Allow, "be used with this client's "+who.credential())
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		err = s.seats.take(string(who.id), most)
	}
	if err != nil {
		s.past.add(session)
		s.cond.Broadcast()
		return nil, nil, err
	}
	if g.client = s.busy[who.id]; g.client == nil {
		g.client = new(busyClient)
		s.setRate(&g.client.limit, r.rateOf(who.id))
		s.busy[who.id] = g.client
	}
	g.client.users++
	ctx, g.cancel = context.WithCancelCause(ctx)
	s.guests[g] = conn
	return ctx, g, nil
}

func (g *guest) leave() {
	g.cancel(nil)
	s := g.server
	s.mu.Lock()
	delete(s.guests, g)
	s.seats.leave(string(g.who.id))
	if g.client.users--; g.client.users == 0 {
		delete(s.busy, g.who.id)
	}
	var unused []*shareFolder
	if g.share != nil {
		if g.share.users--; g.share.users == 0 && g.share.gone {
			unused = append(unused, g.share.shareFolder)
		}
	}
	s.mu.Unlock()
	closeFolders(unused)
}

const (
	// reviewEvery is how often running sessions are held against what their clients may do.
	reviewEvery = 250 * time.Millisecond
	// evictWithin is what a session has to tell its client why it ends.
	evictWithin = 3 * time.Second
)

// keepReviewing ends the sessions of clients that are revoked, until ctx is done.
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

// review ends the sessions of clients that have lost their rights. patient asks that it be seen twice: a file that is being edited may be empty
// for a moment.
func (s *Server) review(patient bool) {
	s.mu.Lock()
	guests := maps.Clone(s.guests)
	s.mu.Unlock()
	type judgement struct {
		grants identity.Grants
		known  bool
		err    error
	}
	judged := make(map[identity.Principal]judgement)
	for g, conn := range guests {
		j, ok := judged[g.who.id]
		if !ok {
			j.grants, j.known, j.err = s.admission(g.who.id)
			judged[g.who.id] = j
		}
		by, bad := s.stillVouched(g)
		s.mu.Lock()
		var cause error
		switch {
		case bad != nil:
			cause = certificateRefused(bad)
		case j.err != nil: // nobody can tell
		case !j.known:
			cause = wire.Errorf(wire.CodeTrust, "this client has been revoked")
		case g.share != nil && !j.grants.On(g.share.Name).Has(g.need):
			cause = wire.Errorf(wire.CodeRight, "this client has lost its right on share %q", g.share.Name)
		}
		evict := cause != nil && (g.doubted || !patient)
		g.doubted = cause != nil
		if bad == nil {
			g.who.by = by
		}
		s.mu.Unlock()
		if evict {
			s.log.Warn("session is ended", "session", g.id, "client", g.who.shown, "reason", cause)
			g.cancel(cause)
			time.AfterFunc(evictWithin, func() { _ = conn.Close() })
		}
	}
}

// folders are where the shares are.
func (s *Server) folders() (all []*openShare) {
	for _, share := range s.rules.Load().shares {
		all = append(all, share)
	}
	slices.SortFunc(all, func(a, b *openShare) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
