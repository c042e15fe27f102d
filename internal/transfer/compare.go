package transfer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

// entries answers newly announced entries.
func (v *Receiver) entries(m *wire.Entries) error {
	v.mu.Lock()
	switch {
	case !v.started, v.told, m.First != v.next:
		v.mu.Unlock()
		return protocolError("entries out of order")
	case v.pending+len(m.Entries) > announceMax+wire.MaxPath, v.held > heldMax, v.open > openMax:
		v.mu.Unlock()
		return protocolError("more entries than allowed")
	}
	v.pending++ // until the answers are sent: the end of the session must not overtake them
	v.mu.Unlock()
	var answers wire.Answers
	var resumed []resumption
	for i := range m.Entries {
		e, a := v.entry(m.First+uint64(i), &m.Entries[i])
		if v.ctx.Err() != nil {
			return errClosed
		}
		if a.Verdict != 0 {
			answers.Answers = append(answers.Answers, a)
		}
		if a.Verdict == wire.Need && (len(a.Have) > 0 || a.Delta != wire.DeltaNone) {
			resumed = append(resumed, resumption{e, slices.Clone(a.Have)})
		}
	}
	if len(answers.Answers) > 0 {
		v.ctrl.send(&answers)
	}
	for _, r := range resumed {
		v.goOn(r.entry, r.have)
	}
	v.mu.Lock()
	v.pending--
	v.mu.Unlock()
	v.flushIdle()
	v.finish()
	return nil
}

// resumption is a file that an earlier run left blocks of, or an old version.
type resumption struct {
	entry *receiving
	have  extents
}

// entry takes one entry in and returns the answer to it; one without verdict comes later. Once the answer is on its way the caller
// has the blocks of an earlier run rechecked.
func (v *Receiver) entry(index uint64, x *wire.Entry) (e *receiving, a wire.Answer) {
	a = wire.Answer{Index: index}
	e = &receiving{index: index, entry: *x, short: -1}
	err := v.place(e)
	v.mu.Lock()
	var done []*folder
	again := v.orphans[x.Path]
	delete(v.orphans, x.Path)
	if again == nil { // otherwise it comes out of order
		done = v.folders.leave(x.Path)
	}
	if again != nil {
		e.folder, e.links = again.folder, again.links
	} else if e.folder = v.folders.holder(x.Path); e.folder != nil {
		e.folder.wait++
	}
	v.pending++
	v.active[index] = e
	e.held = heldBy(x)
	v.held += e.held
	v.open += weightOf(x)
	v.mu.Unlock()
	v.setFolders(done)
	v.event(Event{Kind: Found, Index: index, Entry: &e.entry})
	if err == nil {
		err = v.decide(e, &a)
	}
	if v.endIfHopeless(err) {
		return e, wire.Answer{}
	}
	if err != nil {
		a.Verdict, a.Code, a.Text = wire.Fail, codeOf(err), err.Error()
	}
	// Data streams wait for the entry until it is ready.
	ends := a.Verdict != 0 && a.Verdict != wire.Hash && a.Verdict != wire.Need
	v.mu.Lock()
	e.resolved = e.resolved || ends // before a block that came without waiting is let in
	v.next++
	v.cond.Broadcast()
	v.mu.Unlock()
	switch a.Verdict {
	case 0, wire.Hash: // more comes
	case wire.Need:
		v.need(e, a.Have)
	case wire.Fail:
		v.finishEntry(e, Event{Kind: Failed, Err: &wire.Error{Code: a.Code, Text: a.Text}})
	default:
		v.finishEntry(e, Event{Kind: outcomes[a.Verdict], New: a.New, Reused: e.reused})
	}
	return e, a
}

// checkPath refuses a path of the manifest that is none, or that was not asked for.
func (v *Receiver) checkPath(p string) error {
	if err := disk.CheckPath(p); err != nil {
		return err
	}
	if first, _, _ := strings.Cut(p, "/"); v.opt.Names != nil && !slices.Contains(v.opt.Names, first) {
		return fmt.Errorf("%w: %q was not asked for", disk.ErrPath, p)
	}
	return nil
}

