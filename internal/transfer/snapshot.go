package transfer

import (
	"errors"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

// Snapshot has a Receiver fill a tree of its own. Unchanged files are shared with those of the snapshot before; what that holds is
// never written to.
type Snapshot struct {
	Previous *disk.Tree // nil for none
	// Linked tells of a file of Previous whether it has several names there.
	Linked  func(disk.Identity) bool
	Resumed bool // an earlier session left some of it: what the sender does not have is removed
	// Publish is called once all is durable, before the sender is told. failed counts the entries that did, grave those of them whose
	// failure says something of more than the entry itself.
	Publish func(failed, grave int64) error
}

// isGrave tells of a failure whether more than one entry is concerned: that the source can't be read there, or that its name or kind can't be
// at the target, is not grave. A disk that fails, a digest that differs and a folder to be sent that can't be listed are.
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

// reuseInline is the size of files, in bytes, that are copied at once where they cannot be linked.
const reuseInline = 1 << 20

// previous returns what the previous snapshot has in the place of an entry that this one does not have.
func (v *Receiver) previous(e *receiving) (have disk.Meta, ok bool) {
	s := v.opt.Snapshot
	if s == nil || s.Previous == nil {
		return have, false
	}
	have, err := s.Previous.StatXattrs(e.meta.Path)
	return have, err == nil && have.Kind == disk.File && have.Size == e.entry.Size
}

// reuse gives an entry the content of the previous snapshot's file: by a link where all metadata is the same, for it is shared, otherwise
// by a copy. A large copy takes its time in the background, and a.Verdict stays 0.
func (v *Receiver) reuse(e *receiving, have *disk.Meta, a *wire.Answer) error {
	s := v.opt.Snapshot
	a.Verdict = wire.Same
	if err := v.take(e, 0, 1); err != nil {
		return err
	}
	if !disk.Differs(*have, e.meta, v.options(e)) && !(s.Linked != nil && s.Linked(have.ID) && v.extraLink(have)) {
		err := v.make(e, func() error { return v.tree.LinkFrom(s.Previous, e.meta.Path, e.meta.Path) })
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
		return v.copyFile(e, s.Previous, e.meta.Path)
	}
	a.Verdict = 0
	v.running.Add(1)
	go func() {
		defer v.running.Done()
		select {
		case v.hashing <- struct{}{}:
		case <-v.ctx.Done():
			return
		}
		err := v.copyFile(e, s.Previous, e.meta.Path)
		<-v.hashing
		if v.ctx.Err() != nil {
			return
		}
		e.reused = err == nil
		later := wire.Answer{Index: e.index, Verdict: wire.Same}
		v.conclude(e, &later, err)
	}()
	return nil
}
