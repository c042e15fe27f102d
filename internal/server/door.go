package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/connlimit"
	"github.com/fxfer/fxfer/internal/door"
	"github.com/fxfer/fxfer/internal/door/sftp"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// Doors are where clients of older protocols use the shares: by SFTP, FTP and WebDAV. The zero Doors
// are closed.
type Doors struct {
	SFTP   string // address, such as ":2022"; "" is nowhere
	FTP    FTPDoor
	WebDAV WebDAVDoor
}

// The names of the doors, in logs and metrics.
const sftpDoor = "sftp"

// doors are the names of all doors.
var doors = []string{sftpDoor, ftpDoor, webdavDoor}

// openDoor is a door that listens.
type openDoor struct {
	name   string
	listen net.Listener
	// serve serves a connection, and calls admitted when its user has logged in.
	serve func(ctx context.Context, c net.Conn, admitted func()) error
	shown string // how clients know the server there
	end   func() // called when all connections have ended, unless nil
}

// DoorStatus is a door that is open.
type DoorStatus struct {
	Name        string // "sftp", "ftp", "ftps" or "webdav"
	Addr        string
	Fingerprint string // of the server's key or certificate there
}

// Doors returns the doors that are open.
func (s *Server) Doors() (all []DoorStatus) {
	for _, d := range s.doors {
		all = append(all, DoorStatus{d.name, d.listen.Addr().String(), d.shown})
	}
	return all
}

// openDoors listens for clients of older protocols.
func (s *Server) openDoors() error {
	for _, open := range []func() error{s.openSFTP, s.openFTP, s.openWebDAV} {
		if err := open(); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) openSFTP() error {
	if s.opt.Doors.SFTP == "" {
		return nil
	}
	key, err := s.store.HostKey()
	if err != nil {
		return &session.Error{Kind: session.KindLocalDisk, Err: err}
	}
	d, err := sftp.New(doorServer{s, sftpDoor}, key)
	if err != nil {
		return err
	}
	return s.openDoor(&openDoor{name: sftpDoor, serve: d.Serve, shown: d.Fingerprint()}, s.opt.Doors.SFTP)
}

func (s *Server) openDoor(d *openDoor, addr string) (err error) {
	if d.listen, err = listenTCP(d.name, addr); err == nil {
		s.doors = append(s.doors, d)
	}
	return err
}

// listenTCP listens for the clients of a door.
func listenTCP(door, addr string) (net.Listener, error) {
	cfg := net.ListenConfig{}
	cfg.SetMultipathTCP(false) // as all sockets of the server
	l, err := cfg.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, session.ListenError(addr, fmt.Errorf("%s: %w", door, err))
	}
	return l, nil
}

func (s *Server) closeDoors() {
	for _, d := range s.doors {
		_ = d.listen.Close()
	}
	if s.ftpPorts != nil {
		s.ftpPorts.Close()
	}
}

// serveDoors serves the doors until ctx is done. Connections end with sessions. It returns when all
// have ended.
func (s *Server) serveDoors(ctx, sessions context.Context) {
	defer context.AfterFunc(ctx, s.closeDoors)()
	var running sync.WaitGroup
	if s.ftpPorts != nil {
		running.Go(s.ftpPorts.Serve)
	}
	for _, d := range s.doors {
		running.Go(func() {
			acceptFrom(ctx, s.log, d.listen.Accept, func(c net.Conn) {
				slot := s.conns.Acquire(c.RemoteAddr())
				if slot == nil {
					s.counters.refuse(refusedConnLimit)
					_ = c.Close()
					return
				}
				running.Go(func() { s.serveDoor(sessions, d, c, slot) })
			})
		})
	}
	running.Wait()
	for _, d := range s.doors {
		if d.end != nil {
			d.end()
		}
	}
}