// place finds out where an entry belongs and what it shall look like there.
func (v *Receiver) place(e *receiving) error {
	x := &e.entry
	target := v.base
	if !v.rename {
		err := v.checkPath(x.Path)
		if err == nil && x.Path == "." && x.Kind != wire.Dir {
			err = fmt.Errorf("%w: %q", disk.ErrPath, x.Path)
		}
		if err == nil {
			target = path.Join(v.base, x.Path)
			err = disk.CheckPath(target)
		}
		if err != nil {
			return err
		}
	}
	e.meta = disk.Meta{
		Path: target, Kind: disk.Kind(x.Kind), Size: x.Size, ModTime: x.Time(), Mode: fileMode(x.Mode), Link: x.Link,
		Rdev: x.Rdev, Holes: x.Holes,
		ID: disk.Identity{Size: x.Size, ModTime: x.ModTime, Ino: x.Ino, Dev: x.Dev},
	}
	for _, a := range x.Xattrs {
		e.meta.Xattrs = append(e.meta.Xattrs, disk.Xattr{Name: a.Name, Value: a.Value})
	}
	if !x.Owned { // nobody knows as whom the program would run
		e.meta.Mode &^= fs.ModeSetuid | fs.ModeSetgid
	}
	e.meta.UID, e.meta.GID = x.UID, x.GID
	if !v.opt.Target.NumericIDs {
		if id, ok := disk.LookupUser(x.User); ok {
			e.meta.UID = id
		}
		if id, ok := disk.LookupGroup(x.Group); ok {
			e.meta.GID = id
		}
	}
	return nil
}

