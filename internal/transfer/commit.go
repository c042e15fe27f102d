package transfer

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"time"

	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
	"lukechampine.com/blake3/guts"
)

// stagedFile is complete and has no name yet.
type stagedFile struct {
	entry *receiving
	file  *disk.Staged
}

const (
	// Staged files get their names, at the price of one sync of the file system, when there are so many, or so many bytes, or this time
	// after the first, or when everything waits for them.
	stagedFiles = 1024
	stagedBytes = 64 << 20
	stagedFor   = 200 * time.Millisecond
)

// accept counts a block that was written, or writes a whole file, and completes the file after its last one.
func (v *Receiver) accept(lap *lap, e *receiving, h *wire.BlockHeader, content []byte, ranges []disk.Range, parts []stretch, node guts.Node) {
	var staged *disk.Staged
	if h.Whole {
		if staged = v.stage(lap, e, h.Digest, content, ranges); staged == nil {
			return // it failed, or came twice
		}
	}
	v.ctrl.ack(h.Index, h.Block)
	v.mu.Lock()
	e.leaveLocked(h.Block)
	first := h.Whole || e.tree.add(h.Block, node)
	v.stats.Read += int64(h.Length)
	v.stats.Coded += int64(h.Length)
	v.stats.Raw += int64(max(h.Raw, h.Length))
	copied := int64(0)
	if h.Patch {
		for _, x := range parts {
			if x.old >= 0 {
				copied += x.n
			}
		}
	}
	if first {
		v.stats.Written += int64(len(content)) - copied
		v.stats.Copied += copied
	}
	if !h.Whole {
		e.done.add(h.Block, 1)
		if first {
			e.wroteLocked(h.Block)
		}
		v.commitLocked(e)
	}
	scattered := len(e.done) > maxRuns
	v.mu.Unlock()
	if scattered {
		v.fail(e, protocolError("its blocks come too scattered"))
	}
	if first {
		v.event(Event{Kind: Written, Index: e.index, Entry: &e.entry, Bytes: int64(len(content)), Copied: copied})
	}
	if staged != nil {
		v.add(stagedFile{e, staged})
	}
}

// endEntry learns size and digest of a file of several blocks, and which blocks have no data.
func (v *Receiver) endEntry(m *wire.EndEntry) error {
	v.mu.Lock()
	e := v.active[m.Index]
	if e == nil {
		defer v.mu.Unlock()
		if m.Index >= v.next {
			return protocolError("end of an entry that does not exist")
		}
		return nil
	}
	blocks := blocksOf(m.Size, e.entry.BlockLog)
	err := e.checkEnd(m, blocks)
	if err != nil || e.resolved {
		v.mu.Unlock()
		return err
	}
	for _, x := range m.Holes {
		if err := e.part.Skip(x.Start, x.Count); err != nil {
			v.mu.Unlock()
			v.fail(e, err)
			return nil
		}
		missing := extents{x}
		for _, have := range e.done.within(x.Start, x.Count) {
			missing.remove(have.Start, have.Count)
		}
		for _, x := range missing {
			e.tree.addRun(x.Start, x.Count, holeNode)
			e.emptyBlocks = append(e.emptyBlocks, x)
		}
	}
	e.done = e.done.union(e.emptyBlocks)
	e.blocks, e.size, e.digest = blocks, m.Size, &m.Digest
	v.commitLocked(e)
	v.mu.Unlock()
	return nil
}

// checkEnd holds the end of an entry against what is known of it.
func (e *receiving) checkEnd(m *wire.EndEntry, blocks int64) error {
	switch {
	case e.entry.Kind != wire.File || e.small() || e.hashing:
		return protocolError("entry %d has no end", m.Index)
	case e.digest != nil:
		return protocolError("entry %d ends twice", m.Index)
	case e.entry.Size >= 0 && m.Size != e.entry.Size:
		return protocolError("entry %d ends with another size", m.Index)
	case e.entry.Size < 0 && e.short >= 0 && (e.short != blocks-1 || e.shortLen != lengthOf(m.Size, e.entry.BlockLog, e.short)):
		return protocolError("entry %d ends with another size", m.Index)
	case len(e.done) > 0 && e.done[len(e.done)-1].Start+e.done[len(e.done)-1].Count > blocks:
		return protocolError("entry %d ends before its last block", m.Index)
	case len(m.Holes) > 2*maxHoles || len(m.Holes) > 0 && (!e.entry.Holes || m.Holes[len(m.Holes)-1].Start+m.Holes[len(m.Holes)-1].Count > blocks):
		return protocolError("entry %d has no such holes", m.Index)
	}
	return nil
}

// commitLocked completes a file of several blocks of which everything is there.
func (v *Receiver) commitLocked(e *receiving) {
	if e.resolved || e.checking || e.digest == nil || e.tree.count != e.blocks || v.over {
		return
	}
	e.resolved = true
	v.running.Add(1)
	go func() {
		defer v.running.Done()
		staged, err := v.commit(e)
		if err != nil {
			v.failEntry(e, err)
			return
		}
		v.add(stagedFile{e, staged})
	}()
}