func (s *Server) serveDoor(ctx context.Context, d *openDoor, c net.Conn, slot *connlimit.Slot) {
	defer slot.Release()
	log := s.log.With("door", d.name, "peer", c.RemoteAddr().String())
	begin, cancel := context.WithTimeout(ctx, admitWithin)
	err := slot.Wait(begin)
	cancel()
	if err != nil {
		_ = c.Close()
		return
	}
	if err := d.serve(ctx, c, slot.Authenticated); err != nil {
		log.Debug("connection ends", "error", err)
	}
}

// doorServer is the server as one door sees it.
type doorServer struct {
	*Server
	name string
}

// Password implements door.Server.
func (d doorServer) Password(ctx context.Context, c door.Client, name, password string) (door.Account, error) {
	const proof = "password"
	ok, err := d.guard.Check(ctx, transport.PrefixOf(c.Addr), func() (bool, error) {
		ok, err := d.store.CheckPassword(name, password)
		d.warnOfUsers(err)
		return ok, nil
	})
	if err == nil && !ok {
		err = door.ErrLogin
	}
	if err != nil {
		d.refuseLogin(c, name, proof, err)
		return nil, err
	}
	return d.admit(c, name, proof)
}

// Key implements door.Server. Nobody guesses keys, so nobody waits.
func (d doorServer) Key(_ context.Context, c door.Client, name string, public []byte) (door.Account, error) {
	ok, err := d.store.HasKey(name, public)
	d.warnOfUsers(err)
	if !ok { // agents offer many keys: no word about those
		return nil, door.ErrLogin
	}
	return d.admit(c, name, "key")
}

func (d doorServer) warnOfUsers(err error) {
	if err != nil {
		d.log.Warn("some lines of door_users can't be read", "error", err)
	}
}

// admit lets a user in that has proven who it is, if it has rights.
func (d doorServer) admit(c door.Client, name, proof string) (door.Account, error) {
	id, err := identity.ParseUser(name)
	if err != nil {
		return nil, door.ErrLogin
	}
	a := &doorAccount{
		server: d.Server, door: d.name, peer: peerIdentity{id: id, label: id.Short()},
		from: addressOf(c.Addr), addr: c.Addr, conn: c.Conn, proof: proof,
	}
	if _, err = d.live.Load().checkClient(&a.peer, a.from); err == nil {
		_, err = a.grants()
	}
	if err != nil {
		d.refuseLogin(c, name, proof, err)
		return nil, err
	}
	return a, nil
}

func (d doorServer) refuseLogin(c door.Client, name, proof string, why error) {
	d.counters.refuse(refusedLogin)
	d.log.Warn("login refused", "door", d.name, "user", wire.Printable(cut(name)), "peer", c.Addr.String(), "by", proof, "reason", why)
}

// cut shortens what a stranger sent for a log.
func cut(name string) string { return strings.ToValidUTF8(name[:min(len(name), 64)], "\ufffd") }

// doorAccount is a user at a door. It implements door.Account.
type doorAccount struct {
	server *Server
	door   string
	peer   peerIdentity
	from   netip.Addr
	addr   net.Addr
	conn   io.Closer // nil for none
	proof  string    // "password" or "key"
}

// LogIn implements door.Account. A user has no more connections than sessions: others could use no
// share, and each takes memory.
func (a *doorAccount) LogIn() (left func(), err error) {
	s := a.server
	most, err := s.live.Load().checkClient(&a.peer, a.from)
	s.mu.Lock()
	most = cmp.Or(most, s.slots.maxPerClient)
	if err == nil && s.logins[a.peer.id] >= most {
		err = wire.Errorf(wire.CodeBusy, "this user has %d connections, which is its limit", most)
	}
	if err == nil {
		s.logins[a.peer.id]++
	}
	s.mu.Unlock()
	if err != nil {
		doorServer{s, a.door}.refuseLogin(door.Client{Addr: a.addr}, a.peer.label, a.proof, err)
		return nil, err
	}
	s.log.Info("login", "door", a.door, "client", a.peer.label, "peer", a.addr.String(), "by", a.proof)
	return a.left, nil
}

