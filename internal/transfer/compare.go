package transfer

import (
	"errors"
	"io/fs"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

// compareEvents hears a verdict that comes later than the others of its message. Receiver
// implements it.
type compareEvents interface {
	conclude(*receiving, *wire.Answer, error)
}

// comparer compares entries with what the target has, and makes what needs no data.
type comparer struct {
	side   *side
	target *target
	table  *table
	links  *linker
	offers *offers
	events compareEvents
	slots  chan struct{} // bounds the files that are read or copied at a time
}

// isSameFile reports whether the target has a file already, and nothing is to be done about it. It
// leaves files of several names, and what may take long, to decide.
func (c *comparer) isSameFile(x *wire.Entry, want, have *disk.Meta) bool {
	opt := &c.target.opt.Compare
	return x.Kind == wire.File && have.Kind == disk.File && x.Size == have.Size &&
		have.ModTime.Equal(want.ModTime) && !x.Named && have.Nlink < 2 &&
		!opt.Checksum && !opt.IgnoreExisting &&
		!c.target.isDamaged(have.ID) && !c.target.differs(have, want, x)
}

// decide sets the verdict on an entry. Without verdict, that comes later. have is what the target
// has there, or err says why that is not known.
func (c *comparer) decide(e *receiving, have disk.Meta, err error, a *wire.Answer) error {
	x, t := &e.entry, c.target
	missing := errors.Is(err, fs.ErrNotExist)
	e.lacks, e.over = missing || have.Kind != e.meta.Kind, !missing && have.Kind == disk.File
	switch {
	case errors.Is(err, disk.ErrNotFolder) && t.opt.Delete && t.opt.DryRun: // something above it would be replaced
		missing = true
	case err != nil && !missing:
		return err
	}
	if x.Alias != "" {
		if err := checkFirst(e, x.Alias); err != nil {
			return err
		}
	}
	switch {
	case leftOut(x, &t.opt.Compare, &have, missing):
		a.Verdict = wire.Skip
	case x.Kind == wire.File:
		return c.file(e, &have, missing, a)
	case x.Kind == wire.Hardlink:
		return c.links.link(e, &have, missing, a)
	case c.isSame(e, &have, missing):
		a.Verdict = wire.Same
	case t.opt.DryRun:
		c.wouldChange(e, &have, missing, a)
	default:
		a.Verdict = wire.Done
		return c.create(e, &have)
	}
	return nil
}

// leftOut reports whether an entry is left as it is.
func leftOut(x *wire.Entry, c *wire.Compare, have *disk.Meta, missing bool) bool {
	if missing {
		return c.Existing
	}
	newer := x.Kind == wire.File && have.Kind == disk.File && have.ModTime.After(x.Time())
	return c.IgnoreExisting && x.Kind != wire.Dir || c.Update && newer
}

// isSame reports whether the target has an entry that is no file already. The time of a folder
// differs while it is filled, so a folder is never the same.
func (c *comparer) isSame(e *receiving, have *disk.Meta, missing bool) bool {
	x := &e.entry
	if missing || have.Kind != e.meta.Kind || x.Kind == wire.Dir || x.Kind == wire.Symlink && have.Link != x.Link {
		return false
	}
	return c.links.hasNames(e, have) && !c.target.differs(have, &e.meta, x)
}

// create makes what needs no data. have is what the target has there.
func (c *comparer) create(e *receiving, have *disk.Meta) error {
	x, t := &e.entry, c.target
	switch x.Kind {
	case wire.Dir:
		return c.createFolder(e, have)
	case wire.Symlink, wire.Fifo, wire.CharDevice, wire.BlockDevice, wire.Socket:
		if err := t.usage.take(e, 0, 1); err != nil {
			return err
		}
		t.keepOld(e)
		if linked, err := c.links.linkAlias(e); linked || err != nil {
			return err
		}
		return t.make(e.meta.Path, func() error {
			if x.Kind == wire.Symlink {
				return t.tree.Symlink(e.meta, t.options(x))
			}
			return t.tree.Special(e.meta, t.options(x))
		})
	case wire.File, wire.Hardlink, wire.Share:
	}
	return wire.Errorf(wire.CodeUnsupported, "kind %d of entry", x.Kind)
}

// createFolder makes a folder. It gets its metadata when all in it is resolved.
func (c *comparer) createFolder(e *receiving, have *disk.Meta) (err error) {
	t := c.target
	if e.lacks {
		if err := t.usage.take(e, 0, t.lacking(e.meta.Path)); err != nil {
			return err
		}
	}
	if !e.lacks && have.Mode&0o700 == 0o700 { // it is there, and open to its owner
		err = t.tree.MayTarget(e.meta.Path)
	} else {
		err = t.make(e.meta.Path, func() error { return t.tree.Mkdir(e.meta.Path, e.meta.Mode) })
	}
	if err == nil {
		c.table.enterFolder(&folder{index: e.index, entry: e.entry, meta: e.meta, held: e.held})
	}
	return err
}

// wouldChange answers in a dry run for an entry that is not a file.
func (c *comparer) wouldChange(e *receiving, have *disk.Meta, missing bool, a *wire.Answer) {
	switch {
	case missing || have.Kind != e.meta.Kind:
		a.Verdict, a.New = wire.Lack, missing
		if !missing && have.Kind == disk.Dir && c.target.opt.Delete {
			_ = c.target.remover.makeWay(e.meta.Path) // reports what it would remove
		}
	case c.target.differs(have, &e.meta, &e.entry):
		a.Verdict = wire.Meta
	case e.meta.Kind == disk.Dir:
		a.Verdict = wire.Same
	default: // it has other names
		a.Verdict = wire.Lack
	}
}

// file decides on a file.
func (c *comparer) file(e *receiving, have *disk.Meta, missing bool, a *wire.Answer) error {
	x, opt := &e.entry, &c.target.opt
	e.size, e.blocks = x.Size, -1
	if x.Size >= 0 {
		e.blocks = blocksOf(x.Size, x.BlockLog)
	}
	there := !missing && have.Kind == disk.File && have.Size == x.Size && !c.target.isDamaged(have.ID)
	switch {
	case !missing && have.Kind == disk.Dir && !opt.Delete:
		return disk.ErrExists
	case there && opt.Compare.Checksum:
		c.hash(e)
		return nil
	case there && have.ModTime.Equal(x.Time()) && !c.links.extra(have):
		return c.keepContent(e, have, a)
	case opt.DryRun:
		c.wouldChange(e, have, missing, a)
		a.Verdict, a.New = wire.Lack, missing
		return nil
	}
	if missing {
		if old, ok := c.target.previous(e); ok && opt.Compare.Checksum {
			c.hash(e)
			return nil
		} else if ok && old.ModTime.Equal(x.Time()) {
			return c.reuse(e, &old, a)
		}
	}
	return c.prepare(e, a)
}

// keepContent leaves the content of a file as it is, and sets its metadata.
func (c *comparer) keepContent(e *receiving, have *disk.Meta, a *wire.Answer) error {
	t, opt := c.target, c.target.options(&e.entry)
	a.Verdict = wire.Same
	switch {
	case !disk.Differs(have, &e.meta, &opt):
		return nil
	case t.opt.DryRun:
		a.Verdict = wire.Meta
		return nil
	case t.snapshot != nil && have.Nlink > 1: // the other names may be those of older snapshots
		return c.copyHere(e, t.tree)
	}
	return t.tree.Apply(e.meta, opt)
}

// copyHere makes an entry with the content that a tree has at its path.
func (c *comparer) copyHere(e *receiving, tree *access.Scope) error {
	defer c.side.checking()()
	return c.target.copyFile(e, e.meta, c.target.options(&e.entry), tree, e.meta.Path)
}

// prepare readies a file for its data. One of several blocks gets its partial file, of which an
// earlier run may have left some.
func (c *comparer) prepare(e *receiving, a *wire.Answer) error {
	a.Verdict = wire.Need
	take := func() error { return c.target.usage.take(e, max(0, e.entry.Size), 1) }
	err := take()
	if err != nil && c.target.removeEarly(e) {
		err = take()
	}
	if err != nil {
		return err
	}
	if e.blocks == 0 || e.blocks == 1 { // written when its data is there
		e.expectWhole()
		return nil
	}
	if err := c.table.takeFiles(e); err != nil {
		return err
	}
	part, err := c.target.openPart(e)
	if errors.Is(err, disk.ErrNoSpace) && c.target.removeEarly(e) {
		part, err = c.target.openPart(e)
	}
	if err != nil {
		return err
	}
	old := c.offers.open(e, e.blocks)
	have, ok := e.expectBlocks(part, old)
	if !ok { // the sender gave it up while its content was compared
		_ = part.Close()
		old.close()
		return errClosed
	}
	if a.Have = have; old != nil {
		a.Delta, a.Old = old.how, old.size
	}
	return nil
}

// hash reads what the target has in the background, and lets the sender compare it.
func (c *comparer) hash(e *receiving) {
	e.startHashing() // before data streams know of it
	c.side.running.Go(func() {
		if !c.side.slot(c.slots) {
			return
		}
		digest, err := c.digestOf(e)
		<-c.slots
		if c.side.over() {
			return
		}
		if err != nil { // there is nothing to compare
			c.afterCompare(e, false)
			return
		}
		e.setHashed(true)
		a := wire.Answer{Index: e.index, Verdict: wire.Hash, Digest: digest}
		c.side.pump.send(&wire.Answers{Answers: []wire.Answer{a}})
	})
}

// digestOf reads a whole file of the target.
func (c *comparer) digestOf(e *receiving) (digest [32]byte, err error) {
	defer c.side.checking()()
	f, err := c.target.tree.OpenFile(e.meta.Path)
	if previous := c.target.previousTree(); previous != nil && errors.Is(err, fs.ErrNotExist) {
		f, err = previous.OpenFile(e.meta.Path)
	}
	if err != nil {
		return digest, err
	}
	defer f.Close()
	return c.target.digest(f, e.entry.Size, e.entry.BlockLog, e.empty)
}

// compared takes the sender's answer whether its file is what the target has. e is nil if it failed
// meanwhile.
func (c *comparer) compared(e *receiving, m *wire.Compared) error {
	if e == nil {
		return nil
	}
	if !e.setHashed(false) {
		return protocolError("entry %d is compared without a question", m.Index)
	}
	c.afterCompare(e, m.Same)
	return nil
}

// afterCompare answers for an entry once it is known whether its content is the same.
func (c *comparer) afterCompare(e *receiving, same bool) {
	a := wire.Answer{Index: e.index}
	var err error
	switch {
	case same:
		err = c.sameContent(e, &a)
	case c.target.opt.DryRun:
		a.Verdict = wire.Lack
	default:
		err = c.prepare(e, &a)
	}
	if err == nil && a.Verdict == 0 {
		return // a copy is under way
	}
	c.events.conclude(e, &a, err)
}

// sameContent decides on a file that has the sender's content, in the target or in the previous
// snapshot.
func (c *comparer) sameContent(e *receiving, a *wire.Answer) error {
	have, err := c.target.tree.StatXattrs(e.meta.Path)
	if errors.Is(err, fs.ErrNotExist) {
		if old, ok := c.target.previous(e); ok {
			return c.reuse(e, &old, a)
		}
	}
	switch {
	case err != nil:
		return err
	case c.links.extra(&have) && !c.target.opt.DryRun:
		return c.prepare(e, a)
	}
	return c.keepContent(e, &have, a)
}
