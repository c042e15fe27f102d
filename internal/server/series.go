package server

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/series"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/wire"
)

// seriesListing serves a Series: the client asks which snapshots there are.
type seriesListing struct{ *request }

func newSeriesListing(q *request) handler { return &seriesListing{q} }

func (x *seriesListing) serve(context.Context) error {
	p, err := x.onePath()
	if err != nil {
		return err
	}
	scope, err := x.scopeFor(access.Names, seriesPath(p))
	if err != nil {
		return x.noSeries(err, p)
	}
	in, err := scope.Series(access.Names, seriesPath(p))
	if errors.Is(err, fs.ErrNotExist) {
		return x.answer(nil)
	}
	if err != nil {
		return sourceRefusal(err, p, x.hello.Share)
	}
	entries, notes, err := listSnapshots(in)
	if err != nil {
		return sourceRefusal(err, p, x.hello.Share)
	}
	return x.answer(entries, notes...)
}

// noSeries answers a client that may append at most, about a path that is not its own series: whether
// anything is there does not show.
func (x *seriesListing) noSeries(refusal error, p string) error {
	if _, err := x.openShare(x.hello.Share, identity.Append); err != nil {
		return refusal
	}
	return wire.Errorf(wire.CodeNotFound, "this client has no snapshots at %q of share %q", p, x.hello.Share)
}

// listSnapshots returns the snapshots of a series, complete ones first, and messages about those
// that lack entries, have damaged ones, or have the last intact version of one.
func listSnapshots(in *access.Series) (entries []wire.Entry, notes []wire.Message, err error) {
	all, err := series.List(in)
	for _, x := range all {
		state := session.SnapshotComplete
		if x.Filling {
			state = session.SnapshotFilling
		}
		entries = append(entries, wire.Entry{Kind: wire.Share, Path: x.Name, Link: state})
		for _, note := range []struct {
			what string
			n    int64
		}{
			{session.SnapshotFailed, x.Failed}, {session.SnapshotDamaged, x.Damaged}, {session.SnapshotIntact, x.LastIntact},
		} {
			if note.n > 0 {
				notes = append(notes, &wire.Warning{What: note.what, Path: x.Name, Count: uint64(note.n)})
			}
		}
	}
	return entries, notes, err
}

// seriesPath returns the path of a series from the client's notation.
func seriesPath(p string) string { return cmp.Or(strings.TrimSuffix(p, "/"), ".") }

const (
	// seriesPatience is how long a session waits for another that changes the same series. That may
	// be the client's own, whose end the server has not noticed yet.
	seriesPatience = 30 * time.Second
	seriesRetry    = 100 * time.Millisecond
	seriesPing     = 5 * time.Second
)

// lockSeries waits for a series. It pings the client meanwhile.
func (q *request) lockSeries(ctx context.Context, in *access.Series) error {
	begin := time.Now()
	pinged := begin
	for {
		err := in.Lock()
		if !errors.Is(err, disk.ErrBusy) {
			return err
		}
		now := time.Now()
		if now.Sub(begin) > seriesPatience {
			return wire.Errorf(wire.CodeBusy, "another session works on these snapshots")
		}
		if now.Sub(pinged) > seriesPing {
			pinged = now
			if err := q.send(&wire.Ping{Time: now.UnixNano()}); err != nil {
				return err
			}
		}
		if !session.Sleep(ctx, seriesRetry) {
			return errDraining
		}
	}
}
