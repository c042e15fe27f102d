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

// receiving serves a Push, an Early, a Copy or a Ranges: the client sends files or parts of them.
type receiving struct {
	*transferSession
	scope *access.Scope // set by open
}

func newReceiving(q *request) handler {
	x := &transferSession{request: q}
	x.direction = &receiving{transferSession: x}
	return x
}

func (x *receiving) open() error {
	p, err := x.onePath()
	if err != nil {
		return err
	}
	m := x.hello
	if t := &m.Target; m.Intent == wire.Early && (t.Delete || t.DryRun || t.BackupDir != "") {
		return wire.Errorf(wire.CodeUnsupported, "files that still grow replace nothing")
	}
	if m.Intent == wire.Ranges {
		if err := checkRanges(m); err != nil {
			return err
		}
	}
	if _, err := x.openShare(m.Share, identity.Write); err != nil {
		if _, appendErr := x.openShare(m.Share, identity.Append); appendErr == nil {
			return wire.Errorf(wire.CodeRight, "%s: it may only add snapshots (--snapshot), to a folder below the share", err)
		}
		return err
	}
	// These show what is there, and what comes early serves the delta of its file, which shows it.
	if t := &m.Target; t.Delete || t.Compare.Checksum || t.DryRun || m.Intent == wire.Early {
		if _, err := x.openShare(m.Share, identity.Read); err != nil {
			return err
		}
	}
	if x.share, x.scope, err = x.request.scope(); err != nil {
		return err
	}
	if p = seriesPath(p); disk.CheckPath(p) != nil {
		return nil // the receiver refuses it
	}
	return x.scope.MayTarget(p)
}

func (x *receiving) newEngine(_ context.Context, r *wire.Reader) (session.Engine, error) {
	if dir := x.hello.Target.BackupDir; dir != "" {
		if err := disk.CheckPath(dir); err != nil || dir == "." {
			return nil, wire.Errorf(wire.CodePath, "%q can't be the folder for backups", dir)
		}
		if err := x.scope.MayTarget(path.Join(dir, "kept")); err != nil {
			return nil, err
		}
	}
	opt := x.options(cmp.Or(x.hello.Paths[0], "."))
	opt.Quota, opt.Early = x.share.quota, x.hello.Intent == wire.Early
	if x.hello.Intent == wire.Ranges {
		opt.Range = &x.hello.Range
	}
	return session.NewReceiver(x.conn.Conn, r, x.scope, opt), nil
}

// checkRanges refuses what only a session with whole files can do, and ranges that no file has.
func checkRanges(m *wire.Hello) error {
	t := &m.Target
	switch {
	case t.Compare != wire.Compare{}, t.Readback, t.BackupDir != "", t.DryRun:
		return wire.Errorf(wire.CodeUnsupported, "ranges of files are only written")
	case m.Range.Log < wire.MinRangeLog, m.Range.Log > wire.MaxRangeLog, m.Range.Number > (wire.MaxSize-1)>>m.Range.Log:
		return wire.Errorf(wire.CodeUnsupported, "no file has range %d of 2^%d bytes", m.Range.Number, m.Range.Log)
	}
	return nil
}

// options are the receiver's options for a target path, without a quota.
func (x *receiving) options(path string) transfer.ReceiverOptions {
	return transfer.ReceiverOptions{
		Path: path, Target: x.hello.Target, Event: x.event, Message: x.message, Clock: x.clock,
		Memory:    x.client.memory,
		Files:     x.client.files,
		Finishing: func() { x.telemetry.SendLast(x.engine.Send) },
	}
}

func (x *receiving) close() {}
