package disk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/blockset"
)

// PartialRange is some blocks of a target under construction, of which several sessions write one range each.
// They share one Partial. Nobody else has a block of the range while it is open, and a range that is
// complete is never written again. All methods are safe for concurrent use. Close and Stage end it, and
// wait for calls in progress. Later calls return an error that matches os.ErrClosed.
type PartialRange struct {
	tree     *Tree
	path     string // in tree, which need not be that of other sessions
	opt      TargetOptions
	shared   *sharedPartial
	p        *Partial
	run      blockset.Run
	earlier  *earlierRun // what the log has of the range; nil for nothing
	complete bool        // it was when it was opened

	gate  sync.RWMutex // each use holds it for reading; held before shared.mu
	ended bool         // guarded by gate
}

// sharedPartial is a Partial whose ranges are open.
type sharedPartial struct {
	target writingTarget
	users  int // guarded by sharedPartials.mu

	mu   sync.Mutex // guards the following; held while the Partial is opened, and while it ends
	p    *Partial   // nil if there is none
	id   Identity
	open []*PartialRange
}

// sharing has the targets of which this process has ranges open.
var sharing = sharedPartials{targets: make(map[writingTarget]*sharedPartial)}

type sharedPartials struct {
	mu      sync.Mutex // guards the following
	targets map[writingTarget]*sharedPartial
}

func (s *sharedPartials) enter(x writingTarget) *sharedPartial {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.targets[x] == nil {
		s.targets[x] = &sharedPartial{target: x}
	}
	s.targets[x].users++
	return s.targets[x]
}

func (s *sharedPartials) leave(x *sharedPartial) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.users--; x.users == 0 {
		delete(s.targets, x.target)
	}
}

// PartialRange opens count blocks from start on of the partial file of the target m.Path, as Partial opens all
// of them. Ranges of the same source that do not overlap may be open at the same time, with trees and
// options of their own. Errors are those of Partial, and ErrBusy while a block of the range is in use,
// or while a range of another source is. A target without checkpoint has no ranges.
func (t *Tree) PartialRange(m Meta, blockSize int, start, count int64, opt TargetOptions) (r *PartialRange, err error) {
	p := &Partial{tree: t, path: m.Path, size: m.Size, blockSize: int64(blockSize), holes: m.Holes, opt: opt}
	if blockSize <= 0 || blockSize > 1<<30 || !p.resumable() || start < 0 || count <= 0 || start > p.blocks(m.Size)-count {
		return nil, at("open range of", m.Path, fmt.Errorf("no range of %d blocks at %d", count, start))
	}
	err = t.withParent(m.Path, func(f *folder, base string) error {
		p.dir, p.folder, p.base = f, f.root, base
		s := sharing.enter(writing.target(refOf(f.info), base))
		r = &PartialRange{tree: t, path: m.Path, opt: opt, shared: s, run: blockset.Run{Start: start, Count: count}}
		err := s.add(r, p, m.ID)
		if err != nil {
			sharing.leave(s)
		}
		return err
	})
	if err != nil {
		return nil, at("open range of", m.Path, err)
	}
	return r, nil
}

// add opens a range, and the Partial p if none is open.
func (s *sharedPartial) add(r *PartialRange, p *Partial, source Identity) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	overlaps := func(x *PartialRange) bool { return x.run.Start < r.run.End() && r.run.Start < x.run.End() }
	first := s.p == nil
	switch {
	case first:
		if err := p.open(source); err != nil {
			return err
		}
		p.dir.retain()
		p.adoptRanges()
		s.p, s.id = p, source
	case !s.isOf(p, source), slices.ContainsFunc(s.open, overlaps):
		return ErrBusy
	}
	r.p = s.p
	_, dev := fileID(p.dir.info)
	_, err := r.tree.volumes.note(dev, p.dir) // for SyncAll
	if err == nil {
		err = r.begin(!first)
	}
	if err != nil {
		s.closeUnused()
		return err
	}
	s.open = append(s.open, r)
	s.count()
	return nil
}

// isOf reports whether the open Partial is that of the target p with this source.
func (s *sharedPartial) isOf(p *Partial, source Identity) bool {
	same := source.Size == s.id.Size && source.ModTime == s.id.ModTime && source.Ino == s.id.Ino
	return same && p.size == s.p.size && p.blockSize == s.p.blockSize && p.holes == s.p.holes
}

// count sets what Usage counts of the Partial: what is there outside of ranges that sessions write, and
// have claimed. mu is held.
func (s *sharedPartial) count() {
	s.p.mu.Lock()
	rest := s.p.done.Clone()
	for _, r := range s.open {
		if !r.complete {
			rest.RemoveRun(r.run.Start, r.run.Count)
		}
	}
	bytes := s.p.bytes(&rest)
	s.p.mu.Unlock()
	writing.count(s.p.target, bytes)
}

// closeUnused closes the Partial if no range is open. mu is held.
func (s *sharedPartial) closeUnused() {
	if len(s.open) == 0 && s.p != nil {
		s.p.seal()
		_ = s.p.Close()
		s.p = nil
	}
}