// decide compares an entry with what the target has, and makes what needs no data.
func (v *Receiver) decide(e *receiving, a *wire.Answer) error {
	x, t := &e.entry, &v.opt.Target
	have, err := v.tree.StatXattrs(e.meta.Path)
	missing := errors.Is(err, fs.ErrNotExist)
	e.lacks, e.over = missing || have.Kind != e.meta.Kind, !missing && have.Kind == disk.File
	switch {
	case errors.Is(err, disk.ErrNotFolder) && t.Delete && t.DryRun: // something above it would be replaced
		missing = true
	case err != nil && !missing:
		return err
	}
	switch {
	case missing && t.Compare.Existing,
		!missing && t.Compare.IgnoreExisting && x.Kind != wire.Dir,
		!missing && t.Compare.Update && x.Kind == wire.File && have.Kind == disk.File && have.ModTime.After(x.Time()):
		a.Verdict = wire.Skip
		return nil
	case x.Kind == wire.File:
		return v.file(e, &have, missing, a)
	case x.Kind == wire.Hardlink:
		return v.link(e, &have, missing, a)
	case missing || have.Kind != e.meta.Kind || x.Kind == wire.Symlink && have.Link != x.Link:
	case x.Kind == wire.Dir: // its time differs while it is filled
	case !disk.Differs(have, e.meta, v.options(e)):
		a.Verdict = wire.Same
		return nil
	}
	if t.DryRun {
		v.wouldChange(e, &have, missing, a)
		return nil
	}
	a.Verdict = wire.Done
	switch x.Kind {
	case wire.Dir:
		if e.lacks {
			if err := v.take(e, 0, v.lacking(e.meta.Path)); err != nil {
				return err
			}
		}
		if err := v.make(e, func() error { return v.tree.Mkdir(e.meta.Path, e.meta.Mode) }); err != nil {
			return err
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		v.pending++
		v.folders.enter(&folder{index: e.index, entry: e.entry, meta: e.meta})
		return nil
	case wire.Symlink:
		if err := v.take(e, 0, 1); err != nil {
			return err
		}
		v.keepOld(e)
		return v.make(e, func() error { return v.tree.Symlink(e.meta, v.options(e)) })
	case wire.Fifo, wire.CharDevice, wire.BlockDevice, wire.Socket:
		if err := v.take(e, 0, 1); err != nil {
			return err
		}
		v.keepOld(e)
		return v.make(e, func() error { return v.tree.Special(e.meta, v.options(e)) })
	case wire.File, wire.Hardlink, wire.Share:
	}
	return wire.Errorf(wire.CodeUnsupported, "kind %d of entry", x.Kind)
}

// options are those for the target's metadata, as far as the source has any.
func (v *Receiver) options(e *receiving) disk.TargetOptions {
	o := v.meta
	o.Owner = o.Owner && e.entry.Owned
	o.Xattrs = o.Xattrs && e.entry.Listed
	return o
}

// wouldChange answers in a dry run for what is not a file.
func (v *Receiver) wouldChange(e *receiving, have *disk.Meta, missing bool, a *wire.Answer) {
	switch {
	case missing || have.Kind != e.meta.Kind:
		a.Verdict, a.New = wire.Lack, missing
		if !missing && have.Kind == disk.Dir && v.opt.Target.Delete {
			_ = v.makeWay(e.meta.Path) // tells what it would remove
		}
	case disk.Differs(*have, e.meta, v.options(e)):
		a.Verdict = wire.Meta
	default:
		a.Verdict = wire.Same
	}
}

// make calls f, which makes an entry. Folders above it that were not announced are made, and with Delete something of another kind
// makes way.
func (v *Receiver) make(e *receiving, f func() error) error {
	err := f()
	if errors.Is(err, fs.ErrNotExist) {
		dir := path.Dir(e.meta.Path)
		if dir == "." {
			return err
		}
		if err := v.mkdir(dir); err != nil {
			return err
		}
		err = f()
	}
	if errors.Is(err, disk.ErrExists) && v.opt.Target.Delete {
		if err := v.makeWay(e.meta.Path); err != nil {
			return err
		}
		err = f()
	}
	return err
}

// file decides on a file, and opens the partial file of one of several blocks: an earlier run may have left some of it.
func (v *Receiver) file(e *receiving, have *disk.Meta, missing bool, a *wire.Answer) error {
	x, t := &e.entry, &v.opt.Target
	e.size, e.blocks = x.Size, -1
	if x.Size >= 0 {
		e.blocks = blocksOf(x.Size, x.BlockLog)
	}
	there := !missing && have.Kind == disk.File && have.Size == x.Size
	switch {
	case !missing && have.Kind == disk.Dir && !t.Delete:
		return fmt.Errorf("%q: %w", e.meta.Path, disk.ErrExists)
	case there && t.Compare.Checksum:
		e.hashing = true // before data streams know of it
		v.hash(e)
		return nil
	case there && have.ModTime.Equal(x.Time()) && !v.extraLink(have):
		return v.same(e, have, a)
	case t.DryRun:
		v.wouldChange(e, have, missing, a)
		a.Verdict, a.New = wire.Lack, missing
		return nil
	}
	if missing {
		if old, ok := v.previous(e); ok && t.Compare.Checksum {
			e.hashing = true
			v.hash(e)
			return nil
		} else if ok && old.ModTime.Equal(x.Time()) {
			return v.reuse(e, &old, a)
		}
	}
	return v.prepare(e, a)
}

// extraLink tells whether a file of the target is, unlike the source's, another name of one that stays. It must not share its metadata.
func (v *Receiver) extraLink(have *disk.Meta) bool {
	if have.Nlink < 2 || have.ID.Ino == 0 {
		return false
	}
	id := fileID{have.ID.Dev, have.ID.Ino}
	v.mu.Lock()
	defer v.mu.Unlock()
	_, known := v.linked[id]
	v.linked[id] = struct{}{}
	return known
}

// same leaves the content of a file as it is.
func (v *Receiver) same(e *receiving, have *disk.Meta, a *wire.Answer) error {
	a.Verdict = wire.Same
	if !disk.Differs(*have, e.meta, v.options(e)) {
		return nil
	}
	if v.opt.Target.DryRun {
		a.Verdict = wire.Meta
		return nil
	}
	if v.opt.Snapshot != nil && have.Nlink > 1 { // the others may be of older snapshots
		return v.copyFile(e, v.tree, e.meta.Path)
	}
	return v.tree.Apply(e.meta, v.options(e))
}

// prepare readies a file for its data.
func (v *Receiver) prepare(e *receiving, a *wire.Answer) error {
	a.Verdict = wire.Need
	if err := v.take(e, max(0, e.entry.Size), 1); err != nil {
		return err
	}
	if e.blocks == 0 || e.blocks == 1 { // written when its data is there
		v.mu.Lock()
		defer v.mu.Unlock()
		e.hashing = false
		return nil
	}
	part, err := v.openPart(e)
	if err != nil {
		return err
	}
	old := v.openOld(e)
	v.mu.Lock()
	defer v.mu.Unlock()
	if e.resolved { // the sender gave it up while its content was compared
		_ = part.Close()
		if old != nil {
			_ = old.old.Close()
		}
		return errClosed
	}
	e.part = part
	if e.delta = old; old != nil {
		a.Delta, a.Old = old.how, old.size
	}
	for _, h := range e.part.Have() {
		if len(a.Have) < maxRuns/2 { // the others come again
			a.Have = append(a.Have, wire.Extent{Start: h.Start, Count: h.Count})
		}
	}
	e.done = slices.Clone(a.Have)
	e.checking = len(a.Have) > 0
	e.hashing = false
	return nil
}

// goOn has the blocks of an earlier run re-read, and the old version offered. The answer that they are there must be on its way: the sender
// would take it for the news, were damaged ones asked for before it.
func (v *Receiver) goOn(e *receiving, have extents) {
	if len(have) > 0 {
		v.running.Add(1)
		go v.recheck(e, have)
	}
	if e.delta != nil {
		v.running.Add(1)
		go v.offer(e)
	}
}

// need begins to receive a file that prepare has readied. Its first blocks may be there already.
func (v *Receiver) need(e *receiving, have extents) {
	ev := Event{Kind: Started, Index: e.index, Entry: &e.entry}
	ev.Bytes = bytesOf(have, e.entry.Size, e.entry.BlockLog)
	v.mu.Lock()
	v.stats.Resumed += ev.Bytes
	v.mu.Unlock()
	v.event(ev)
	if e.blocks == 0 {
		if staged := v.stage(nil, e, emptyDigest(), nil, nil); staged != nil {
			v.add(stagedFile{e, staged})
		}
	}
}

// openPart opens the partial file.
func (v *Receiver) openPart(e *receiving) (part *disk.Partial, err error) {
	opt := v.options(e)
	opt.Replace = v.opt.Target.Delete
	err = v.patient(func() error {
		return v.make(e, func() (err error) {
			part, err = v.tree.Partial(e.meta, 1<<e.entry.BlockLog, opt)
			return err
		})
	})
	return part, err
}

// patient calls f again while the file is busy: with an earlier session of the same client that has not seen its end, or with an
// older version of the same file that is about to get its name.
func (v *Receiver) patient(f func() error) error {
	until := v.busyUntil
	if least := time.Now().Add(busyLeast); least.After(until) {
		until = least
	}
	err := f()
	for errors.Is(err, disk.ErrBusy) && time.Now().Before(until) && v.ctx.Err() == nil {
		v.flushNow()
		select {
		case <-v.ctx.Done():
		case <-time.After(busyEvery):
			err = f()
		}
	}
	return err
}

// hash reads what the target has, in the background, and lets the sender compare it.
func (v *Receiver) hash(e *receiving) {
	v.running.Add(1)
	go func() {
		defer v.running.Done()
		select {
		case v.hashing <- struct{}{}:
		case <-v.ctx.Done():
			return
		}
		digest, err := v.digestOf(e)
		<-v.hashing
		if v.ctx.Err() != nil {
			return
		}
		a := wire.Answer{Index: e.index, Verdict: wire.Hash, Digest: digest}
		if err != nil { // it is no use to compare
			v.afterCompare(e, false)
			return
		}
		v.mu.Lock()
		e.hashed = &digest
		v.mu.Unlock()
		v.ctrl.send(&wire.Answers{Answers: []wire.Answer{a}})
	}()
}

// digestOf reads a whole file of the target.
func (v *Receiver) digestOf(e *receiving) (digest [32]byte, err error) {
	f, err := v.tree.OpenFile(e.meta.Path)
	if s := v.opt.Snapshot; s != nil && s.Previous != nil && errors.Is(err, fs.ErrNotExist) {
		f, err = s.Previous.OpenFile(e.meta.Path)
	}
	if err != nil {
		return digest, err
	}
	defer f.Close()
	return v.digest(f, e)
}

// compared learns whether the sender's file is what the target has.
func (v *Receiver) compared(m *wire.Compared) error {
	e := v.find(m.Index)
	if e == nil {
		return nil // it failed meanwhile
	}
	v.mu.Lock()
	asked := e.hashed != nil
	e.hashed = nil
	v.mu.Unlock()
	if !asked {
		return protocolError("entry %d is compared without a question", m.Index)
	}
	v.afterCompare(e, m.Same)
	return nil
}

// afterCompare answers for an entry once it is known whether its content is the same.
func (v *Receiver) afterCompare(e *receiving, same bool) {
	a := wire.Answer{Index: e.index}
	var err error
	switch {
	case same:
		var have disk.Meta
		have, err = v.tree.StatXattrs(e.meta.Path)
		if old, ok := v.previous(e); ok && errors.Is(err, fs.ErrNotExist) {
			if err = v.reuse(e, &old, &a); err == nil && a.Verdict == 0 {
				return
			}
		} else if err == nil && v.extraLink(&have) && !v.opt.Target.DryRun {
			err = v.prepare(e, &a)
		} else if err == nil {
			err = v.same(e, &have, &a)
		}
	case v.opt.Target.DryRun:
		a.Verdict = wire.Lack
	default:
		err = v.prepare(e, &a)
	}
	v.conclude(e, &a, err)
}

// conclude answers for an entry later than with the others of its message.
func (v *Receiver) conclude(e *receiving, a *wire.Answer, err error) {
	if v.endIfHopeless(err) {
		return
	}
	if err != nil {
		a.Verdict, a.Code, a.Text = wire.Fail, codeOf(err), err.Error()
	}
	have := extents(slices.Clone(a.Have))
	v.ctrl.send(&wire.Answers{Answers: []wire.Answer{*a}})
	switch a.Verdict {
	case wire.Need:
		v.need(e, a.Have)
		v.goOn(e, have)
	case wire.Fail:
		v.resolve(e, Event{Kind: Failed, Err: &wire.Error{Code: a.Code, Text: a.Text}})
	default:
		v.resolve(e, Event{Kind: outcomes[a.Verdict], New: a.New, Reused: e.reused})
	}
}

// link gives a file that was announced before another name: when it has its own.
func (v *Receiver) link(e *receiving, have *disk.Meta, missing bool, a *wire.Answer) error {
	x := &e.entry
	if v.rename {
		return protocolError("a hard link alone")
	}
	if err := disk.CheckPath(x.Link); err != nil {
		return err
	}
	if x.First >= e.index {
		return protocolError("a hard link to an entry that comes later")
	}
	v.mu.Lock()
	first := v.active[x.First]
	if first != nil && first.entry.Kind == wire.File {
		first.links = append(first.links, e)
		v.linksWaiting++
		v.mu.Unlock()
		return nil
	}
	v.mu.Unlock()
	if v.opt.Target.DryRun {
		v.wouldLink(e, have, missing, a)
		return nil
	}
	a.Verdict = wire.Done
	if c := v.opt.Target.Compare; c.Update || c.Existing || c.IgnoreExisting { // the file may have been left as it was
		file, err := v.tree.Stat(path.Join(v.base, x.Link))
		if err != nil || !file.ModTime.Equal(x.Time()) {
			a.Verdict = wire.Skip
			return nil
		}
	}
	return v.linkNow(e)
}

// wouldLink answers in a dry run for another name of a file that stays.
func (v *Receiver) wouldLink(e *receiving, have *disk.Meta, missing bool, a *wire.Answer) {
	file, err := v.tree.Stat(path.Join(v.base, e.entry.Link))
	if !missing && err == nil && file.ID.Ino == have.ID.Ino && file.ID.Dev == have.ID.Dev {
		a.Verdict = wire.Same
	} else {
		a.Verdict, a.New = wire.Lack, missing
	}
}

func (v *Receiver) linkNow(e *receiving) error {
	from := path.Join(v.base, e.entry.Link)
	if err := disk.CheckPath(from); err != nil {
		return err
	}
	if have, err := v.tree.Stat(from); err != nil || have.Kind != disk.File || !have.ModTime.Equal(e.entry.Time()) {
		return wire.Errorf(wire.CodeChanged, "%q, of which it is another name, is not there", e.entry.Link)
	}
	if err := v.take(e, 0, 1); err != nil {
		return err
	}
	v.keepOld(e)
	err := v.make(e, func() error { return v.tree.Link(from, e.meta.Path) })
	if err != nil && cannotLink(err) {
		v.warn(disk.Warning{Path: e.meta.Path, What: "hard link", Err: err})
		err = v.copyLink(e, from)
	}
	return err
}

// cannotLink tells the errors of a file system that has no such link.
func cannotLink(err error) bool {
	return errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EMLINK) || errors.Is(err, syscall.EXDEV) || errors.Is(err, errors.ErrUnsupported)
}

