package transfer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sync"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

// pruner removes what the sender does not have. It asks for one batch of names after the other, of several folders at a time: each
// question takes a round trip.
type pruner struct {
	v *Receiver

	asking sync.Mutex

	mu    sync.Mutex
	cond  *sync.Cond
	todo  []string // folders, paths in the manifest; the last comes first, so there are few
	busy  int
	extra []extraName // what is to be removed, if there is a bound for that
	count int64       // entries to be removed, or removed
	over  bool        // more than allowed
}

type extraName struct {
	folder, name string
	kind         disk.Kind
}

// pruneAll removes what the sender does not have in folders, which are paths in the manifest.
func (v *Receiver) pruneAll(folders []string) {
	p := &pruner{v: v, count: v.removed}
	p.cond = sync.NewCond(&p.mu)
	for _, f := range folders {
		if err := v.checkPath(f); err != nil {
			v.pruneFailed(f, err)
			continue
		}
		p.todo = append(p.todo, f)
	}
	defer context.AfterFunc(v.ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.cond.Broadcast()
	})()
	var workers sync.WaitGroup
	for range maxQuestions / 2 {
		workers.Go(p.work)
	}
	workers.Wait()
	if v.ctx.Err() != nil {
		return
	}
	if p.over {
		v.pruneFailed("", wire.Errorf(wire.CodeOther, "nothing is removed: it would be more than %d entries", v.opt.Target.MaxDelete))
		return
	}
	for _, x := range p.extra {
		p.removeIn(x.folder, []string{x.name}, []disk.Kind{x.kind})
	}
}

func (v *Receiver) pruneFailed(p string, err error) {
	var known *wire.Error
	if !errors.As(err, &known) {
		known = &wire.Error{Code: codeOf(err), Text: err.Error()}
	}
	v.ctrl.send(&wire.EntryFailed{Index: wire.NoEntry, Code: known.Code, Text: known.Text})
	v.event(Event{Kind: Failed, Index: wire.NoEntry, Entry: &wire.Entry{Path: p}, Err: known})
}

// work prunes one folder after the other until there are no more.
func (p *pruner) work() {
	for {
		p.mu.Lock()
		for len(p.todo) == 0 && p.busy > 0 && p.v.ctx.Err() == nil {
			p.cond.Wait()
		}
		if len(p.todo) == 0 || p.over || p.v.ctx.Err() != nil {
			p.cond.Broadcast()
			p.mu.Unlock()
			return
		}
		folder := p.todo[len(p.todo)-1]
		p.todo = p.todo[:len(p.todo)-1]
		p.busy++
		p.mu.Unlock()
		err := p.folder(folder)
		p.mu.Lock()
		p.busy--
		p.cond.Broadcast()
		p.mu.Unlock()
		if err != nil && !errors.Is(err, fs.ErrNotExist) && p.v.ctx.Err() == nil {
			p.v.pruneFailed(folder, err)
		}
	}
}

// folder removes what the sender does not have in one folder, and queues the folders that it has.
func (p *pruner) folder(folder string) error {
	v := p.v
	target := path.Join(v.base, folder)
	if !v.opt.Target.DryRun { // what killed transfers left: the source does not have it either
		if err := v.tree.SweepFolder(target); err != nil {
			return err
		}
	}
	return v.tree.Names(v.ctx, target, func(names []string, kinds []disk.Kind) error {
		extra, err := p.ask(folder, names)
		if err != nil {
			return err
		}
		var gone []string
		var goneKinds []disk.Kind
		for i, name := range names {
			if _, found := slices.BinarySearch(extra, uint64(i)); found {
				if path.Join(target, name) != v.opt.Target.BackupDir {
					gone, goneKinds = append(gone, name), append(goneKinds, kinds[i])
				}
			} else if kinds[i] == disk.Dir {
				p.mu.Lock()
				p.todo = append(p.todo, path.Join(folder, name))
				p.cond.Signal()
				p.mu.Unlock()
			}
		}
		if v.opt.Target.MaxDelete > 0 {
			return p.note(folder, gone, goneKinds)
		}
		p.removeIn(folder, gone, goneKinds)
		return nil
	})
}

