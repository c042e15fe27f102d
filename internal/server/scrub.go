package server

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"time"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// scrubEvery is how often the client hears about the progress.
	scrubEvery = 500 * time.Millisecond
	// extraAtOnce bounds the paths that are looked up in the notes at a time.
	extraAtOnce = 1 << 16
)

// scrubbing serves a Scrub: it compares a snapshot with the digests that were noted for it.
type scrubbing struct {
	*request
	series *access.Series
	tree   *access.Scope
	state  *os.Root // the notes on the series

	reported time.Time
	total    int64 // files that were noted
	files    int64
	bytes    int64
	same     int64
	damage   snapshot.Damage
	unnoted  map[string]struct{} // paths of files that were not found in the notes yet
}

func newScrubbing(q *request) handler { return &scrubbing{request: q} }

func (x *scrubbing) serve(ctx context.Context) error {
	p, err := x.onePath()
	if err != nil {
		return err
	}
	m := x.hello
	if x.series, err = x.openSeries(p); err != nil {
		return err
	}
	if x.state, err = x.series.State(); err != nil {
		return sourceRefusal(err, p, m.Share)
	}
	defer x.state.Close()
	if x.tree, err = x.series.Open(m.Snapshot); err != nil {
		return sourceRefusal(err, m.Snapshot, m.Share)
	}
	defer x.tree.Close()
	x.admit()
	start := time.Now()
	x.reported = start
	done := make(chan error, 1)
	go atIdlePriority(func() { done <- x.scrub(ctx) })
	if err = <-done; err == nil {
		err = x.series.NoteDamage(m.Snapshot, x.damage)
	}
	x.server.log.With("client", x.peer.label,
		"share", m.Share, "series", seriesPath(p), "snapshot", m.Snapshot).
		Info("scrub ends", "seconds", time.Since(start).Seconds(),
			"files", x.files, "same", x.same, "damaged", len(x.damage), "error", err)
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
	in := seriesPath(p)
	scope, err := x.scopeFor(access.Read, path.Join(in, x.hello.Snapshot))
	if err != nil {
		return nil, err
	}
	series, err := scope.Series(access.Names, in)
	if err != nil {
		return nil, sourceRefusal(err, p, x.hello.Share)
	}
	return series, nil
}

// scrub reports every entry that failed, differs, is missing, or is there without a note.
func (x *scrubbing) scrub(ctx context.Context) error {
	x.damage = snapshot.Damage{}
	if err := x.countFiles(); err != nil {
		return err
	}
	_, err := snapshot.Failures(x.state, x.hello.Snapshot, func(path, why string) error {
		return x.report(session.Lacking, path, why)
	})
	if err != nil {
		return err
	}
	if err := x.digests(func(path string, want [32]byte) error {
		return x.compareDigest(ctx, path, want)
	}); err != nil {
		return err
	}
	if err := x.links(func(first, path string) error {
		return x.compareLink(ctx, first, path)
	}); err != nil {
		return err
	}
	if err := x.findExtra(ctx); err != nil {
		return err
	}
	return x.progress(true)
}

// countFiles counts the noted files, so that the client learns how far the scrub is.
func (x *scrubbing) countFiles() error {
	if err := x.digests(func(string, [32]byte) error { x.total++; return nil }); err != nil {
		return err
	}
	if err := x.links(func(string, string) error { x.total++; return nil }); err != nil {
		return err
	}
	return x.progress(true)
}

// digests visits the noted files with their digests.
func (x *scrubbing) digests(visit func(path string, digest [32]byte) error) error {
	return snapshot.Digests(x.state, x.hello.Snapshot, visit)
}

// links visits the noted hard links, each with the first name of its file.
func (x *scrubbing) links(visit func(first, path string) error) error {
	return snapshot.Links(x.state, x.hello.Snapshot, visit)
}

func (x *scrubbing) compareDigest(ctx context.Context, path string, want [32]byte) error {
	x.files++
	got, id, err := x.digest(ctx, path)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	x.bytes += id.Size
	return x.judge(path, err, got == want)
}