// copyLink makes a hard link's file anew where it cannot be linked.
func (v *Receiver) copyLink(e *receiving, from string) error {
	meta, err := v.tree.StatXattrs(from)
	if err != nil {
		return err
	}
	meta.Path = e.meta.Path
	file := *e
	file.meta, file.entry.Owned, file.entry.Listed = meta, true, true
	return v.copyFile(&file, v.tree, from)
}

// copyFile makes the file of an entry with the content of one that is there, in this tree or another.
func (v *Receiver) copyFile(e *receiving, tree *disk.Tree, from string) error {
	f, err := tree.OpenFile(from)
	if err != nil {
		return err
	}
	defer f.Close()
	meta, opt := e.meta, v.options(e)
	meta.Size, meta.ID = f.Identity().Size, disk.Identity{}
	opt.Sync = disk.SyncNone // all is made durable at the end
	if err := v.take(e, meta.Size, 0); err != nil {
		return err
	}
	var part *disk.Partial
	err = v.make(e, func() (err error) {
		part, err = v.tree.Partial(meta, 1<<maxBlockLog, opt)
		return err
	})
	if err != nil {
		return err
	}
	for b := range blocksOf(meta.Size, maxBlockLog) {
		if err = context.Cause(v.ctx); err == nil {
			err = copyBlock(part, f, b<<maxBlockLog, int64(lengthOf(meta.Size, maxBlockLog, b)), meta.Holes)
		}
		if err == nil {
			err = part.Mark(b, [32]byte{})
		}
		if err != nil {
			break
		}
	}
	if err == nil {
		err = f.Unchanged()
	}
	if err == nil {
		err = part.Commit(meta)
	}
	if err != nil {
		_ = part.Abort()
	}
	return err
}

