package server

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/wire"
)

// maxClockLead is how far a client's clock may be ahead of ours, in the name of a snapshot that it
// appends.
const maxClockLead = time.Hour

// storing serves a Store: the client sends a snapshot into a series.
type storing struct {
	*receiving
	writer *snapshotWriter // nil in a dry run
}

func newStoring(q *request) handler {
	x := &transferSession{request: q}
	x.direction = &storing{receiving: &receiving{x}}
	return x
}

func (x *storing) open() error {
	if _, err := x.onePath(); err != nil {
		return err
	}
	m := x.hello
	var err error
	if x.share, err = x.openShare(m.Share, identity.Append); err != nil {
		x.share, err = x.openShare(m.Share, identity.Write)
	}
	if err == nil && (m.Target.Compare.Checksum || m.Target.DryRun) { // these show what is there
		_, err = x.openShare(m.Share, identity.Append)
	}
	if err == nil {
		x.withoutDeltaUnless(identity.Append)
	}
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
	opt.Snapshot = &transfer.Snapshot{
		Previous: writer.previous, Linked: writer.isLinked, Resumed: writer.resumed,
		Publish: x.publish,
	}
	opt.Event = func(e transfer.Event) {
		writer.event(e)
		x.event(e)
	}
	return session.NewReceiver(x.conn.Conn, r, writer.tree, opt), nil
}

func (x *storing) publish(failed, grave int64) error {
	defer x.share.quota.Moving()()
	if failed > 0 {
		defer x.share.quota.Freed()
	}
	return x.writer.publish(failed, grave)
}

// dryRun compares with the newest snapshot, as if the new one took its place.
func (x *storing) dryRun(r *wire.Reader) (session.Engine, error) {
	p := seriesPath(x.hello.Paths[0])
	name := x.hello.Snapshot // for a series without snapshots: nothing is there
	series, err := x.share.tree.OpenSeries(p)
	if err == nil {
		var complete []string
		if complete, _, err = series.Snapshots(); len(complete) > 0 {
			name = complete[len(complete)-1]
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, targetRefusal(err)
	}
	return session.NewReceiver(x.conn.Conn, r, x.share.tree, x.options(path.Join(p, name))), nil
}

// openSnapshot opens the snapshot that the client wants to fill.
func (x *storing) openSnapshot(ctx context.Context) (*snapshotWriter, error) {
	m := x.hello
	p, owner := seriesPath(m.Paths[0]), string(x.peer.id)
	if _, err := snapshot.ParseName(m.Snapshot); err != nil {
		return nil, &wire.Error{Code: wire.CodePath, Text: err.Error()}
	}
	appendOnly := !x.share.Rights.And(x.grants.On(m.Share)).Has(identity.Write)
	if appendOnly {
		if err := x.checkSeriesOwner(p); err != nil {
			return nil, err
		}
	}
	series, err := x.share.tree.MakeSeries(p, owner)
	if err != nil {
		return nil, targetRefusal(err)
	}
	if err := x.lockSeries(ctx, series); err != nil {
		return nil, targetRefusal(err)
	}
	if appendOnly {
		if err := checkSnapshotName(series, m.Snapshot, owner, time.Now()); err != nil {
			series.Close()
			return nil, err
		}
	}
	w := &snapshotWriter{
		ctx: ctx, log: x.log, series: series, name: m.Snapshot,
		maxFailed: m.Target.AllowFailed, keep: x.share.Keep,
	}
	if err := w.open(); err != nil {
		w.close()
		if errors.Is(err, fs.ErrExist) {
			return nil, wire.Errorf(wire.CodeExists, "the snapshot %s is complete", m.Snapshot)
		}
		return nil, targetRefusal(err)
	}
	return w, nil
}

// checkSeriesOwner refuses a place that is not the client's own, who may only append.
func (x *storing) checkSeriesOwner(p string) error {
	tree := x.share.tree
	series, err := tree.OpenSeries(p)
	if err == nil {
		if owned, err := series.Owned(string(x.peer.id)); err != nil || !owned {
			return notOwner(x.share.Name)
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return targetRefusal(err)
	}
	occupied := false
	err = tree.Names(context.Background(), p, func([]string, []disk.Kind) error {
		occupied = true
		return fs.ErrExist
	})
	if occupied {
		return notOwner(x.share.Name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return targetRefusal(err)
	}
	return nil
}

func notOwner(share string) error {
	return wire.Errorf(wire.CodeRight,
		"what is at this path of share %q does not belong to this client, which may only append",
		share)
}

// checkSnapshotName refuses names with which a client that may only append could make retention
// remove older snapshots, or take the place of later ones.
func checkSnapshotName(series *disk.Series, name, owner string, now time.Time) error {
	if owned, err := series.Owned(owner); err != nil || !owned {
		return wire.Errorf(wire.CodeRight, "these snapshots belong to another client")
	}
	t, err := snapshot.ParseName(name)
	if err != nil {
		return &wire.Error{Code: wire.CodePath, Text: err.Error()}
	}
	complete, _, err := series.Snapshots()
	if err != nil {
		return targetRefusal(err)
	}
	switch n := len(complete); {
	case slices.Contains(complete, name):
		return wire.Errorf(wire.CodeExists, "the snapshot %s is complete", name)
	case n > 0 && name < complete[n-1]:
		return wire.Errorf(wire.CodePath,
			"a snapshot of %s can't be appended: %s is newer", name, complete[n-1])
	case t.After(now.Add(maxClockLead)):
		return wire.Errorf(wire.CodePath,
			"%s is in the future: here it is %s", name, snapshot.Name(now))
	}
	return nil
}

func (x *storing) close() {
	if x.writer != nil {
		x.writer.close()
		x.share.quota.Freed()
	}
}
