package server

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"time"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/series"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/internal/wire"
)

// scrubbing serves a Scrub: it compares a snapshot with the digests that were noted for it.
type scrubbing struct{ *request }

func newScrubbing(q *request) handler { return &scrubbing{q} }

func (x *scrubbing) serve(ctx context.Context) error {
	p, err := x.onePath()
	if err != nil {
		return err
	}
	m := x.hello
	in, err := x.openSeries(p)
	if err != nil {
		return err
	}
	tree, err := in.Open(m.Snapshot)
	if err != nil {
		return sourceRefusal(err, m.Snapshot, m.Share)
	}
	defer tree.Close()
	x.admit()
	scrub := series.Scrub{Report: x.report, Progress: x.progress}
	start := time.Now()
	done := x.showWork()
	damaged, err := scrub.Run(ctx, in, m.Snapshot, tree)
	done()
	sum := scrub.Count()
	x.server.log.With("client", x.peer.label,
		"share", m.Share, "series", seriesPath(p), "snapshot", m.Snapshot).
		Info("scrub ends", "seconds", time.Since(start).Seconds(),
			"files", sum.Files, "same", sum.Same, "damaged", damaged, "error", err)
	if errors.Is(err, fs.ErrNotExist) {
		return wire.Errorf(wire.CodeNotFound, "there are no digests of %s", m.Snapshot)
	}
	if err != nil {
		return err
	}
	return x.answer(nil)
}

// openSeries opens the series of the snapshot, which the client must be allowed to read.
func (x *scrubbing) openSeries(p string) (*access.Series, error) {
	if _, err := snapshot.ParseName(x.hello.Snapshot); err != nil {
		return nil, &wire.Error{Code: wire.CodePath, Text: err.Error()}
	}
	at := seriesPath(p)
	scope, err := x.scopeFor(access.Read, path.Join(at, x.hello.Snapshot))
	if err != nil {
		return nil, err
	}
	in, err := scope.Series(access.Names, at)
	if err != nil {
		return nil, sourceRefusal(err, p, x.hello.Share)
	}
	return in, nil
}

func (x *scrubbing) report(what session.Finding, path, text string) error {
	return x.send(&wire.Warning{What: string(what), Path: path, Text: text, Count: 1})
}

func (x *scrubbing) progress(n series.ScrubCount) error {
	return x.send(&wire.Sample{Values: []wire.Value{
		{Name: session.ScrubTotal, Value: n.Total},
		{Name: session.ScrubFiles, Value: n.Files},
		{Name: session.ScrubBytes, Value: n.Bytes},
		{Name: session.ScrubSame, Value: n.Same},
	}})
}
