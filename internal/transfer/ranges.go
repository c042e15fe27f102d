package transfer

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"

	"github.com/fxfer/fxfer/internal/blockset"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

// ErrNotRanged is the error of a file that has to be sent whole.
var ErrNotRanged = errors.New("a file of a snapshot is sent whole, to be compared with its digest")

// FileRange is a range of a file that was listed before.
type FileRange struct {
	wire.Range
	Size    int64
	ModTime time.Time
	Ino     uint64
}

// limit makes an item that of the range. It returns false if the file is not what was listed, or has no
// such range.
func (r *FileRange) limit(item *Item) (ok bool, err error) {
	x := &item.Entry
	_, ok = spanOf(&r.Range, x)
	if !ok || x.Size != r.Size || x.Ino != r.Ino || !x.Time().Equal(r.ModTime) {
		return false, nil
	}
	if item.Compare != nil {
		return false, ErrNotRanged
	}
	item.Content = &rangeContent{item.Content, r.Range}
	return true, nil
}

// rangeContent is the Content of a file of which only a range is sent. One that changes is not sent
// again: it is no refresher.
type rangeContent struct {
	Content
	of wire.Range
}

// part returns the range that is sent of a file, nil for all.
func (i *Item) part() *wire.Range {
	if c, ok := i.Content.(*rangeContent); ok {
		return &c.of
	}
	return nil
}

// spanOf returns the blocks of a range of a file, and false if the file has no such range.
func spanOf(r *wire.Range, x *wire.Entry) (span blockset.Run, ok bool) {
	if x.Kind != wire.File || x.Size <= largeFrom || r.Log < wire.MinRangeLog || r.Log > wire.MaxRangeLog ||
		r.Number > uint64(x.Size-1)>>r.Log {
		return span, false
	}
	log := r.Log - x.BlockLog // no block is larger than the least range
	span.Start = int64(r.Number) << log
	span.Count = min(1<<log, blocksOf(x.Size, x.BlockLog)-span.Start)
	return span, true
}

// span returns the blocks of the range that is sent. The Source has checked that the file has it.
func (e *sending) span() blockset.Run {
	span, _ := spanOf(e.item.part(), &e.item.Entry)
	return span
}

// outside reports whether blocks are not those of the range that is sent.
func (e *sending) outside(blocks blockset.Set) bool {
	if e.item.part() == nil {
		return false
	}
	span := e.span()
	inside := blocks.Within(span.Start, span.Count)
	return inside.Count() < blocks.Count()
}

// notNeeded returns the blocks that are not to be sent where the receiver has some: others send what is
// outside of a range.
func (e *sending) notNeeded(have blockset.Set) blockset.Set {
	if e.item.part() != nil {
		span := e.span()
		have = have.Clone()
		have.AddRun(0, span.Start)
		have.AddRun(span.End(), e.fixed-span.End())
	}
	return have
}

// partialFile is the partial file of an entry, or a range of it.
type partialFile interface {
	io.ReaderAt
	io.WriterAt
	Have() []disk.Extent
	Recorded(visit func(block int64, cv [32]byte) error) error
	Mark(block int64, cv [32]byte) error
	Drop(block int64) error
	Skip(start, count int64) error
	Checkpoint(ctx context.Context) error
	AtRisk() time.Duration
	Stage(m disk.Meta) (*disk.Staged, error)
	Close() error
	Abort() error
}

// isRange reports whether only a range of the file comes.
func (e *receiving) isRange() bool { return e.span.Count > 0 }

