package server

import (
	"cmp"
	"context"
	"path"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/wire"
)

// listing serves a List: the client asks for the shares, or for the entries of a folder.
type listing struct {
	*request
	out   []byte
	batch wire.Entries // not sent yet
}

func newListing(q *request) handler { return &listing{request: q} }

func (x *listing) serve(ctx context.Context) error {
	list := x.listShares
	if x.hello.Share != "" {
		list = x.listFolder
	}
	if err := list(ctx); err != nil {
		if len(x.batch.Entries) > 0 { // the listing lacks only some
			_ = x.flush()
		}
		return err
	}
	if err := x.flush(); err != nil {
		return err
	}
	return x.finish(x.out[:0], x.batch.First)
}

func (x *listing) listShares(context.Context) error {
	for _, share := range x.server.sortedShares() {
		rights := share.Rights.And(x.grants.On(share.Name))
		if rights == 0 || checkAddress(x.from, share.Allow, "") != nil {
			continue
		}
		m, err := share.folder.Stat()
		if err != nil {
			return &wire.Error{Code: wire.CodeSourceDisk, Text: err.Error()}
		}
		e := wire.Entry{
			Kind: wire.Share, Path: share.Name, Link: rights.String(),
			ModTime: m.ModTime.UnixNano(),
		}
		if err := x.add(e); err != nil {
			return err
		}
	}
	return nil
}

func (x *listing) listFolder(ctx context.Context) error {
	p, err := x.onePath()
	if err != nil {
		return err
	}
	if _, err := x.openShare(x.hello.Share, identity.List); err != nil {
		if _, appendErr := x.openShare(x.hello.Share, identity.Append); appendErr != nil {
			return err
		}
	}
	_, scope, err := x.request.scope()
	if err != nil {
		return err
	}
	at, err := scope.Follow(access.Names, cmp.Or(p, "."), true)
	if err != nil {
		return err
	}
	left, err := scope.List(ctx, at, func(m disk.Meta) error {
		return x.add(transfer.EntryOf(m, path.Base(m.Path)))
	})
	if err != nil {
		return sourceRefusal(err, p, x.hello.Share)
	}
	if left.Count > 0 {
		return x.write(omission(left))
	}
	return nil
}

// omission reports the entries that a list lacks.
func omission(left access.Omitted) *wire.Warning {
	return &wire.Warning{What: session.UnnamedEntry, Text: left.First.Error(), Count: uint64(left.Count)}
}

func (x *listing) add(e wire.Entry) error {
	x.batch.Entries = append(x.batch.Entries, e)
	if len(x.batch.Entries) < entriesAtOnce {
		return nil
	}
	return x.flush()
}

func (x *listing) flush() error {
	batch := x.batch
	x.batch = wire.Entries{First: batch.First + uint64(len(batch.Entries))}
	return x.write(&batch)
}

func (x *listing) write(m wire.Message) error {
	x.out = wire.Append(x.out[:0], m)
	return x.writeMessages(x.out, admitWithin)
}