func (x *scrubbing) compareLink(ctx context.Context, first, path string) error {
	x.files++
	a, err := x.tree.Stat(path)
	b, firstErr := x.tree.Stat(first)
	if err == nil && firstErr != nil {
		return x.damaged(session.Different, path, "not the same file as "+first+" any more")
	}
	same := err == nil && a.Kind == disk.File && a.ID == b.ID
	if err == nil && !same && a.Kind == disk.File { // a copy, where it could not be linked
		got, _, readErr := x.digest(ctx, path)
		want, _, firstErr := x.digest(ctx, first)
		same, err = got == want, errors.Join(readErr, firstErr)
	}
	return x.judge(path, err, same)
}

// digest reads a file. It pings the client meanwhile.
func (x *scrubbing) digest(ctx context.Context, path string) ([32]byte, disk.Identity, error) {
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(verifyPing)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case now := <-tick.C:
				_ = x.send(&wire.Ping{Time: now.UnixNano()})
			}
		}
	}()
	digest, id, err := x.tree.Digest(ctx, path)
	close(stop)
	<-stopped
	return digest, id, err
}

// judge counts a file, and reports it unless it is as noted.
func (x *scrubbing) judge(path string, err error, same bool) error {
	switch {
	case err == nil && same:
		x.same++
		return x.progress(false)
	case err == nil:
		return x.damaged(session.Different, path, "content")
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, disk.ErrNotFolder),
		errors.Is(err, disk.ErrUnsupportedKind):
		return x.damaged(session.Missing, path, "")
	}
	return x.damaged(session.Unreadable, path, err.Error())
}

// damaged reports a file that is not as noted, and keeps it for the notes on the series.
func (x *scrubbing) damaged(what session.Finding, path, text string) error {
	x.damage[path] = snapshot.DamagedSince(string(what), time.Now())
	return x.report(what, path, text)
}

func (x *scrubbing) report(what session.Finding, path, text string) error {
	return x.send(&wire.Warning{What: string(what), Path: path, Text: text, Count: 1})
}

// progress reports the progress, but not too often unless it is the last time.
func (x *scrubbing) progress(last bool) error {
	now := time.Now()
	if !last && now.Sub(x.reported) < scrubEvery {
		return nil
	}
	x.reported = now
	return x.send(&wire.Sample{Values: []wire.Value{
		{Name: session.ScrubTotal, Value: x.total},
		{Name: session.ScrubFiles, Value: x.files},
		{Name: session.ScrubBytes, Value: x.bytes},
		{Name: session.ScrubSame, Value: x.same},
	}})
}

func (x *scrubbing) send(m wire.Message) error {
	_ = x.conn.SetWriteDeadline(time.Now().Add(session.VerifyPatience))
	_, err := x.conn.Write(wire.Append(nil, m))
	return err
}

// findExtra reports files that were not noted.
func (x *scrubbing) findExtra(ctx context.Context) error {
	x.unnoted = make(map[string]struct{})
	err := x.tree.Walk(ctx, ".", disk.WalkOptions{}, func(m disk.Meta) error {
		if m.Kind != disk.File {
			return x.progress(false)
		}
		x.unnoted[m.Path] = struct{}{}
		if len(x.unnoted) < extraAtOnce {
			return nil
		}
		return x.reportUnnoted()
	}, func(string, error) {})
	if err != nil {
		return err
	}
	return x.reportUnnoted()
}

// reportUnnoted looks the collected paths up in the notes, and reports those that are not there.
func (x *scrubbing) reportUnnoted() error {
	err := x.digests(func(path string, _ [32]byte) error { delete(x.unnoted, path); return nil })
	if err == nil {
		err = x.links(func(_, path string) error { delete(x.unnoted, path); return nil })
	}
	for path := range x.unnoted {
		if err == nil {
			err = x.report(session.Extra, path, "")
		}
	}
	clear(x.unnoted)
	return err
}
