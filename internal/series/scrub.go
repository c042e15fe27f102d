package series

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/snapshot"
)

const (
	// scrubEvery is how often Progress is called.
	scrubEvery = 500 * time.Millisecond
	// extraAtOnce bounds the paths that are looked up in the notes at a time.
	extraAtOnce = 1 << 16
)

// Scrub compares a snapshot with the digests that were noted for it.
type Scrub struct {
	// Report is called with each entry that failed, differs, is missing, or is there without a note.
	// Its error ends the scrub.
	Report func(what session.Finding, path, text string) error
	// Progress is called about twice a second, and once at the end. Its error ends the scrub.
	Progress func(ScrubCount) error

	name  string
	tree  *access.Scope
	state *os.Root // the notes on the series

	reported time.Time
	count    ScrubCount
	damage   snapshot.Damage
	unnoted  map[string]struct{} // paths of files that were not found in the notes yet
}

// ScrubCount says how far a Scrub is.
type ScrubCount struct {
	Total int64 // files that were noted
	Files int64 // of them that were read
	Bytes int64
	Same  int64 // files that are as noted
}

// Run reads a complete snapshot of a series, which tree has open, and notes in the series which
// files are damaged. It returns how many. It works and calls at low priority, on a thread of its own.
// The error is fs.ErrNotExist if its digests are not there.
func (x *Scrub) Run(ctx context.Context, in *access.Series, name string, tree *access.Scope) (damaged int, err error) {
	done := make(chan struct{})
	go atIdlePriority(func() {
		defer close(done)
		damaged, err = x.run(ctx, in, name, tree)
	})
	<-done
	return damaged, err
}

func (x *Scrub) run(ctx context.Context, in *access.Series, name string, tree *access.Scope) (damaged int, err error) {
	x.name, x.tree = name, tree
	if x.state, err = in.State(); err != nil {
		return 0, err
	}
	defer x.state.Close()
	x.reported = time.Now()
	if err := x.scrub(ctx); err != nil {
		return len(x.damage), err
	}
	return len(x.damage), in.NoteDamage(ctx, name, x.damage)
}

// Count says how far the scrub got. It is for after Run.
func (x *Scrub) Count() ScrubCount { return x.count }

func (x *Scrub) scrub(ctx context.Context) error {
	x.damage = snapshot.Damage{}
	if err := x.countFiles(); err != nil {
		return err
	}
	_, err := snapshot.Failures(x.state, x.name, func(path, why string) error {
		return x.Report(session.Lacking, path, why)
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

// countFiles counts the noted files, so that it is known how far the scrub is.
func (x *Scrub) countFiles() error {
	if err := x.digests(func(string, [32]byte) error { x.count.Total++; return nil }); err != nil {
		return err
	}
	if err := x.links(func(string, string) error { x.count.Total++; return nil }); err != nil {
		return err
	}
	return x.progress(true)
}

// digests visits the noted files with their digests.
func (x *Scrub) digests(visit func(path string, digest [32]byte) error) error {
	return snapshot.Digests(x.state, x.name, visit)
}

// links visits the noted hard links, each with the first name of its file.
func (x *Scrub) links(visit func(first, path string) error) error {
	return snapshot.Links(x.state, x.name, visit)
}

func (x *Scrub) compareDigest(ctx context.Context, path string, want [32]byte) error {
	x.count.Files++
	got, id, err := x.tree.Digest(ctx, path)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	x.count.Bytes += id.Size
	return x.judge(path, err, got == want)
}

func (x *Scrub) compareLink(ctx context.Context, first, path string) error {
	x.count.Files++
	a, err := x.tree.Stat(path)
	b, firstErr := x.tree.Stat(first)
	if err == nil && firstErr != nil {
		return x.damaged(session.Different, path, "not the same file as "+first+" any more")
	}
	same := err == nil && a.Kind == disk.File && a.ID == b.ID
	if err == nil && !same && a.Kind == disk.File { // a copy, where it could not be linked
		got, _, readErr := x.tree.Digest(ctx, path)
		want, _, firstErr := x.tree.Digest(ctx, first)
		same, err = got == want, errors.Join(readErr, firstErr)
	}
	return x.judge(path, err, same)
}

// judge counts a file, and reports it unless it is as noted.
func (x *Scrub) judge(path string, err error, same bool) error {
	switch {
	case err == nil && same:
		x.count.Same++
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
func (x *Scrub) damaged(what session.Finding, path, text string) error {
	x.damage[path] = snapshot.DamagedSince(string(what), time.Now())
	return x.Report(what, path, text)
}

// progress reports the progress, but not too often unless it is the last time.
func (x *Scrub) progress(last bool) error {
	now := time.Now()
	if !last && now.Sub(x.reported) < scrubEvery {
		return nil
	}
	x.reported = now
	return x.Progress(x.count)
}

// findExtra reports files that were not noted.
func (x *Scrub) findExtra(ctx context.Context) error {
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
func (x *Scrub) reportUnnoted() error {
	err := x.digests(func(path string, _ [32]byte) error { delete(x.unnoted, path); return nil })
	if err == nil {
		err = x.links(func(_, path string) error { delete(x.unnoted, path); return nil })
	}
	for path := range x.unnoted {
		if err == nil {
			err = x.Report(session.Extra, path, "")
		}
	}
	clear(x.unnoted)
	return err
}
