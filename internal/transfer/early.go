package transfer

import (
	"context"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/blockset"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

// EarlyBlock is the unit in which files are sent while they grow, in bytes, and EarlyLeast what of a
// file is sent at least.
const (
	EarlyBlock = 1 << maxBlockLog
	EarlyLeast = largeFrom
)

// EarlySource is a Source of files that still grow. What is sent of them is not compared with
// anything: it only serves the delta of the file that is complete.
type EarlySource struct {
	Tree *access.Scope
	// Next waits for the next file that has grown. It returns how much of it is to be there in the
	// end, at least EarlyLeast. It returns false when there is nothing more to do, or ctx has ended. A
	// file must not come again before its entry has ended.
	Next func(ctx context.Context) (path string, size int64, ok bool)
}

// Walk implements Source.
func (s *EarlySource) Walk(ctx context.Context, visit func(Item) error, failed func(string, error)) error {
	for {
		path, size, ok := s.Next(ctx)
		if !ok {
			return nil
		}
		m, err := s.Tree.Stat(path)
		if err != nil {
			failed(path, err)
			continue
		}
		m.Size, m.Holes, m.Xattrs, m.XattrErr = size-size%EarlyBlock, false, nil, nil
		item := Item{Entry: EntryOf(m, path), Early: true, Content: earlyFile{s.Tree, path, m.ID}}
		item.Entry.BlockLog = maxBlockLog
		if err := visit(item); err != nil {
			return err
		}
	}
}

// Single implements Source.
func (*EarlySource) Single() bool { return false }

// Folders implements Source.
func (*EarlySource) Folders() []string { return nil }

// Has implements Source.
func (*EarlySource) Has(string) (bool, error) { return true, nil }

// earlyFile is the Content of a file that may change while it is read, but not be replaced.
type earlyFile struct {
	tree *access.Scope
	path string
	id   disk.Identity
}

// Open implements Content.
func (f earlyFile) Open() (File, error) {
	file, err := f.tree.OpenFile(f.path)
	if err != nil {
		return nil, err
	}
	if now := file.Identity(); now.Ino != f.id.Ino || now.Dev != f.id.Dev {
		_ = file.Close()
		return nil, disk.ErrChanged
	}
	return file, nil
}

// early readies the beginning of a file that still grows for its data. found says why the target has
// no file of this name. It takes none that is there, for which that is the old version of a delta.
func (c *comparer) early(e *receiving, found error, a *wire.Answer) error {
	x, t := &e.entry, c.target
	e.size, e.blocks, e.lacks = x.Size, blocksOf(x.Size, x.BlockLog), true
	switch {
	case x.Kind != wire.File || x.Size < EarlyLeast || x.Size%EarlyBlock != 0 || x.BlockLog != maxBlockLog || x.Holes:
		return wire.Errorf(wire.CodeUnsupported, "not the beginning of a file that grows")
	case found == nil:
		return wire.Errorf(wire.CodeTaken, "an older version is there")
	case !isMissing(found):
		return found
	}
	if err := c.table.takeFiles(e); err != nil {
		return err
	}
	var part *disk.Partial
	err := t.patient(func() error {
		return t.make(e.meta.Path, func() (err error) {
			part, err = t.tree.Early(e.meta, EarlyBlock, t.meta)
			return err
		})
	})
	if err != nil {
		return err
	}
	have, ok := e.expectBlocks(part, nil)
	if !ok { // it failed at the sender meanwhile
		_ = part.Close()
		return errClosed
	}
	there := bytesOf(blockset.Of(have), x.Size, x.BlockLog)
	entries := int64(1)
	if there > 0 {
		entries = 0
	}
	if a.Verdict, a.Have = wire.Need, have; there == x.Size {
		a.Verdict, a.Have = wire.Skip, nil
	}
	return t.usage.takeBeside(e, x.Size-there, entries, x.Size)
}

// removeEarly removes what came of the file of an entry while it grew, since the file has its name
// now, or there is not room for both. It reports whether there was anything.
func (t *target) removeEarly(e *receiving) bool {
	if e.size < EarlyLeast || t.snapshot != nil {
		return false
	}
	removed, _ := t.tree.RemoveEarly(e.meta.Path) // otherwise Sweep finds it
	if removed {
		t.usage.freed()
	}
	return removed
}

// keepEarly ends the entry of a file that still grows, once all that was announced is there.
func (v *Receiver) keepEarly(e *receiving) {
	if v.side.over() || !e.isThere() || !e.resolve() {
		return
	}
	e.leavePart(false) // before the next entry of this file
	v.send(&wire.Answers{Answers: []wire.Answer{{Index: e.index, Verdict: wire.Skip}}})
	v.finishEntry(e, Event{Kind: Skipped})
}

// isThere reports whether all blocks are there.
func (e *receiving) isThere() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.done.Count() == e.blocks
}