// removeIn removes names of a folder, which keeps its metadata.
func (p *pruner) removeIn(folder string, names []string, kinds []disk.Kind) {
	if len(names) == 0 {
		return
	}
	v := p.v
	before, err := v.tree.Stat(path.Join(v.base, folder))
	if err != nil {
		v.pruneFailed(folder, err)
		return
	}
	if before.Mode&0o300 != 0o300 && !v.opt.Target.DryRun { // it has its final mode, and may be closed to us
		open := before
		open.Mode |= 0o700
		_ = v.tree.Apply(open, disk.TargetOptions{})
	}
	if p.remove(folder, names, kinds) {
		if err := v.tree.Apply(before, disk.TargetOptions{}); err != nil {
			v.pruneFailed(folder, err)
		}
	}
}

// ask lets the sender say which of these names it does not have: their positions, ascending.
func (p *pruner) ask(folder string, names []string) ([]uint64, error) {
	v := p.v
	answer := make(chan *wire.Extra, 1)
	p.asking.Lock() // answers come in the order of questions
	v.mu.Lock()
	v.asked = append(v.asked, answer)
	v.mu.Unlock()
	v.ctrl.send(&wire.Folder{Path: folder, Names: names})
	p.asking.Unlock()
	select {
	case <-v.ctx.Done():
		return nil, context.Cause(v.ctx)
	case m := <-answer:
		if n := len(m.Names); n > 0 && m.Names[n-1] >= uint64(len(names)) {
			err := protocolError("an answer about names that were not asked for")
			v.end(err)
			return nil, err
		}
		return m.Names, nil
	}
}

// note remembers what is to be removed, up to the bound.
func (p *pruner) note(folder string, names []string, kinds []disk.Kind) error {
	for i, name := range names {
		n, err := p.v.countBelow(path.Join(p.v.base, folder, name), kinds[i], p.v.opt.Target.MaxDelete)
		if err != nil {
			return err
		}
		p.mu.Lock()
		p.count += n
		p.over = p.over || p.count > p.v.opt.Target.MaxDelete
		over := p.over
		p.extra = append(p.extra, extraName{folder, name, kinds[i]})
		p.mu.Unlock()
		if over {
			return errEnough
		}
	}
	return nil
}

var errEnough = fmt.Errorf("more than is to be removed: %w", fs.ErrNotExist)

// countBelow counts an entry and all below it, up to a little more than most.
func (v *Receiver) countBelow(target string, kind disk.Kind, most int64) (n int64, err error) {
	if kind != disk.Dir {
		return 1, nil
	}
	err = v.tree.Walk(v.ctx, target, disk.WalkOptions{}, func(disk.Meta) error {
		if n++; n > most {
			return errEnough
		}
		return nil
	}, func(string, error) { n++ })
	if errors.Is(err, errEnough) {
		err = nil
	}
	return n, err
}

// remove removes names of a folder, or only tells so in a dry run. It reports whether the folder was changed.
func (p *pruner) remove(folder string, names []string, kinds []disk.Kind) (changed bool) {
	v := p.v
	for i, name := range names {
		target := path.Join(v.base, folder, name)
		if err := v.tellBelow(target, kinds[i]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			v.pruneFailed(path.Join(folder, name), err)
			continue
		}
		if v.opt.Target.DryRun {
			continue
		}
		changed = true
		if err := v.remove(target); err != nil {
			v.pruneFailed(path.Join(folder, name), err)
		}
	}
	return changed
}

// tellBelow tells of an entry that goes, and all below it.
func (v *Receiver) tellBelow(target string, kind disk.Kind) error {
	tell := func(p string, k disk.Kind) {
		at := p
		if v.base != "." {
			p = p[min(len(p), len(v.base)+1):]
		}
		v.ctrl.send(&wire.Removed{Kind: wire.Kind(k), Path: p})
		v.event(Event{Kind: Removed, Index: wire.NoEntry, Entry: &wire.Entry{Kind: wire.Kind(k), Path: p}, At: at})
	}
	if kind != disk.Dir {
		tell(target, kind)
		return nil
	}
	return v.tree.Walk(v.ctx, target, disk.WalkOptions{}, func(m disk.Meta) error {
		tell(m.Path, m.Kind)
		return nil
	}, func(p string, _ error) { tell(p, 0) })
}
