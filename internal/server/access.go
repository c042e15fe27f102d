package server

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/internal/wire"
)

// openShare returns a share on which the client has all of the rights. A share that does not exist
// and one on which the client has no right look the same to it.
func (r *reservation) openShare(name string, need identity.Rights) (*liveShare, error) {
	s := r.server
	folderErr := s.refresh(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	share := s.live.Load().share(name)
	granted := r.grants.On(name)
	if share == nil || granted == 0 {
		return nil, wire.Errorf(wire.CodeRight, "there is no share %q for this client", name)
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
	for _, x := range []struct {
		right identity.Rights
		done  string
	}{
		{identity.Write, "written to"}, {identity.Read, "read"},
		{identity.List, "listed"}, {identity.Append, "appended to"},
	} {
		if need&x.right != 0 && !has.Has(x.right) {
			return wire.Errorf(wire.CodeRight,
				"share %q may not be %s by this client", share, x.done)
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

// openPath is openShare for reading a path. A client that may only append may still read the
// snapshots of series that it owns.
func (r *reservation) openPath(name, p string, need identity.Rights) (*liveShare, error) {
	share, err := r.openShare(name, need)
	if err == nil {
		return share, nil
	}
	share, appendErr := r.openShare(name, identity.Append)
	if appendErr != nil || !r.ownsPath(share, seriesPath(p), need) {
		return nil, err
	}
	return share, nil
}

// ownsPath reports whether a path is in a snapshot of a series that the client owns. It may also
// list the series itself.
func (r *reservation) ownsPath(share *liveShare, p string, need identity.Rights) bool {
	if disk.CheckPath(p) != nil {
		return false
	}
	in, rest, err := share.tree.SeriesOf(p)
	if err != nil || in == "" || !r.ownsSeries(share, in) {
		return false
	}
	first, _, _ := strings.Cut(rest, "/")
	_, notSnapshot := snapshot.ParseName(first)
	return notSnapshot == nil || rest == "" && need == identity.List
}

func (r *reservation) ownsSeries(share *liveShare, p string) bool {
	series, err := share.tree.OpenSeries(p)
	if err != nil {
		return false
	}
	owned, err := series.Owned(string(r.peer.id))
	return err == nil && owned
}

// openList is openShare for listing a path. visible reports which entries the client may see. A
// client that may only append sees its own snapshots and the folders of its series.
func (r *reservation) openList(name, p string) (
	share *liveShare, visible func(disk.Meta) bool, err error,
) {
	all := func(disk.Meta) bool { return true }
	if share, err = r.openShare(name, identity.List); err == nil {
		return share, all, nil
	}
	refusal := err
	p = seriesPath(p)
	if share, err = r.openPath(name, p, identity.List); err == nil {
		if _, rest, _ := share.tree.SeriesOf(p); rest != "" {
			return share, all, nil
		}
		return share, func(m disk.Meta) bool {
			_, err := snapshot.ParseName(m.Path)
			return err == nil || m.Kind == disk.Symlink
		}, nil
	}
	if share, err = r.openShare(name, identity.Append); err != nil || disk.CheckPath(p) != nil {
		return nil, nil, refusal
	}
	return share, func(m disk.Meta) bool { return r.ownsSeries(share, path.Join(p, m.Path)) }, nil
}
