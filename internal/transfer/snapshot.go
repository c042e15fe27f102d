package transfer

import (
	"errors"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

// Snapshot makes a Receiver fill a tree of its own. Unchanged files are shared with the previous
// snapshot, which is never written to.
type Snapshot struct {
	Previous *access.Scope // nil for none
	// Linked reports whether a file of Previous has several names there.
	Linked func(disk.Identity) bool
	// Damaged reports whether a file of Previous, which this tree may have too, is known to hold
	// something else than what was sent. Then it is sent anew.
	Damaged func(disk.Identity) bool
	Resumed bool // an earlier session left some of it: what the sender does not have is removed
	// Publish is called once all is durable, before the sender hears of it. failed counts the
	// entries that failed, grave those of them whose failure concerns more than the entry itself.
	Publish func(failed, grave int64) error
}

// isGrave reports whether a failure concerns more than one entry. These are not grave: the source
// cannot be read there, or the entry's name or kind is impossible at the target. These are: a disk
// that fails, a digest that differs, and a folder to be sent that cannot be listed.
func isGrave(err error) bool {
	var known *wire.Error
	if !errors.As(err, &known) {
		return true
	}
	switch known.Code {
	case wire.CodeSourceDisk, wire.CodeNotFound, wire.CodeChanged, wire.CodePath, wire.CodeUnsupported:
		return false
	default:
		return true
	}
}

// previousTree returns the tree of the previous snapshot, nil if there is none.
func (t *target) previousTree() *access.Scope {
	if t.snapshot == nil {
		return nil
	}
	return t.snapshot.Previous
}

// previous returns what the previous snapshot has in the place of a file that this one does not
// have.
func (t *target) previous(e *receiving) (have disk.Meta, ok bool) {
	tree := t.previousTree()
	if tree == nil {
		return have, false
	}
	have, err := tree.StatXattrs(e.meta.Path)
	return have, err == nil && have.Kind == disk.File && have.Size == e.entry.Size && !t.isDamaged(have.ID)
}

// isDamaged reports whether a file is known to hold something else than what was sent.
func (t *target) isDamaged(id disk.Identity) bool {
	return t.snapshot != nil && t.snapshot.Damaged != nil && t.snapshot.Damaged(id)
}

// reuseInline is up to how many bytes files are copied at once where they cannot be linked.
const reuseInline = 1 << 20

// reuse gives an entry the content of the previous snapshot's file. If all metadata is the same, it
// is a link, since links share it; otherwise a copy. A large copy is made in the background, and
// a.Verdict stays 0.
func (c *comparer) reuse(e *receiving, have *disk.Meta, a *wire.Answer) error {
	t, s := c.target, c.target.snapshot
	a.Verdict = wire.Same
	if err := t.usage.take(e, 0, 1); err != nil {
		return err
	}
	p := e.meta.Path
	same := !t.differs(have, &e.meta, &e.entry)
	if same && !(s.Linked != nil && s.Linked(have.ID) && c.links.extra(have)) {
		err := t.make(p, func() error { return t.tree.LinkFrom(s.Previous, p, p) })
		if err == nil {
			e.reused = true
			return nil
		}
		if !cannotLink(err) {
			return err
		}
	}
	if have.Size <= reuseInline {
		e.reused = true
		return c.copyHere(e, s.Previous)
	}
	a.Verdict = 0
	e.startHashing() // it has no partial file for data
	c.side.running.Go(func() {
		if !c.side.slot(c.slots) {
			return
		}
		err := c.copyHere(e, s.Previous)
		<-c.slots
		if c.side.over() {
			return
		}
		e.reused = err == nil
		c.events.conclude(e, &wire.Answer{Index: e.index, Verdict: wire.Same}, err)
	})
	return nil
}