// copyBlock copies n bytes at off from one file to another, and of one with holes only the data.
func copyBlock(part *disk.Partial, f *disk.Source, off, n int64, holes bool) error {
	data := []disk.Range{{Off: off, Len: n}}
	if holes {
		var err error
		if data, err = f.Data(off, n); err != nil {
			return err
		}
	}
	for _, r := range data {
		if err := part.CopyFrom(f, r.Off, r.Off, r.Len); err != nil {
			return err
		}
	}
	return nil
}

// linkWaiting gives a file, if it is in place, the names that wait for it. became is what became of the file.
func (v *Receiver) linkWaiting(links []*receiving, became *Event) {
	if len(links) == 0 {
		return
	}
	v.mu.Lock()
	v.linksWaiting -= len(links)
	v.mu.Unlock()
	var answers wire.Answers
	events := make([]Event, len(links))
	for i, e := range links {
		a := wire.Answer{Index: e.index, Verdict: wire.Done}
		err := became.Err
		switch {
		case err != nil:
			err = wire.Errorf(codeOf(err), "another name of %q, which failed", e.entry.Link)
		case !v.opt.Target.DryRun:
			err = v.linkNow(e)
		default:
			have, failed := v.tree.Stat(e.meta.Path)
			if v.wouldLink(e, &have, failed != nil, &a); became.Kind == outcomes[wire.Lack] {
				a.Verdict = wire.Lack // to the new file
			}
		}
		events[i] = Event{Kind: outcomes[a.Verdict], New: a.New}
		if v.endIfHopeless(err) {
			return
		}
		if err != nil {
			a.Verdict, a.Code, a.Text = wire.Fail, codeOf(err), err.Error()
			events[i] = Event{Kind: Failed, Err: &wire.Error{Code: a.Code, Text: a.Text}}
		}
		answers.Answers = append(answers.Answers, a)
	}
	v.ctrl.send(&answers) // before the last one may end the session
	for i, e := range links {
		v.resolve(e, events[i])
	}
}

