package transfer

import (
	"errors"

	"github.com/fxfer/fxfer/internal/wire"
)

// endIfHopeless ends the session with err if all other entries would fail as well: then nothing is
// to be said about single ones. Nor is it after the end, which makes what is under way fail. The
// session ends in the background, after the files that are complete have got their names, because a
// full disk has room for these.
func (v *Receiver) endIfHopeless(err error) bool {
	if err != nil && v.side.over() {
		return true
	}
	if !hopeless(err) {
		return false
	}
	if !v.hopeless.Swap(true) {
		v.side.running.Go(func() {
			v.committer.drain(v.side.ctx)
			v.end(diskError(err))
		})
	}
	return true
}

// resolve ends an entry that is not resolved yet, with the event for it.
func (v *Receiver) resolve(e *receiving, ev Event) {
	if e.resolve() {
		v.finishEntry(e, ev)
	}
}

// fail ends an entry that is not resolved yet, and tells the sender. What is there stays for a
// later session, if the source stays the same.
func (v *Receiver) fail(e *receiving, err error) {
	if e.resolve() {
		v.failEntry(e, err)
	}
}

// failEntry is fail for an entry that the caller has resolved.
func (v *Receiver) failEntry(e *receiving, err error) {
	if v.endIfHopeless(err) {
		return
	}
	known := entryError(err, e.meta.Path)
	if !known.Remote {
		v.send(&wire.EntryFailed{Index: e.index, Code: known.Code, Text: known.Text})
	}
	ev := Event{Kind: Failed, Err: known}
	if known.Code == wire.CodeAgain {
		ev.Kind = Again
	}
	v.finishEntry(e, ev)
}

// finishEntry reports the end of an entry that the caller has resolved, and goes on with what
// waited for it.
func (v *Receiver) finishEntry(e *receiving, ev Event) {
	ev.Index, ev.Entry, ev.At = e.index, &e.entry, e.meta.Path
	part := e.partial()
	if part != nil {
		e.leavePart(sourceGone(ev.Err))
	}
	v.side.event(ev)
	if ev.Kind == Same || ev.Kind == Done {
		v.table.inPlace(e)
	}
	links, done := v.table.remove(e, ev.Kind == Again)
	v.target.usage.settle(e, ev.Kind != Again && (ev.Kind != Failed || part != nil))
	if ev.Kind == Failed {
		v.target.usage.freed()
	}
	v.setFolders(done)
	v.linkWaiting(links, &ev)
	v.committer.flushIdle()
	v.finish()
}

// finishCommitted is finishEntry for files that have got their names. There are many at a time, so
// none of them takes the locks alone.
func (v *Receiver) finishCommitted(all []*receiving) {
	committed := Event{Kind: Committed}
	freed := false
	for _, e := range all {
		ev := committed
		ev.Index, ev.Entry, ev.At = e.index, &e.entry, e.meta.Path
		if e.empty.Empty() && e.digested {
			ev.Digest = e.digest
		}
		v.side.event(ev)
		freed = freed || e.over
	}
	links, done := v.table.removeInPlace(all)
	for _, e := range all {
		v.target.usage.settle(e, true)
	}
	if freed {
		v.target.usage.freed()
	}
	v.setFolders(done)
	v.linkWaiting(links, &committed)
	v.committer.flushIdle()
	v.finish()
}

// sourceGone reports whether an entry failed since its source is not what it was.
func sourceGone(err error) bool {
	var known *wire.Error
	if !errors.As(err, &known) {
		return false
	}
	damaged := known.Remote && known.Code == wire.CodeIntegrity
	return damaged || known.Code == wire.CodeChanged || known.Code == wire.CodeAgain || known.Code == wire.CodeNotFound
}

// linkWaiting gives a file the names that wait for it, if it is in place. became is what became of
// it.
func (v *Receiver) linkWaiting(links []*receiving, became *Event) {
	if len(links) == 0 {
		return
	}
	v.table.stopWaiting(len(links))
	var answers wire.Answers
	for _, e := range links {
		a, err := v.links.answer(e, became)
		if v.endIfHopeless(err) {
			return
		}
		setFailed(&a, err, e.meta.Path)
		answers.Answers = append(answers.Answers, a)
	}
	v.send(&answers) // before the last one may end the session
	for i, e := range links {
		v.resolve(e, verdictEvent(e, &answers.Answers[i]))
	}
}

// setFolders sets the metadata of complete folders, and then of those that waited only for them. The
// caller calls finish later.
func (v *Receiver) setFolders(done []*folder) {
	for len(done) > 0 {
		x := done[0]
		if !v.opt.Target.DryRun {
			v.setFolder(x)
		}
		done = append(done[1:], v.table.leaveFolder(x)...)
	}
}

// setFolder sets the metadata of a folder.
func (v *Receiver) setFolder(x *folder) {
	opt := v.target.options(&x.entry)
	if x.meta.Path == "." && v.opt.Snapshot == nil { // the rights of the share are its owner's business
		if have, err := v.target.tree.Stat("."); err == nil {
			x.meta.Mode, opt.Owner, opt.Xattrs = have.Mode, false, false
		}
	}
	if err := v.target.tree.Apply(x.meta, opt); err != nil {
		known := diskError(err)
		v.send(&wire.EntryFailed{Index: wire.NoEntry, Code: known.Code, Text: known.Text})
		v.side.event(Event{Kind: Failed, Index: wire.NoEntry, Entry: &x.entry, Err: entryError(err, x.meta.Path)})
	}
}

// finish ends the session in the background, if every entry is resolved.
func (v *Receiver) finish() {
	v.table.close(func() {
		v.side.running.Go(func() {
			if err := v.settle(); err != nil {
				v.end(err)
			}
		})
	})
}

// settle removes what the sender does not have, makes all durable, and tells the sender.
func (v *Receiver) settle() error {
	way, err := v.table.toPrune()
	if err != nil {
		return err
	}
	if way != nil {
		if len(way.Folders) == 0 && v.failed.Load() > 0 {
			v.side.event(Event{Kind: NotPruned})
		}
		v.prune(way.Folders)
	}
	if !v.opt.Target.DryRun && v.opt.Target.Sync != wire.SyncNone {
		synced := v.opt.Clock.syncing()
		err := v.target.tree.SyncAll()
		synced()
		if err != nil {
			return diskError(err)
		}
	}
	if s := v.opt.Snapshot; s != nil && !v.side.over() {
		defer v.side.checking()()
		if err := s.Publish(v.failed.Load(), v.grave.Load()); err != nil {
			return diskError(err)
		}
	}
	v.finished.Store(true)
	for _, w := range v.target.warnings.all() {
		v.send(w)
		v.side.event(warned(w))
	}
	if v.opt.Finishing != nil {
		v.opt.Finishing()
	}
	v.send(&wire.Finished{})
	if v.opt.Leave {
		v.end(nil)
	}
	return nil
}

// prune removes what the sender does not have in folders. A snapshot is new, unless an earlier
// session left some of it, which may be from other sources.
func (v *Receiver) prune(folders []string) {
	switch s := v.opt.Snapshot; {
	case s == nil:
		v.pruner.run(folders)
	case s.Resumed && len(folders) > 0:
		v.pruner.run([]string{"."})
	}
}
