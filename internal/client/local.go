package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/series"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// localSeries is a folder of this host for a series of snapshots. It has the form in which a server
// keeps a series, so that a server may offer it, too.
type localSeries struct {
	folder *access.Folder // that the series is in
	scope  *access.Scope  // of folder
	name   string         // of the series in folder
}

// openLocal opens the place of a series. It need not be there, but the folder that it is in has to
// be: where a disk is not mounted, nothing is made.
func (c *Client) openLocal(dir string, intent wire.Intent, t *Target) (*localSeries, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, &session.Error{Kind: session.KindLocalDisk, Err: err}
	}
	parent := filepath.Dir(dir)
	if parent == dir {
		return nil, session.Usage("name a folder of its own", "%s has no room for a series of snapshots", dir)
	}
	folder, err := access.Open(parent)
	if err != nil {
		return nil, &session.Error{Kind: session.KindLocalDisk, Err: err}
	}
	scope := folder.Client(access.Request{
		Share: parent, Client: string(identity.PinOfPrivate(c.key)), Intent: intent, DryRun: t.DryRun, Privileged: t.Privileged,
		Rights: identity.Read | identity.Write | identity.Append | identity.List,
	})
	return &localSeries{folder, scope, filepath.Base(dir)}, nil
}

func (l *localSeries) close() {
	_ = l.scope.Close()
	_ = l.folder.Close()
}

// local describes an error of this host's disk.
func local(err error) error {
	var known *session.Error
	var coded *wire.Error
	switch {
	case err == nil, errors.As(err, &known):
		return err
	case errors.Is(err, context.Canceled):
		return &session.Error{Kind: session.KindInterrupted, Err: &classed{err, errors.New("interrupted")}}
	case errors.As(err, &coded) && coded.Code == wire.CodePath:
		return &session.Error{Kind: session.KindUsage, Err: err}
	case errors.Is(err, fs.ErrNotExist):
		return &session.Error{Kind: session.KindNotFound, Err: err}
	case errors.Is(err, disk.ErrBusy):
		err = errors.New("another process works on these snapshots")
	}
	return &session.Error{Kind: session.KindLocalDisk, Err: err}
}

// getSnapshot receives into a series of snapshots on this host.
func (c *Client) getSnapshot(ctx context.Context, u session.URL, hello wire.Hello, dir string, call *Transfer) (*session.Report, error) {
	l, err := c.openLocal(dir, wire.Store, &call.Target)
	if err != nil {
		return nil, err
	}
	defer l.close()
	if hello.Snapshot = call.Target.Snapshot; hello.Snapshot == SnapshotAuto {
		all, err := c.LocalSnapshots(dir)
		if err != nil {
			return nil, err
		}
		hello.Snapshot = snapshotAfter(all)
	}
	p := pull{args: []string{dir}, below: "."}
	if call.Target.DryRun {
		if p.tree, err = l.scope.Newest(l.name, hello.Snapshot); err != nil {
			return nil, local(err)
		}
		defer p.tree.Close()
		return c.transfer(ctx, u, hello, &p, call)
	}
	return c.transfer(ctx, u, hello, &pullSnapshot{pull: p, series: l, name: hello.Snapshot}, call)
}

// pullSnapshot is the intent to receive a snapshot into a series on this host.
type pullSnapshot struct {
	pull   // its tree is that of the present session, or nil
	series *localSeries
	name   string
}

func (*pullSnapshot) absent(*wire.Hello) bool { return false }

func (p *pullSnapshot) local(entry string) (*access.Scope, string) {
	return nil, entry // the tree is closed when all is received
}

func (p *pullSnapshot) where(entry string) string { return filepath.Join(p.args[0], p.name, entry) }

func (p *pullSnapshot) folder() string { return filepath.Clean(p.args[0]) }