func (a *doorAccount) left() {
	s := a.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.logins[a.peer.id]--; s.logins[a.peer.id] == 0 {
		delete(s.logins, a.peer.id)
	}
}

// grants returns what the user may do now.
func (a *doorAccount) grants() (identity.Grants, error) {
	grants, known, err := a.server.grantsOf(a.peer.id)
	if err != nil {
		a.server.log.Warn("some lines of authorized_clients can't be read", "error", err)
	}
	if !known {
		return nil, wire.Errorf(wire.CodeTrust, "this user has no rights on this server")
	}
	return grants, nil
}

// Shares implements door.Account.
func (a *doorAccount) Shares() (all []door.Share) {
	grants, err := a.grants()
	if err != nil {
		return nil
	}
	for _, share := range a.server.sortedShares() {
		if share.Rights.And(grants.On(share.Name)) == 0 || checkAddress(a.from, share.Allow, "") != nil {
			continue
		}
		m, _ := share.folder.Stat() // without a folder, it has no time
		all = append(all, door.Share{Name: share.Name, ModTime: m.ModTime})
	}
	return all
}

// Enter implements door.Account.
func (a *doorAccount) Enter(ctx context.Context, name string) (*door.Session, error) {
	s := a.server
	grants, err := a.grants()
	if err != nil {
		return nil, err
	}
	r, err := s.reserve(ctx, a.peer, a.from, a.conn, grants)
	if err != nil {
		r = &reservation{server: s, id: newSessionID(), peer: a.peer, from: a.from}
		r.newAudit(a.door, name).session(ctx, nil, -1, err)
		return nil, err
	}
	x := &doorSession{
		reservation: r, audit: r.newAudit(a.door, name), name: name,
		door: a.door, addr: a.addr, began: time.Now(),
	}
	share, err := r.openShare(name, 0)
	if err != nil {
		x.audit.session(ctx, nil, -1, err)
		r.release()
		return nil, err
	}
	s.counters.begin(a.door)
	x.log = s.log.With("door", a.door, "session", r.id, "client", a.peer.label, "share", name)
	x.log.Info("session begins", "peer", a.addr.String())
	x.scope = share.folder.Client(access.Request{
		Share: name, Client: string(a.peer.id), Rights: r.rightsOn(share), Intent: wire.Push,
	})
	s.mu.Lock()
	s.atDoors[x] = struct{}{}
	s.mu.Unlock()
	in, out := r.flows(new(rateLimit))
	return &door.Session{
		Ctx: r.ctx, Scope: x.scope, Rights: r.rightsOn(share), In: in, Out: out, Moved: &x.moved, Quota: share.quota,
		Files: r.client.files, Forward: func() door.Forwarder { return s.forwarder(name) }, Texts: &s.texts,
		Needs: x.needs, Record: x.record, Omitted: x.omitted, Close: x.close,
	}, nil
}

// forwarder returns what sends the files of a share on, nil for none.
func (s *Server) forwarder(share string) Forwarder {
	if s.opt.Forwarder == nil {
		return nil
	}
	return s.opt.Forwarder(share)
}

// doorSession is what a user of a door does on one share.
type doorSession struct {
	*reservation
	audit *audit
	log   *slog.Logger
	scope *access.Scope
	name  string // of the share
	door  string
	addr  net.Addr
	began time.Time
	moved door.Traffic

	counting                            sync.Mutex // guards the following
	received, sent                      int64      // bytes
	committed, changed, failed, refused int        // what arrived, what else was changed, what was not
	warned                              bool       // of an omission
}

// DoorSession is what a user does at a door, on one share.
type DoorSession struct {
	ID       string // as in the log
	Door     string // "sftp", "ftp" or "webdav"
	Client   string // such as "user:anna"
	Peer     string // address and port
	Share    string
	Began    time.Time
	Received int64 // bytes, those of files that are not whole included
	Sent     int64 // bytes
	Files    int   // that arrived
	Failed   int   // of those that should have
}

