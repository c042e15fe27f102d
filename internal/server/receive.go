package server

import (
	"cmp"
	"context"
	"strings"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/wire"
)

// receiving serves a Push: the client sends files.
type receiving struct{ *transferSession }

func newReceiving(q *request) handler {
	x := &transferSession{request: q}
	x.direction = &receiving{x}
	return x
}

func (x *receiving) open() error {
	p, err := x.onePath()
	if err != nil {
		return err
	}
	m := x.hello
	if x.share, err = x.openShare(m.Share, identity.Write); err != nil {
		return err
	}
	if m.Target.Delete || m.Target.Compare.Checksum || m.Target.DryRun { // these show what is there
		if _, err := x.openShare(m.Share, identity.Read); err != nil {
			return err
		}
	}
	x.withoutDeltaUnless(identity.Read)
	return x.spareSnapshots(p)
}

// withoutDeltaUnless turns off deltas for clients without the right: the digests of a file's pieces
// show what it holds.
func (x *receiving) withoutDeltaUnless(right identity.Rights) {
	if !x.share.Rights.And(x.grants.On(x.hello.Share)).Has(right) {
		x.hello.Target.Delta = wire.DeltaNone
	}
}

// spareSnapshots refuses to send into a snapshot.
func (x *receiving) spareSnapshots(p string) error {
	p = seriesPath(p)
	if disk.CheckPath(p) != nil {
		return nil // the receiver refuses it
	}
	in, rest, err := x.share.tree.SeriesOf(p)
	if err != nil {
		return targetRefusal(err)
	}
	if first, _, _ := strings.Cut(rest, "/"); in != "" {
		if _, err := snapshot.ParseName(first); err == nil {
			return wire.Errorf(wire.CodePath, "%q is in a snapshot, which can't be changed", p)
		}
	}
	return nil
}

func (x *receiving) newEngine(_ context.Context, r *wire.Reader) (session.Engine, error) {
	if dir := x.hello.Target.BackupDir; dir != "" {
		if err := disk.CheckPath(dir); err != nil || dir == "." {
			return nil, wire.Errorf(wire.CodePath, "%q can't be the folder for backups", dir)
		}
	}
	opt := x.options(cmp.Or(x.hello.Paths[0], "."))
	opt.Quota = x.share.quota
	return session.NewReceiver(x.conn.Conn, r, x.share.tree, opt), nil
}

// options are the receiver's options for a target path, without a quota.
func (x *receiving) options(path string) transfer.ReceiverOptions {
	return transfer.ReceiverOptions{
		Path: path, Target: x.hello.Target, Event: x.event, Message: x.message, Clock: x.clock,
		Memory:    x.client.memory,
		Finishing: func() { x.telemetry.SendLast(x.engine.Send) },
	}
}

func (x *receiving) close() {}
