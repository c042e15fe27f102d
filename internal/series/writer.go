// Package series fills snapshots, lists them, and reads them again. A server does that for clients
// that send, and a client for what it gets. Who may do so was decided before: both hand over a
// series that internal/access has opened.
package series

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"slices"
	"time"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/internal/wire"
)

// Options say what a Writer does.
type Options struct {
	Log       *slog.Logger
	Name      string // of the snapshot
	MaxFailed int64  // entries that may fail
	// Keep applies when the snapshot is complete. The zero Keep keeps all.
	Keep snapshot.Keep
	// Removed is told about each snapshot that Keep removes; nil with the zero Keep.
	Removed func(name string, err error)
}

// Writer fills a snapshot, publishes it, and removes those that are not to be kept. Its methods are
// called one after the other.
type Writer struct {
	ctx    context.Context // of the session
	opt    Options
	log    *slog.Logger
	series *access.Series // locked

	tree         *access.Scope
	resumed      bool     // an earlier session has filled a part
	state        *os.Root // the notes on the series
	ledger       *snapshot.Ledger
	previous     *access.Scope // nil if there is no previous snapshot
	previousName string        // "" if there is none
	linked       map[disk.Identity]struct{}
	damaged      map[disk.Identity]struct{} // files of the previous snapshot, see isDamaged

	// Counted by event.
	failed      int64 // entries that failed and were noted
	there       int64 // entries that did not fail, without the top folder
	topMetadata bool  // the top folder came with metadata

	published bool
}