// commit compares the digest and completes the file but for its name.
func (v *Receiver) commit(e *receiving) (*disk.Staged, error) {
	root, whole := e.tree.root(e.blocks)
	if e.entry.Size < 0 { // the last block of a stream is as long as it says
		last := int(e.size & (1<<e.entry.BlockLog - 1))
		whole = whole && (last == 0) == (e.short < 0) && (last == 0 || e.short == e.blocks-1 && e.shortLen == last)
	}
	if !whole || root != *e.digest {
		_ = e.part.Abort()
		return nil, wire.Errorf(wire.CodeIntegrity, "the file's digest is not the sender's")
	}
	if e.delta != nil {
		v.mu.Lock()
		shared := e.delta.shared
		v.mu.Unlock()
		err := e.delta.old.Unchanged()
		e.closeOld()
		if shared && err != nil { // after it was compared, perhaps
			_ = e.part.Abort()
			return nil, wire.Errorf(wire.CodeIntegrity, "the old file changed while it was used")
		}
	}
	if v.opt.Target.Readback {
		if err := v.readback(e); err != nil {
			return nil, err
		}
	}
	meta := e.meta
	meta.Size = e.size
	return e.part.Stage(meta)
}

// stage writes a file of one block at most and leaves its name for later. data without ranges is all of it. It returns nil if the file
// failed, or is resolved.
func (v *Receiver) stage(lap *lap, e *receiving, digest [32]byte, data []byte, ranges []disk.Range) *disk.Staged {
	v.mu.Lock()
	first := !e.resolved
	e.resolved, e.digest = true, &digest
	v.mu.Unlock()
	if !first {
		return nil
	}
	var staged *disk.Staged
	put := func() (err error) {
		staged, err = v.put(e, data, ranges)
		return err
	}
	lap.enter(Full)
	v.waitStaged()
	lap.enter(Write)
	err := v.patient(func() error { return v.make(e, put) })
	if err == nil && v.opt.Target.Readback {
		err = v.readSmall(staged, e)
	}
	if err != nil {
		v.failEntry(e, err)
		return nil
	}
	return staged
}

func (v *Receiver) put(e *receiving, data []byte, ranges []disk.Range) (*disk.Staged, error) {
	if ranges == nil {
		return v.tree.Put(e.meta, data, v.options(e))
	}
	part, err := v.tree.Partial(e.meta, 1<<e.entry.BlockLog, v.options(e))
	if err != nil {
		return nil, err
	}
	for _, r := range ranges {
		if _, err = part.WriteAt(data[r.Off:][:r.Len], r.Off); err != nil {
			break
		}
	}
	if err == nil {
		err = part.Mark(0, [32]byte{})
	}
	var staged *disk.Staged
	if err == nil {
		staged, err = part.Stage(e.meta)
	}
	if err != nil {
		_ = part.Abort()
	}
	return staged, err
}

// waitStaged waits while so many files are staged that more might be too many open files.
func (v *Receiver) waitStaged() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for len(v.staged)+v.naming >= v.stagedMax && !v.over {
		v.cond.Wait()
	}
}

// add queues a complete file for its name.
func (v *Receiver) add(s stagedFile) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.staged) == 0 {
		v.timer.Reset(stagedFor)
	}
	v.staged = append(v.staged, s)
	v.bytes += max(0, s.entry.size)
	v.flushIdleLocked()
}

// flushNow gives staged files their names without waiting for more.
func (v *Receiver) flushNow() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.flush = len(v.staged) > 0
	v.cond.Broadcast()
}

// flushIdle does so if it is time, or if nothing else is under way.
func (v *Receiver) flushIdle() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.flushIdleLocked()
}

func (v *Receiver) flushIdleLocked() {
	n := len(v.staged)
	if n == 0 || v.flush {
		return
	}
	if n >= min(stagedFiles, v.stagedMax/2) || v.bytes >= stagedBytes || v.meta.Sync != disk.SyncBatch || v.naming == 0 && v.waitingLocked() <= n {
		v.flush = true
		v.cond.Broadcast()
	}
}

// waitingLocked is how many entries are under way, without those that wait for others.
func (v *Receiver) waitingLocked() int {
	return len(v.active) - v.linksWaiting
}

// nameStaged gives staged files their names until the session is over.
func (v *Receiver) nameStaged() {
	for {
		v.mu.Lock()
		for !v.flush && !v.over {
			v.cond.Wait()
		}
		if v.over {
			v.mu.Unlock()
			return
		}
		files := v.staged
		v.staged, v.bytes, v.flush, v.naming = nil, 0, false, len(files)
		v.mu.Unlock()
		lap := v.opt.Clock.start(Name)
		v.name(files)
		lap.stop()
		v.mu.Lock()
		v.naming = 0
		v.flushIdleLocked()
		v.cond.Broadcast()
		v.mu.Unlock()
	}
}