// resolve ends an entry that is not resolved yet, with the event for it.
func (v *Receiver) resolve(e *receiving, ev Event) {
	v.mu.Lock()
	first := !e.resolved
	e.resolved = true
	v.mu.Unlock()
	if first {
		v.finishEntry(e, ev)
	}
}

// fail ends an entry that is not resolved yet and tells the sender. What is there stays for a later session, if the source stays the
// same.
func (v *Receiver) fail(e *receiving, err error) {
	v.mu.Lock()
	first := !e.resolved
	e.resolved = true
	v.mu.Unlock()
	if first {
		v.failEntry(e, err)
	}
}

// failEntry is fail for an entry that the caller has resolved.
func (v *Receiver) failEntry(e *receiving, err error) {
	if v.endIfHopeless(err) {
		return
	}
	var known *wire.Error
	if !errors.As(err, &known) {
		known = &wire.Error{Code: codeOf(err), Text: err.Error()}
	}
	if !known.Remote {
		v.ctrl.send(&wire.EntryFailed{Index: e.index, Code: known.Code, Text: known.Text})
	}
	ev := Event{Kind: Failed, Err: known}
	if known.Code == wire.CodeAgain {
		ev.Kind = Again
	}
	v.finishEntry(e, ev)
}

// finishEntry reports the end of an entry that the caller has resolved, and goes on with what waited for it.
func (v *Receiver) finishEntry(e *receiving, ev Event) {
	ev.Index, ev.Entry, ev.At = e.index, &e.entry, e.meta.Path
	v.mu.Lock()
	part := e.part
	v.mu.Unlock()
	if ev.Kind != Committed && part != nil {
		var known *wire.Error
		gone := errors.As(ev.Err, &known) && (known.Code == wire.CodeChanged || known.Code == wire.CodeAgain || known.Code == wire.CodeNotFound)
		e.leavePart(gone) // may wait for the disk
	}
	v.event(ev)
	v.mu.Lock()
	delete(v.active, e.index)
	v.settleEntry(e, ev.Kind != Again && (ev.Kind != Failed || part != nil))
	v.pending--
	v.held -= e.held
	v.open -= weightOf(&e.entry)
	links := e.links
	var done []*folder
	if ev.Kind == Again && len(v.orphans) < maxOrphans {
		v.orphans[e.entry.Path] = &orphan{e.folder, links}
		links = nil
	} else {
		done = v.folders.release(e.folder)
	}
	v.cond.Broadcast()
	v.mu.Unlock()
	if ev.Kind == Failed || ev.Kind == Committed && e.over {
		v.freed()
	}
	v.setFolders(done)
	v.linkWaiting(links, &ev)
	v.flushIdle()
	v.finish()
}