// adoptRanges counts all blocks of complete ranges as finished, also those without data. Their data is to
// be read before the end, unless nobody has changed the file since the range was written.
func (p *Partial) adoptRanges() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = p.done.Union(p.ranges)
	if p.earlier == nil || p.earlier.sealed != 0 {
		return
	}
	for run := range p.ranges.All() {
		p.unread = p.unread.Union(p.earlier.have.Within(run.Start, run.Count))
	}
}

// seal notes that complete ranges are what this process wrote, or has read.
func (p *Partial) seal() {
	info, err := p.file.Stat()
	if err != nil || changeTime(info) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil && !p.ranges.Empty() && p.unread.Empty() {
		p.log.append(record{kind: recordSeal, number: changeTime(info)})
	}
}

// begin finds out what is there of the range. used says that it may have been open before.
func (r *PartialRange) begin(used bool) error {
	p := r.p
	p.mu.Lock()
	complete, done := p.ranges.Within(r.run.Start, r.run.Count), p.done.Within(r.run.Start, r.run.Count)
	p.mu.Unlock()
	if r.complete = complete.Count() == r.run.Count; r.complete {
		return nil
	}
	var have blockset.Set
	if !done.Empty() {
		if err := p.log.flush(); err != nil {
			return p.fail(err)
		}
		run := &earlierRun{latest: map[int64]int64{}, trusted: p.log.length()}
		if err := p.log.collect(run); err != nil {
			return err
		}
		have = run.have.Within(r.run.Start, r.run.Count)
		run.have, r.earlier = have, run
	}
	if p.holes && used {
		return r.empty(&have)
	}
	return nil
}

// empty empties what somebody may have written of the range without marking it.
func (r *PartialRange) empty(have *blockset.Set) error {
	err := r.p.emptyOthers(have, r.run.Start, r.run.End(), r.p.size)
	if !errors.Is(err, errNoHoles) {
		return err
	}
	for block := r.run.Start; block < r.run.End(); block++ {
		if !have.Has(block) {
			if err := r.p.empty(block); err != nil {
				return err
			}
		}
	}
	return nil
}

// Complete reports whether the range was complete when it was opened, and all others were, too.
func (r *PartialRange) Complete() (own, all bool) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	return r.complete, r.p.ranges.Count() == r.p.blocks(r.p.size)
}

// Fresh reports whether nothing is there of the target.
func (r *PartialRange) Fresh() bool {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	return r.p.done.Empty()
}

// Have returns the blocks of the range that are there, as Partial.Have does. It has none of a complete
// range.
func (r *PartialRange) Have() []Extent {
	if r.earlier == nil {
		return nil
	}
	return blockset.Runs[Extent](r.earlier.have)
}

// Recorded is Partial.Recorded for the blocks in Have.
func (r *PartialRange) Recorded(visit func(block int64, cv [32]byte) error) error {
	if r.earlier == nil {
		return nil
	}
	return at("read checkpoint of", r.p.path, r.earlier.recorded(r.p.log, visit))
}

// use calls f for count blocks from start on, unless they are outside of the range, or it is complete.
func (r *PartialRange) use(op string, start, count int64, f func() error) error {
	r.gate.RLock()
	defer r.gate.RUnlock()
	switch {
	case r.ended:
		return at(op, r.p.path, os.ErrClosed)
	case r.complete, start < r.run.Start, count < 0, start > r.run.End()-count:
		return at(op, r.p.path, fmt.Errorf("%d blocks at %d are outside of the range", count, start))
	}
	return f()
}

// ReadAt implements io.ReaderAt, for the whole target.
func (r *PartialRange) ReadAt(b []byte, off int64) (int, error) { return r.p.ReadAt(b, off) }

// WriteAt implements io.WriterAt. It refuses data outside of the range and then writes nothing.
func (r *PartialRange) WriteAt(b []byte, off int64) (n int, err error) {
	first := off / r.p.blockSize
	if off < 0 {
		first = -1
	}
	err = r.use("write", first, r.p.blocks(off%r.p.blockSize+int64(len(b))), func() (err error) {
		n, err = r.p.WriteAt(b, off)
		return err
	})
	return n, err
}

// Mark is Partial.Mark for a block of the range.
func (r *PartialRange) Mark(block int64, cv [32]byte) error {
	return r.use("mark", block, 1, func() error { return r.p.Mark(block, cv) })
}

// Drop is Partial.Drop for a block of the range.
func (r *PartialRange) Drop(block int64) error {
	return r.use("mark", block, 1, func() error { return r.p.Drop(block) })
}

// Skip is Partial.Skip for blocks of the range.
func (r *PartialRange) Skip(start, count int64) error {
	return r.use("skip", start, count, func() error { return r.p.Skip(start, count) })
}