// name makes files durable and gives them their names.
func (v *Receiver) name(files []stagedFile) {
	batch := disk.NewBatch(v.tree, v.meta)
	for _, f := range files {
		batch.Add(f.file)
	}
	for _, f := range files {
		v.keepOld(f.entry)
	}
	errs := batch.Commit()
	var placed extents
	for i, f := range files {
		if errors.Is(errs[i], disk.ErrExists) && v.opt.Target.Delete {
			if errs[i] = v.makeWay(f.entry.meta.Path); errs[i] == nil {
				batch.Add(f.file)
				errs[i] = batch.Commit()[0]
			}
		}
		if errs[i] == nil {
			placed.add(int64(f.entry.index), 1)
		}
	}
	if len(placed) > 0 {
		v.ctrl.send(&wire.Placed{Entries: placed})
	}
	for i, f := range files {
		if errs[i] != nil {
			_ = f.file.Discard()
			v.failEntry(f.entry, errs[i])
			continue
		}
		ev := Event{Kind: Committed}
		if len(f.entry.emptyBlocks) == 0 && f.entry.digest != nil {
			ev.Digest = *f.entry.digest
		}
		v.finishEntry(f.entry, ev)
	}
}

// keepOld gives what an entry is about to replace a name in the backup folder, if there is one.
func (v *Receiver) keepOld(e *receiving) {
	backup := v.opt.Target.BackupDir
	if backup == "" {
		return
	}
	defer v.moving()()
	have, err := v.tree.Stat(e.meta.Path)
	if err == nil && have.Kind != disk.Dir {
		kept := path.Join(backup, e.meta.Path)
		if err = v.take(e, 0, 1); err == nil {
			err = v.mkdir(path.Dir(kept))
		}
		if err == nil {
			err = v.tree.Link(e.meta.Path, kept)
		}
		if err != nil { // then there is a moment without the name
			err = v.tree.Remove(e.meta.Path, backup)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		v.warn(disk.Warning{Path: e.meta.Path, What: "backup", Err: err})
	}
}

// makeWay removes what is of another kind than the entry that shall be there. It counts as what Delete removes.
func (v *Receiver) makeWay(p string) error {
	have, err := v.tree.Stat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	most := v.opt.Target.MaxDelete
	n, err := v.countBelow(p, have.Kind, max(most, 0))
	if err != nil {
		return err
	}
	v.mu.Lock()
	v.removed += n
	over := most > 0 && v.removed > most
	v.mu.Unlock()
	if over {
		return wire.Errorf(wire.CodePath, "to make way for it, more than %d entries would have to be removed", most)
	}
	if err := v.tellBelow(p, have.Kind); err != nil || v.opt.Target.DryRun {
		return err
	}
	return v.remove(p)
}

// remove removes what is in the way of another kind of entry.
func (v *Receiver) remove(path string) error {
	defer v.freed()
	defer v.moving()()
	defer v.freed()
	defer v.moving()()
	err := v.tree.Remove(path, v.opt.Target.BackupDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// readback reads the file from the disk once more.
func (v *Receiver) readback(e *receiving) error {
	if err := e.part.Checkpoint(v.ctx); err != nil { // also empties the cache where it can
		return err
	}
	got, err := v.digest(e.part, e)
	if err != nil {
		return err
	}
	if got != *e.digest {
		_ = e.part.Abort()
		return errReadback
	}
	return nil
}

// readSmall is readback for a file of one block.
func (v *Receiver) readSmall(s *disk.Staged, e *receiving) error {
	got, err := v.digest(s, e)
	if err == nil && got != *e.digest {
		err = errReadback
	}
	if err != nil {
		_ = s.Discard()
	}
	return err
}

var errReadback = wire.Errorf(wire.CodeIntegrity, "read back from the disk, the file's digest is not the sender's")

// digest reads a file of the target whose size is known and digests it, but for the blocks that have no data.
func (v *Receiver) digest(f io.ReaderAt, e *receiving) (root [32]byte, err error) {
	buf := make([]byte, 1<<e.entry.BlockLog)
	var hash digest.Hasher
	var tree hashTree
	for _, x := range e.emptyBlocks {
		tree.addRun(x.Start, x.Count, holeNode)
	}
	for b := int64(0); b < e.blocks; b++ {
		if v.ctx.Err() != nil {
			return root, context.Cause(v.ctx)
		}
		if i := e.emptyBlocks.find(b); i < len(e.emptyBlocks) && e.emptyBlocks[i].Start <= b {
			b = e.emptyBlocks[i].Start + e.emptyBlocks[i].Count - 1
			continue
		}
		data := buf[:lengthOf(e.size, e.entry.BlockLog, b)]
		if err := readFull(f, data, b<<e.entry.BlockLog); err != nil {
			return root, err
		}
		hash.Reset(b << e.entry.BlockLog)
		hash.Write(data)
		tree.add(b, hash.Sum())
	}
	root, _ = tree.root(e.blocks)
	return root, nil
}
