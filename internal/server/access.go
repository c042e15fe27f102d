package server

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/wire"
)

// openShare returns a share on which the client has all of the rights. A share that does not exist
// and one on which the client has no right look the same to it.
func (r *reservation) openShare(name string, need identity.Rights) (*liveShare, error) {
	s := r.server
	refused := wire.Errorf(wire.CodeRight, "there is no share %q for this client", name)
	granted := r.grants.On(name)
	if granted == 0 { // before it takes longer for a share that exists
		return nil, refused
	}
	folderErr := s.refresh(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	share := s.live.Load().share(name)
	if share == nil {
		return nil, refused
	}
	if err := checkRights(name, share.Rights.And(granted), need); err != nil {
		return nil, err
	}
	if err := checkAddress(r.from, share.Allow, fmt.Sprintf("use share %q", name)); err != nil {
		return nil, err
	}
	if folderErr != nil {
		return nil, s.folderMissing(name, folderErr)
	}
	if r.inUse == nil {
		share.users++
		r.inUse = share
	}
	r.used |= need
	return share, nil
}

// checkRights refuses what the client may not do, the most telling right first.
func checkRights(share string, has, need identity.Rights) error {
	for _, right := range []identity.Rights{
		identity.Write, identity.Read, identity.List, identity.Append,
	} {
		if need&right != 0 && !has.Has(right) {
			return access.RefuseRight(share, right)
		}
	}
	return nil
}

func (s *Server) folderMissing(share string, err error) error {
	var advice session.Advice
	if e := (*session.Error)(nil); errors.As(err, &e) {
		advice = e.Advice
	}
	s.log.Error("the folder of a share is not there", "share", share, "error", err, "advice", advice)
	return wire.Errorf(wire.CodeTargetDisk,
		"the folder of share %q is not there, or the server can't open it: see the server's log",
		share)
}

// rightsOn returns what the client may do on a share that it may use.
func (r *reservation) rightsOn(share *liveShare) identity.Rights {
	return share.Rights.And(r.grants.On(share.Name))
}

// scope returns what the session may do with a share, on which the client has a right.
func (q *request) scope() (*liveShare, *access.Scope, error) {
	share, err := q.openShare(q.hello.Share, 0)
	if err != nil {
		return nil, nil, err
	}
	scope := share.folder.Client(access.Request{
		Share: share.Name, Client: string(q.peer.id), Rights: q.rightsOn(share),
		Intent: q.hello.Intent, DryRun: q.hello.Target.DryRun, BackupDir: q.hello.Target.BackupDir,
		Privileged: share.Privileged, Below: q.reach(),
	})
	q.opened = append(q.opened, scope)
	return share, scope, nil
}

// scopeFor is scope for a session that needs an effect on the entry at p. It notes the right that
// the session depends on.
func (q *request) scopeFor(effect access.Effect, p string) (*access.Scope, error) {
	_, scope, err := q.scope()
	if err != nil {
		return nil, err
	}
	return scope, q.mayHave(scope, effect, p)
}

// mayHave asks for an effect on the entry at p, and notes the right that the session depends on.
func (q *request) mayHave(scope *access.Scope, effect access.Effect, p string) error {
	right, err := scope.May(effect, p)
	if err != nil {
		return err
	}
	q.uses(right)
	return nil
}

// scopeAt is scopeFor for the entry that a path leads to, whose own path it returns. With a slash
// at the end, that is what a link there leads to.
func (q *request) scopeAt(
	effect access.Effect, p string,
) (*liveShare, *access.Scope, string, error) {
	share, scope, err := q.scope()
	if err != nil {
		return nil, nil, "", err
	}
	at, err := scope.Follow(effect, seriesPath(p), strings.HasSuffix(p, "/"))
	if err != nil {
		return nil, nil, "", err
	}
	return share, scope, at, q.mayHave(scope, effect, at)
}

// uses notes that the session depends on a right, and reports whether that is new.
func (r *reservation) uses(right identity.Rights) (more bool) {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	more = !r.used.Has(right)
	r.used |= right
	return more
}