// Forget drops all blocks of the range, of which these were marked: its content is not that of the
// source.
func (r *PartialRange) Forget(marked blockset.Set) {
	for block := range marked.Blocks() {
		_ = r.Drop(block) // if that fails, so does everything else from now on
	}
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.p.done.RemoveRun(r.run.Start, r.run.Count)
}

// Finish records durably that all of the range is there, and is what its source has. It reports whether
// all ranges are complete now. The error is ErrIncomplete if blocks are missing, and otherwise one of
// Checkpoint.
func (r *PartialRange) Finish(ctx context.Context) (all bool, err error) {
	err = r.use("complete range of", r.run.Start, r.run.Count, func() (err error) {
		all, err = r.p.finishRange(r.run)
		return at("complete range of", r.p.path, err)
	})
	if err != nil {
		return false, err
	}
	return all, r.p.Checkpoint(ctx)
}

func (p *Partial) finishRange(run blockset.Run) (all bool, err error) {
	p.gate.RLock()
	defer p.gate.RUnlock()
	if p.ended {
		return false, os.ErrClosed
	}
	x := record{kind: recordRange, number: run.Start}
	binary.LittleEndian.PutUint64(x.value[:], uint64(run.Count))
	p.mu.Lock()
	defer p.mu.Unlock()
	done := p.done.Within(run.Start, run.Count)
	switch {
	case p.err != nil:
		return false, p.err
	case done.Count() < run.Count:
		return false, fmt.Errorf("%w: %d of %d blocks", ErrIncomplete, done.Count(), run.Count)
	}
	p.ranges.AddRun(run.Start, run.Count)
	p.changes++
	p.log.append(x) // flushed by the checkpoint
	return p.ranges.Count() == p.blocks(p.size), nil
}

// Unread is what has to be read of complete ranges before Stage.
type Unread struct {
	Blocks blockset.Set // they have digests
	p      *Partial
}

// Unread returns the blocks of complete ranges that an earlier run has written, and that may not be any
// more what it wrote: the run was killed, or somebody has changed the file since. It is nil for none.
func (r *PartialRange) Unread() *Unread {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	if r.p.unread.Empty() {
		return nil
	}
	return &Unread{r.p.unread.Clone(), r.p}
}

// ReadAt implements io.ReaderAt, for the whole target.
func (u *Unread) ReadAt(b []byte, off int64) (int, error) { return u.p.ReadAt(b, off) }

// Recorded is Partial.Recorded for more than Blocks.
func (u *Unread) Recorded(visit func(block int64, cv [32]byte) error) error {
	return u.p.Recorded(visit)
}

// Done notes that all of Blocks were read. Those in bad are not as recorded, and their ranges are
// complete no more. Errors are those of Partial.Drop.
func (u *Unread) Done(bad blockset.Set) error {
	for block := range bad.Blocks() {
		if err := u.p.Drop(block); err != nil {
			return err
		}
	}
	u.p.mu.Lock()
	defer u.p.mu.Unlock()
	for run := range u.Blocks.All() {
		u.p.unread.RemoveRun(run.Start, run.Count)
	}
	return nil
}

// Checkpoint is Partial.Checkpoint.
func (r *PartialRange) Checkpoint(ctx context.Context) error { return r.p.Checkpoint(ctx) }

// AtRisk is Partial.AtRisk.
func (r *PartialRange) AtRisk() time.Duration { return r.p.AtRisk() }

// Stage is Partial.Stage for a target whose ranges are all complete, with no Unread, and with the options
// of this one. Other ranges that are open end with it.
func (r *PartialRange) Stage(m Meta) (*Staged, error) {
	r.gate.Lock()
	defer r.gate.Unlock()
	s := r.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.ended || s.p != r.p {
		return nil, at("stage", r.p.path, os.ErrClosed)
	}
	p := r.p
	p.mu.Lock()
	all := p.ranges.Count() == p.blocks(p.size) && p.unread.Empty()
	p.mu.Unlock()
	if !all {
		return nil, at("stage", p.path, ErrIncomplete)
	}
	p.gate.Lock()
	p.tree, p.opt = r.tree, r.opt
	p.gate.Unlock()
	staged, err := p.Stage(m)
	if err == nil {
		staged.path = r.path
		s.p, s.open = nil, nil // or a Partial that is opened later would wait for the others
		r.endLocked()
	}
	return staged, err
}

// Close ends the range, and keeps what is there of it, as Partial.Close does.
func (r *PartialRange) Close() error {
	r.gate.Lock()
	defer r.gate.Unlock()
	r.shared.mu.Lock()
	defer r.shared.mu.Unlock()
	r.endLocked()
	return nil
}

// Abort is Close: others may have ranges of the same target open.
func (r *PartialRange) Abort() error { return r.Close() }

// endLocked ends the range. gate and shared.mu are held.
func (r *PartialRange) endLocked() {
	if r.ended {
		return
	}
	r.ended = true
	s := r.shared
	s.open = slices.DeleteFunc(s.open, func(x *PartialRange) bool { return x == r })
	if s.p == r.p {
		s.count()
		s.closeUnused()
	}
	sharing.leave(s)
}