func (p *pullSnapshot) engine(ctx context.Context, s *transferSession, control transport.Conn, r *wire.Reader) (session.Engine, error) {
	in, err := p.series.scope.AddTo(p.series.name, p.name, func(int64) (func(), error) { return func() {}, nil })
	if err != nil {
		return nil, local(err)
	}
	if err := in.Lock(); err != nil {
		in.Close()
		return nil, local(err)
	}
	w, err := series.Open(ctx, in, series.Options{
		Log:  slog.New(slog.DiscardHandler), // the report has the failed entries, and nothing is removed here
		Name: p.name, MaxFailed: s.call.Target.AllowFailed,
	})
	if errors.Is(err, fs.ErrExist) {
		err = fmt.Errorf("the snapshot %s is complete", p.name)
		return nil, &session.Error{Kind: session.KindOther, Err: snapshotExists{err}}
	}
	if err != nil {
		return nil, local(err)
	}
	engine := session.NewReceiver(control, r, w.Tree(), transfer.ReceiverOptions{
		Path: ".", Target: s.hello.Target, Names: namesOf(&s.hello), Leave: true, Clock: s.clock, Message: s.message,
		Event: func(e *transfer.Event) {
			w.Event(e)
			s.tracker.Event(e)
		},
		Snapshot: w.Snapshot(func(failed, grave int64) error {
			h, err := w.Publish(failed, grave)
			s.tracker.SetHealed(h.Files)
			if h.Err != nil {
				s.client.notice("damaged files of older snapshots are not mended: %v", h.Err)
			}
			return err
		}),
	})
	return &filling{engine, w}, nil
}

// filling is an engine that fills a snapshot.
type filling struct {
	session.Engine
	writer *series.Writer
}

// Run implements session.Engine. A snapshot that is not complete stays for a later session.
func (f *filling) Run(ctx context.Context) error {
	defer f.writer.Close()
	return f.Engine.Run(ctx)
}

// LocalSnapshots lists the snapshots in a folder of this host, the oldest first. A folder that has
// none, or does not exist, gives none.
func (c *Client) LocalSnapshots(dir string) (all []Snapshot, err error) {
	err = c.inSeries(dir, wire.Series, access.Names, func(in *access.Series) error {
		found, err := series.List(in)
		for _, x := range found {
			at, err := snapshot.ParseName(x.Name)
			if err != nil {
				continue
			}
			all = append(all, Snapshot{
				Name: x.Name, Time: at, Partial: x.Filling, Failed: x.Failed, Damaged: x.Damaged, LastIntact: x.LastIntact > 0,
			})
		}
		return err
	})
	slices.SortStableFunc(all, func(a, b Snapshot) int { return strings.Compare(a.Name, b.Name) })
	if session.KindOf(err) == session.KindNotFound {
		return nil, nil
	}
	return all, err
}

// inSeries calls do with a series of this host.
func (c *Client) inSeries(dir string, intent wire.Intent, effect access.Effect, do func(*access.Series) error) error {
	l, err := c.openLocal(dir, intent, &Target{})
	if err != nil {
		return err
	}
	defer l.close()
	in, err := l.scope.Series(effect, l.name)
	if err != nil {
		return local(err)
	}
	defer in.Close()
	return local(do(in))
}

// PruneLocalSnapshots does what PruneSnapshots does, in a folder of this host.
func (c *Client) PruneLocalSnapshots(ctx context.Context, dir string, keep []string) (removed []string, err error) {
	if len(keep) == 0 {
		return nil, session.Usage("name those to keep", "no snapshot is to be kept")
	}
	err = c.inSeries(dir, wire.Expire, access.Expire, func(in *access.Series) error {
		if err := in.Lock(); err != nil {
			return err
		}
		names, err := series.Expired(in, keep)
		for _, name := range names {
			if err == nil {
				err = ctx.Err()
			}
			if err == nil {
				err = in.Remove(name)
			}
			if err == nil {
				removed = append(removed, name)
			}
		}
		return err
	})
	return removed, err
}

// ScrubLocal does what Scrub does, in a folder of this host.
func (c *Client) ScrubLocal(ctx context.Context, dir, name string, call Verification) (*Comparison, error) {
	if _, err := snapshot.ParseName(name); err != nil {
		return nil, session.Usage("list "+dir+" for the snapshots", "%w", err)
	}
	f := findings{call: call, start: time.Now(), sum: Comparison{Server: dir}}
	scrub := series.Scrub{
		Report: func(what session.Finding, path, text string) error {
			f.found(path, what, text)
			return ctx.Err()
		},
		Progress: func(n series.ScrubCount) error {
			f.total, f.sum.Files, f.sum.Bytes, f.sum.Same = n.Total, n.Files, n.Bytes, n.Same
			f.show()
			return ctx.Err()
		},
	}
	err := c.inSeries(dir, wire.Scrub, access.Names, func(in *access.Series) error {
		tree, err := in.Open(name)
		if err != nil {
			return err
		}
		defer tree.Close()
		_, err = scrub.Run(ctx, in, name, tree)
		return err
	})
	sum := f.done()
	return sum, sum.judge(name, err)
}
