package server

import (
	"context"
	"time"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/series"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/internal/wire"
)

// expiry serves an Expire: the client names the snapshots that it wants to keep.
type expiry struct{ *request }

func newExpiry(q *request) handler { return &expiry{q} }

func (x *expiry) serve(ctx context.Context) error {
	p, err := x.onePath()
	if err != nil {
		return err
	}
	if _, err := x.openShare(x.hello.Share, identity.Write); err != nil {
		return err
	}
	share, scope, err := x.request.scope()
	if err != nil {
		return err
	}
	x.admit()
	_ = x.conn.SetDeadline(time.Now().Add(session.VerifyPatience))
	keep, err := x.readKeep()
	if err != nil {
		return err
	}
	in, err := scope.Series(access.Expire, seriesPath(p))
	if err != nil {
		return sourceRefusal(err, p, x.hello.Share)
	}
	defer in.Close()
	defer share.quota.Freed()
	if err := x.lockSeries(ctx, in); err != nil {
		return targetRefusal(err)
	}
	if err := x.remove(ctx, in, keep); err != nil {
		return err
	}
	return x.answer(nil)
}

// remove removes the snapshots that are not to be kept, and reports each to the client.
func (x *expiry) remove(ctx context.Context, in *access.Series, keep []string) error {
	defer x.showWork()()
	names, err := series.Expired(in, keep)
	if err != nil {
		return targetRefusal(err)
	}
	log := x.server.log.With("client", x.peer.label,
		"share", x.hello.Share, "series", seriesPath(x.hello.Paths[0]))
	for _, name := range names {
		if ctx.Err() != nil {
			return errDraining
		}
		err := in.Remove(name)
		log.Info("snapshot removed", "snapshot", name, "error", err)
		x.audit.removed(seriesPath(x.hello.Paths[0]), name, err)
		if err != nil {
			return targetRefusal(err)
		}
		if err := x.send(&wire.Removed{Kind: wire.Dir, Path: name}); err != nil {
			return err
		}
	}
	return nil
}

// readKeep reads the list of snapshots to keep: Prune messages, of which the last is empty.
func (x *expiry) readKeep() (keep []string, err error) {
	r := wire.NewReader(x.conn, wire.MaxMessage)
	for {
		m, err := r.Next()
		if err != nil {
			return nil, err
		}
		p, ok := m.(*wire.Prune)
		switch {
		case !ok:
			return nil, wire.Errorf(wire.CodeProtocol, "expected the snapshots to keep")
		case len(p.Folders) == 0:
			return keep, nil
		case len(keep) > session.MaxKeep:
			return nil, wire.Errorf(wire.CodeProtocol, "too many snapshots to keep")
		}
		for _, name := range p.Folders {
			if _, err := snapshot.ParseName(name); err != nil { // longer ones would take much memory
				return nil, &wire.Error{Code: wire.CodePath, Text: err.Error()}
			}
		}
		keep = append(keep, p.Folders...)
	}
}