// ranged readies a range of a file for its data. Without verdict, all ranges are there, and the file
// lacks only its name. A file whose time is the sender's is in place: the session with the whole tree
// that follows compares the rest. One of another time may serve a delta, so that it has to come whole.
func (c *comparer) ranged(e *receiving, r *wire.Range, a *wire.Answer) error {
	x, t := &e.entry, c.target
	span, ok := spanOf(r, x)
	if !ok {
		return wire.Errorf(wire.CodeUnsupported, "it has no such range")
	}
	e.size, e.blocks, e.span = x.Size, blocksOf(x.Size, x.BlockLog), span
	if err := c.rangeTarget(e, a); a.Verdict != 0 || err != nil {
		return err
	}
	if err := c.table.takeFiles(e); err != nil {
		return err
	}
	opt := t.options(x)
	opt.Replace = t.opt.Delete
	var part *disk.PartialRange
	err := t.patient(func() error {
		return t.make(e.meta.Path, func() (err error) {
			part, err = t.tree.PartialRange(e.meta, 1<<x.BlockLog, span.Start, span.Count, opt)
			return err
		})
	})
	if err != nil {
		return err
	}
	fresh := part.Fresh()
	have, ok := e.expectBlocks(part, nil)
	if !ok { // it failed at the sender meanwhile
		_ = part.Close()
		return errClosed
	}
	// While this session waited for another one, that may have given the file its name.
	if err := c.rangeTarget(e, a); a.Verdict != 0 || err != nil {
		return err
	}
	switch own, all := part.Complete(); {
	case all:
		return nil
	case own:
		a.Verdict = wire.Skip
		return nil
	}
	a.Verdict, a.Have = wire.Need, have
	all := bytesOf(blockset.Of([]blockset.Run{span}), x.Size, x.BlockLog) // what is there of it counts nowhere else
	if fresh {                                                            // the whole file has to fit
		return t.usage.takeBeside(e, all, 1, x.Size-all)
	}
	return t.usage.take(e, all, 0)
}

// rangeTarget decides on a range by what the target has there.
func (c *comparer) rangeTarget(e *receiving, a *wire.Answer) error {
	have, err := c.target.tree.StatTarget(e.meta.Path)
	missing := errors.Is(err, fs.ErrNotExist)
	e.lacks, e.over = missing || have.Kind != disk.File, !missing && have.Kind == disk.File
	switch {
	case missing:
		return nil
	case err != nil:
		return err
	case have.Kind == disk.Dir && !c.target.opt.Delete:
		return disk.ErrExists
	case have.Kind != disk.File:
		return nil
	case have.Size == e.entry.Size && have.ModTime.Equal(e.entry.Time()):
		a.Verdict = wire.Same
		return nil
	}
	return wire.Errorf(wire.CodeTaken, "an older version is there")
}

// finishRange ends the entry of a range that is there, which the caller has resolved. The last range
// completes its file.
func (v *Receiver) finishRange(e *receiving) {
	part := e.partial().(*disk.PartialRange)
	if !e.matches() {
		part.Forget(e.marked())
		v.failEntry(e, wire.Errorf(wire.CodeIntegrity, "the digest of the range differs from the sender's"))
		return
	}
	all, err := part.Finish(v.side.ctx)
	switch {
	case err != nil:
		v.failEntry(e, err)
	case all:
		v.nameRanges(e)
	default:
		v.leaveRange(e)
	}
}

// leaveRange leaves a range to the sessions that have the others.
func (v *Receiver) leaveRange(e *receiving) {
	e.leavePart(false) // before the sender hears of it
	v.send(&wire.Answers{Answers: []wire.Answer{{Index: e.index, Verdict: wire.Skip}}})
	v.finishEntry(e, Event{Kind: Skipped})
}

// stageRange completes a file whose ranges were all there when its entry came.
func (v *Receiver) stageRange(e *receiving) {
	if e.resolve() {
		v.side.running.Go(func() {
			defer v.side.checking()()
			v.nameRanges(e)
		})
	}
}

// nameRanges completes a file whose ranges are all there. Each range was compared when it was written.
func (v *Receiver) nameRanges(e *receiving) {
	part := e.partial().(*disk.PartialRange)
	meta := e.meta
	meta.Size = e.size
	var staged *disk.Staged
	err := v.readRanges(e, part.Unread())
	if err == nil {
		staged, err = part.Stage(meta)
	}
	switch {
	case errors.Is(err, fs.ErrClosed), errors.Is(err, disk.ErrIncomplete): // another session does it, or has found damage
		v.leaveRange(e)
	case err != nil:
		v.failEntry(e, err)
	default:
		v.committer.add(stagedFile{e, staged})
	}
}

// readRanges reads what complete ranges may have lost since they were written. What is damaged comes again,
// with the range of the entry or with the session that has the whole tree.
func (v *Receiver) readRanges(e *receiving, unread *disk.Unread) error {
	if unread == nil {
		return nil
	}
	bad, err := readAgain(v.side.ctx, e, unread, unread.Blocks.Clone())
	if err == nil {
		err = unread.Done(bad)
	}
	if err == nil && !bad.Empty() {
		v.side.counts.rejected.Add(bad.Count())
		err = wire.Errorf(wire.CodeIntegrity, "%d blocks that were complete have changed on the disk, and have to come again", bad.Count())
	}
	return err
}