func (x *doorSession) status() DoorSession {
	x.counting.Lock()
	defer x.counting.Unlock()
	return DoorSession{
		ID: x.id, Door: x.door, Client: string(x.peer.id), Peer: x.addr.String(), Share: x.name, Began: x.began,
		Received: x.moved.In.Load(), Sent: x.moved.Out.Load(), Files: x.committed, Failed: x.failed,
	}
}

// needs notes that the session takes a right, as fileWork does.
func (x *doorSession) needs(ctx context.Context, right identity.Rights) error {
	if x.uses(right) {
		return x.server.keeps(ctx, x.reservation)
	}
	return nil
}

// record counts and logs what was done.
func (x *doorSession) record(e door.Record) {
	x.audit.door(e)
	x.counting.Lock()
	defer x.counting.Unlock()
	receives, files := e.Outcome != door.Sent, ""
	switch {
	case e.Err != nil && e.Outcome == door.Received:
		x.failed++
		files = string(session.Failed)
	case e.Err != nil && e.Outcome != door.Sent: // clients may want the beginning only
		x.refused++
		return
	case e.Outcome == door.Received:
		x.committed++
		files = string(session.Committed)
	case e.Outcome == door.Sent:
		files = string(session.Committed)
	case e.Outcome == door.Removed:
		x.changed++
		files = string(session.Removed)
	default:
		x.changed++
		return
	}
	if receives {
		x.received += e.Bytes
	} else {
		x.sent += e.Bytes
	}
	x.server.counters.update(x.name, receives, func(t *ShareTraffic) {
		t.Bytes += e.Bytes
		t.Files[files]++
	})
}

// omitted logs the first list that lacks entries: clients may list a folder again and again, and some
// protocols cannot say it.
func (x *doorSession) omitted(folder string, left access.Omitted) {
	x.counting.Lock()
	defer x.counting.Unlock()
	if !x.warned {
		x.warned = true
		x.log.Warn("a list lacks entries", "folder", folder, "entries", left.Count, "first", left.First)
	}
}

func (x *doorSession) close(why error) {
	x.server.mu.Lock()
	delete(x.server.atDoors, x)
	x.server.mu.Unlock()
	if err := x.scope.Close(); err != nil {
		x.log.Warn("damage of snapshots", "error", err)
	}
	if cause := context.Cause(x.ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		why = cmp.Or(cause, why)
	}
	x.counting.Lock()
	defer x.counting.Unlock()
	x.log.Info("session ends", "received", x.received, "sent", x.sent, "files", x.committed,
		"changed", x.changed, "failed", x.failed+x.refused, "error", why)
	x.audit.session(context.Background(), nil, x.received+x.sent, why)
	outcome := outcomeOf(why, int64(x.failed))
	for _, d := range []struct {
		receives bool
		bytes    int64
	}{{true, x.received}, {false, x.sent}} {
		if d.bytes > 0 {
			x.server.counters.update(x.name, d.receives, func(t *ShareTraffic) {
				if t.Sessions[outcome]++; outcome == OutcomeDone {
					t.LastDone = time.Now()
				}
			})
		}
	}
	x.release()
}

// door records what was done at a door.
func (a *audit) door(e door.Record) {
	if a == nil {
		return
	}
	attrs := pathAttrs(e.Path)
	if e.To != "" {
		attrs = append(attrs, "to", strings.ToValidUTF8(e.To, "\ufffd"))
	}
	outcome := string(e.Outcome)
	if e.Err != nil {
		outcome = "failed"
		attrs = append(attrs, "error", wire.Printable(e.Err.Error()))
	}
	if e.Outcome == door.Received || e.Outcome == door.Sent {
		attrs = append(attrs, "bytes", e.Bytes)
	}
	a.log.Info("entry", append(attrs, "outcome", outcome)...)
}