// Open opens the snapshot that is to be filled, which may have been begun before. The series is
// locked, and Close closes it, also if Open fails: then it is closed at once. The error is
// fs.ErrExist if the snapshot is complete.
func Open(ctx context.Context, s *access.Series, opt Options) (*Writer, error) {
	w := &Writer{ctx: ctx, opt: opt, log: opt.Log, series: s}
	if err := w.open(); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Tree is where the snapshot is filled. It is closed by Publish and by Close.
func (w *Writer) Tree() *access.Scope { return w.tree }

// Snapshot tells a transfer.Receiver about the snapshot. It calls publish at the end.
func (w *Writer) Snapshot(publish func(failed, grave int64) error) *transfer.Snapshot {
	return &transfer.Snapshot{
		Previous: w.previous, Linked: w.isLinked, Damaged: w.isDamaged,
		Resumed: w.resumed, Publish: publish,
	}
}

func (w *Writer) open() (err error) {
	if w.tree, w.resumed, err = w.series.Fill(w.opt.Name); err != nil {
		return err
	}
	complete, _, err := w.series.Snapshots()
	if err != nil {
		return err
	}
	if n := len(complete); n > 0 {
		w.previousName = complete[n-1]
		if w.previous, err = w.series.Previous(w.previousName); err != nil {
			return err
		}
	}
	if w.state, err = w.series.State(); err != nil {
		return err
	}
	if err := errors.Join(w.readLinked(), w.readDamaged()); err != nil {
		return err
	}
	w.ledger, err = snapshot.OpenLedger(w.state, w.opt.Name)
	return err
}

// readLinked notes which files of the previous snapshot have several names in it.
func (w *Writer) readLinked() error {
	w.linked = make(map[disk.Identity]struct{})
	if w.previous == nil {
		return nil
	}
	err := snapshot.Links(w.state, w.previousName, func(_, path string) error {
		if m, err := w.previous.Stat(path); err == nil {
			w.linked[disk.Identity{Ino: m.ID.Ino, Dev: m.ID.Dev}] = struct{}{}
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (w *Writer) isLinked(id disk.Identity) bool {
	_, ok := w.linked[disk.Identity{Ino: id.Ino, Dev: id.Dev}]
	return ok
}

// readDamaged notes which files of the previous snapshot are known to be damaged.
func (w *Writer) readDamaged() error {
	w.damaged = make(map[disk.Identity]struct{})
	if w.previous == nil {
		return nil
	}
	files, err := w.series.Damaged(w.previousName)
	for _, id := range files {
		w.damaged[id] = struct{}{}
	}
	return err
}

// isDamaged reports whether a file is known to be damaged, here or in the previous snapshot.
func (w *Writer) isDamaged(id disk.Identity) bool {
	_, ok := w.damaged[disk.Identity{Ino: id.Ino, Dev: id.Dev}]
	return ok
}

// Event notes in the ledger what the snapshot holds.
func (w *Writer) Event(e *transfer.Event) {
	x := e.Entry
	isTop := x != nil && x.Path == "."
	switch e.Kind {
	case transfer.Committed, transfer.Same:
		w.there++
	case transfer.Done:
		if !isTop {
			w.there++
		}
	}
	switch {
	case x == nil:
	case e.Kind == transfer.Failed:
		if w.failed < wire.MaxAllowFailed { // with more, the snapshot is not published
			w.failed++
			w.ledger.Failed(x.Path, wire.Printable(e.Err.Error()))
		}
	case e.Kind == transfer.Done && x.Kind == wire.Dir && isTop:
		w.topMetadata = true
	case e.Kind == transfer.Done && x.Kind == wire.Hardlink:
		w.ledger.Link(x.Path, x.Link)
	case e.Kind == transfer.Done:
		w.ledger.Other(x.Path)
	case x.Kind != wire.File:
	case e.Kind == transfer.Committed && e.Digest == [32]byte{}:
		w.ledger.Sparse(x.Path)
	case e.Kind == transfer.Committed:
		w.ledger.Committed(x.Path, e.Digest)
	case e.Kind == transfer.Same && e.Reused:
		w.ledger.Reused(x.Path)
	case e.Kind == transfer.Same:
		w.ledger.Same(x.Path)
	}
}

// Publish makes the snapshot visible if it is complete, but for the entries that may fail. grave
// counts the failures that are never allowed.
func (w *Writer) Publish(failed, grave int64) (h access.Healed, err error) {
	if err := w.checkFailed(failed, grave); err != nil {
		return h, err
	}
	if failed > 0 {
		if err := w.clear(); err != nil {
			return h, err
		}
		w.log.Warn("snapshot lacks entries that failed",
			"snapshot", w.opt.Name, "failed", failed, "allowed", w.opt.MaxFailed)
	}
	err = w.ledger.Finish(w.previousName, w.shares, func(path string) ([32]byte, error) {
		return w.tree.Note(w.ctx, path)
	})
	if err != nil {
		return h, err
	}
	h, err = w.series.Publish(w.ctx, w.opt.Name, w.previousName, w.tree, w.topMetadata)
	w.published = err == nil
	return h, err
}

// shares reports whether the snapshot shares a file with the previous one.
func (w *Writer) shares(path string) bool {
	if w.previous == nil {
		return false
	}
	now, err := w.tree.Stat(path)
	old, oldErr := w.previous.Stat(path)
	return err == nil && oldErr == nil && now.ID.Ino != 0 && now.ID.Ino == old.ID.Ino && now.ID.Dev == old.ID.Dev
}

func (w *Writer) checkFailed(failed, grave int64) error {
	switch {
	case failed > 0 && w.opt.MaxFailed > 0 && grave > 0:
		return wire.Errorf(wire.CodeIncomplete,
			"the snapshot %s lacks %s that failed, %d of them for reasons that "+
				"can't be allowed, and stays invisible: remove the cause and try again",
			w.opt.Name, units.Count(failed, "entry", "entries"), grave)
	case failed > w.opt.MaxFailed || failed > 0 && w.there == 0:
		return wire.Errorf(wire.CodeIncomplete,
			"the snapshot %s lacks %s that failed, and stays invisible: remove the cause and try again",
			w.opt.Name, units.Count(failed, "entry", "entries"))
	}
	return nil
}

// Close ends the use of the series. A snapshot that is not published stays for a later session.
func (w *Writer) Close() {
	for _, tree := range []*access.Scope{w.tree, w.previous} {
		if tree != nil {
			_ = tree.Close()
		}
	}
	if w.ledger != nil {
		_ = w.ledger.Close()
	}
	if w.state != nil {
		_ = w.state.Close()
	}
	if w.published && w.opt.Keep != (snapshot.Keep{}) {
		w.retain()
	}
	w.series.Close()
}

// retain removes the snapshots that the share's policy does not keep.
func (w *Writer) retain() {
	err := w.series.Retain(w.opt.Keep, time.Local, func(name string, err error) {
		w.log.Info("snapshot removed", "snapshot", name, "policy", w.opt.Keep.String(), "error", err)
		w.opt.Removed(name, err)
	})
	if err != nil {
		w.log.Warn("retention", "error", err)
	}
}

const (
	// clearMemory bounds the memory for the paths that clear collects, roughly, in bytes.
	clearMemory = 16 << 20
	// clearMaxOpened bounds the folders that clear makes accessible for a while.
	clearMaxOpened = 100_000
)

// clear removes what earlier sessions left and this one has not found again: an older version must
// not stay in the place of an entry that failed.
func (w *Writer) clear() (err error) {
	c := &clearing{w: w, paths: make(map[string]struct{})}
	defer func() { err = errors.Join(err, c.restore()) }()
	err = w.tree.Walk(w.ctx, ".", disk.WalkOptions{}, c.visit, func(string, error) {})
	if err == nil {
		err = c.removeOld()
	}
	if err != nil {
		return err
	}
	_, err = w.tree.Sweep(w.ctx, ".", -time.Hour)
	return err
}

// clearing is one run of clear.
type clearing struct {
	w      *Writer
	paths  map[string]struct{} // seen, and not checked yet
	size   int                 // of paths, bytes
	opened []disk.Meta         // folders that were made accessible, as they were
}

func (c *clearing) visit(m disk.Meta) error {
	// A folder that has its final mode may be closed to us.
	if m.Kind == disk.Dir && m.Mode&0o700 != 0o700 {
		if err := c.makeAccessible(m); err != nil {
			return err
		}
	}
	if m.Path == "." || !c.w.resumed {
		return nil
	}
	c.paths[m.Path] = struct{}{}
	if c.size += 128 + len(m.Path); c.size < clearMemory {
		return nil
	}
	return c.removeOld()
}

func (c *clearing) makeAccessible(m disk.Meta) error {
	if len(c.opened) == clearMaxOpened {
		return wire.Errorf(wire.CodeIncomplete,
			"entries failed, and too many folders of the snapshot are closed to this host: try again")
	}
	open := m
	open.Mode |= 0o700
	if err := c.w.tree.Apply(open, disk.TargetOptions{}); err != nil {
		return err
	}
	c.opened = append(c.opened, m)
	return nil
}

// removeOld removes those of paths that the ledger does not have.
func (c *clearing) removeOld() error {
	err := c.w.ledger.There(func(path string) { delete(c.paths, path) })
	for path := range c.paths {
		if err == nil {
			err = c.w.remove(path)
		}
	}
	clear(c.paths)
	c.size = 0
	return err
}

// restore gives folders the metadata that they had, the deepest first.
func (c *clearing) restore() (err error) {
	for _, m := range slices.Backward(c.opened) {
		applied := c.w.tree.Apply(m, disk.TargetOptions{})
		if !errors.Is(applied, fs.ErrNotExist) {
			err = errors.Join(err, applied)
		}
	}
	return errors.Join(err, c.w.tree.SyncAll())
}

// remove removes an entry, if it is there, from a folder that keeps its metadata.
func (w *Writer) remove(p string) error {
	folder, err := w.tree.Stat(path.Dir(p))
	if err == nil {
		err = w.tree.Remove(w.ctx, p)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, disk.ErrNotFolder) {
		return nil // it went with its folder
	}
	if err != nil {
		return err
	}
	return w.tree.Apply(folder, disk.TargetOptions{})
}
