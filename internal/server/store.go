package server

import (
	"context"
	"errors"
	"io/fs"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/series"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/wire"
)

// storing serves a Store: the client sends a snapshot into a series.
type storing struct {
	*receiving
	writer *series.Writer // nil in a dry run
	newest *access.Scope  // what a dry run compares with; otherwise nil
}

func newStoring(q *request) handler {
	x := &transferSession{request: q}
	x.direction = &storing{receiving: &receiving{transferSession: x}}
	return x
}

func (x *storing) open() error {
	if _, err := x.onePath(); err != nil {
		return err
	}
	m := x.hello
	var err error
	if _, err = x.openShare(m.Share, identity.Append); err != nil {
		_, err = x.openShare(m.Share, identity.Write)
	}
	if err == nil && (m.Target.Compare.Checksum || m.Target.DryRun) { // these show what is there
		_, err = x.openShare(m.Share, identity.Append)
	}
	if err != nil {
		return err
	}
	x.share, x.scope, err = x.request.scope()
	return err
}

func (x *storing) newEngine(ctx context.Context, r *wire.Reader) (session.Engine, error) {
	t := &x.hello.Target
	c := &t.Compare
	if t.BackupDir != "" || c.Update || c.Existing || c.IgnoreExisting || !t.Delete {
		return nil, wire.Errorf(wire.CodeUnsupported, "a snapshot is a copy of the source: it has no options to leave or keep other files")
	}
	if t.DryRun {
		return x.dryRun(r)
	}
	moved := x.share.quota.Moving()
	writer, err := x.openSnapshot(ctx)
	moved()
	if err != nil {
		return nil, err
	}
	x.writer = writer
	opt := x.options(".")
	opt.Quota = x.share.quota
	opt.Snapshot = writer.Snapshot(x.publish)
	opt.Event = func(e *transfer.Event) {
		writer.Event(e)
		x.event(e)
	}
	return session.NewReceiver(x.conn.Conn, r, writer.Tree(), opt), nil
}

func (x *storing) publish(failed, grave int64) error {
	defer x.share.quota.Moving()()
	if failed > 0 {
		defer x.share.quota.Freed()
	}
	h, err := x.writer.Publish(failed, grave)
	if h.Files > 0 || h.Mended > 0 || h.Err != nil {
		x.log.Info("damaged files are healed", "snapshot", x.hello.Snapshot,
			"files", h.Files, "in older snapshots", h.Mended, "error", h.Err)
	}
	if h.Files > 0 && err == nil {
		x.engine.Send(&wire.Warning{What: session.SnapshotHealed, Count: uint64(h.Files)})
	}
	return err
}

// dryRun compares with the newest snapshot, as if the new one took its place.
func (x *storing) dryRun(r *wire.Reader) (session.Engine, error) {
	newest, err := x.scope.Newest(seriesPath(x.hello.Paths[0]), x.hello.Snapshot)
	if err != nil {
		return nil, targetRefusal(err)
	}
	x.newest = newest
	return session.NewReceiver(x.conn.Conn, r, newest, x.options(".")), nil
}

// openSnapshot opens the snapshot that the client wants to fill.
func (x *storing) openSnapshot(ctx context.Context) (*series.Writer, error) {
	m := x.hello
	in := seriesPath(m.Paths[0])
	s, err := x.scope.AddTo(in, m.Snapshot,
		func(entries int64) (done func(), err error) {
			err = x.share.quota.Take(ctx, 0, entries)
			return func() { x.share.quota.Settle(0, entries, true) }, err
		})
	if err != nil {
		return nil, targetRefusal(err)
	}
	if err := x.lockSeries(ctx, s); err != nil {
		return nil, targetRefusal(err)
	}
	w, err := series.Open(ctx, s, series.Options{
		Log: x.log, Name: m.Snapshot, MaxFailed: m.Target.AllowFailed, Keep: x.share.Keep,
		Removed: func(name string, err error) { x.audit.removed(in, name, err) },
	})
	if errors.Is(err, fs.ErrExist) {
		return nil, wire.Errorf(wire.CodeExists, "the snapshot %s is complete", m.Snapshot)
	}
	if err != nil {
		return nil, targetRefusal(err)
	}
	return w, nil
}

func (x *storing) close() {
	if x.newest != nil {
		_ = x.newest.Close()
	}
	if x.writer != nil {
		x.writer.Close()
		x.share.quota.Freed()
	}
}
