package transfer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

// remover removes entries of the target, within MaxDelete, and reports each.
type remover struct {
	side    *side
	target  *target
	removed atomic.Int64 // entries that made way, or would in a dry run
}

// errEnough ends a count that is above its bound.
var errEnough = fmt.Errorf("more than is to be removed: %w", fs.ErrNotExist)

// makeWay removes what stands at a path where an entry of another kind belongs. It counts towards
// MaxDelete.
func (r *remover) makeWay(p string) error {
	opt := &r.target.opt
	have, err := r.target.tree.Stat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	remove, err := r.target.tree.Removal(r.side.ctx, p)
	if err != nil {
		return err
	}
	n, err := r.count(p, have.Kind, max(opt.MaxDelete, 0))
	if err != nil {
		return err
	}
	if removed := r.removed.Add(n); opt.MaxDelete > 0 && removed > opt.MaxDelete {
		return wire.Errorf(wire.CodePath, "more than %d entries would have to make way for it", opt.MaxDelete)
	}
	if err := r.report(p, have.Kind); err != nil || opt.DryRun {
		return err
	}
	return r.run(remove)
}

// run removes an entry and all below it.
func (r *remover) run(remove func() error) error {
	defer r.side.checking()()
	defer r.target.usage.freed()
	defer r.target.usage.moving(r.target.opt.BackupDir)()
	err := remove()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// count counts an entry and all below it, up to a little more than most.
func (r *remover) count(p string, kind disk.Kind, most int64) (n int64, err error) {
	if kind != disk.Dir {
		return 1, nil
	}
	err = r.target.tree.Walk(r.side.ctx, p, disk.WalkOptions{}, func(disk.Meta) error {
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

// report reports that an entry, and all below it, goes.
func (r *remover) report(p string, kind disk.Kind) error {
	one := func(at string, kind disk.Kind) {
		p := at
		if base := r.target.base; base != "." {
			p = p[min(len(p), len(base)+1):]
		}
		entry := wire.Entry{Kind: wire.Kind(kind), Path: p}
		r.side.pump.send(&wire.Removed{Kind: entry.Kind, Path: p})
		r.side.event(Event{Kind: Removed, Index: wire.NoEntry, Entry: &entry, At: at})
	}
	if kind != disk.Dir {
		one(p, kind)
		return nil
	}
	return r.target.tree.Walk(r.side.ctx, p, disk.WalkOptions{}, func(m disk.Meta) error {
		one(m.Path, m.Kind)
		return nil
	}, func(p string, _ error) { one(p, 0) })
}

// failed reports something that cannot be removed. p is a path of the manifest.
func (r *remover) failed(p string, err error) {
	known := errorOf(err)
	r.side.pump.send(&wire.EntryFailed{Index: wire.NoEntry, Code: known.Code, Text: known.Text})
	r.side.event(Event{Kind: Failed, Index: wire.NoEntry, Entry: &wire.Entry{Path: p}, Err: known})
}

// pruner removes what the sender does not have. It asks about one batch of names after the other,
// and about several folders at a time, since each question takes a round trip.
type pruner struct {
	side    *side
	target  *target
	remover *remover
	end     func(error) // ends the session

	asking sync.Mutex // held while a question is sent: answers come in the order of questions

	mu      sync.Mutex // guards the following; a leaf, but for asking before it
	cond    *sync.Cond
	asked   []chan *wire.Extra // questions without answer, oldest first
	folders []string           // to prune, paths in the manifest; the last is next, so there are few
	busy    int                // how many are being pruned
	extra   []extraName        // to be removed, if there is a bound for that
	count   int64              // entries to be removed, or removed
	over    bool               // more than allowed
}

// extraName is a name in a folder that the sender does not have.
type extraName struct {
	folder, name string
	kind         disk.Kind
}

func newPruner(s *side, t *target, end func(error)) *pruner {
	p := &pruner{side: s, target: t, remover: t.remover, end: end}
	p.cond = sync.NewCond(&p.mu)
	return p
}

// run removes what the sender does not have in folders, which are paths in the manifest.
func (p *pruner) run(folders []string) {
	p.count = p.remover.removed.Load()
	for _, f := range folders {
		if err := p.target.checkPath(f); err != nil {
			p.remover.failed(f, err)
			continue
		}
		p.folders = append(p.folders, f)
	}
	defer context.AfterFunc(p.side.ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.cond.Broadcast()
	})()
	var workers sync.WaitGroup
	for range maxQuestions / 2 {
		workers.Go(p.work)
	}
	workers.Wait()
	if p.side.over() {
		return
	}
	if p.over {
		most := p.target.opt.MaxDelete
		err := wire.Errorf(wire.CodeOther, "nothing is removed: it would be more than %d entries", most)
		p.remover.failed("", err)
		return
	}
	for _, x := range p.extra {
		p.removeIn(x.folder, []extraName{x})
	}
}

// work prunes one folder after the other until there are no more.
func (p *pruner) work() {
	for {
		folder, ok := p.next()
		if !ok {
			return
		}
		err := p.folder(folder)
		p.mu.Lock()
		p.busy--
		p.cond.Broadcast()
		p.mu.Unlock()
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !p.side.over() {
			p.remover.failed(folder, err)
		}
	}
}

// next waits for a folder to prune. It returns false when there are no more.
func (p *pruner) next() (folder string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.folders) == 0 && p.busy > 0 && !p.side.over() {
		p.cond.Wait()
	}
	if len(p.folders) == 0 || p.over || p.side.over() {
		p.cond.Broadcast()
		return "", false
	}
	folder = p.folders[len(p.folders)-1]
	p.folders = p.folders[:len(p.folders)-1]
	p.busy++
	return folder, true
}

// folder removes what the sender does not have in one folder, and queues the folders that the
// sender has.
func (p *pruner) folder(folder string) error {
	at := path.Join(p.target.base, folder)
	if !p.target.opt.DryRun { // what killed transfers left is not the source's either
		if err := p.target.tree.SweepFolder(at); err != nil {
			return err
		}
	}
	return p.target.tree.Names(p.side.ctx, at, func(names []string, kinds []disk.Kind) error {
		missing, err := p.ask(folder, names)
		if err != nil {
			return err
		}
		var gone []extraName
		for i, name := range names {
			if _, found := slices.BinarySearch(missing, uint64(i)); found {
				if path.Join(at, name) != p.target.opt.BackupDir {
					gone = append(gone, extraName{folder, name, kinds[i]})
				}
			} else if kinds[i] == disk.Dir {
				p.push(path.Join(folder, name))
			}
		}
		if p.target.opt.MaxDelete > 0 {
			return p.note(gone)
		}
		p.removeIn(folder, gone)
		return nil
	})
}

// push queues a folder to prune.
func (p *pruner) push(folder string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.folders = append(p.folders, folder)
	p.cond.Signal()
}

// removeIn removes names of a folder, which keeps its metadata.
func (p *pruner) removeIn(folder string, names []extraName) {
	if len(names) == 0 {
		return
	}
	tree := p.target.tree
	before, err := tree.Stat(path.Join(p.target.base, folder))
	if err != nil {
		p.remover.failed(folder, err)
		return
	}
	if before.Mode&0o300 != 0o300 && !p.target.opt.DryRun { // its final mode may not let us write
		open := before
		open.Mode |= 0o700
		_ = tree.Apply(open, disk.TargetOptions{})
	}
	if p.remove(names) {
		if err := tree.Apply(before, disk.TargetOptions{}); err != nil {
			p.remover.failed(folder, err)
		}
	}
}

// remove removes names of a folder, or only reports them in a dry run. It returns whether the
// folder changed.
func (p *pruner) remove(names []extraName) (changed bool) {
	for _, x := range names {
		at := path.Join(p.target.base, x.folder, x.name)
		remove, err := p.target.tree.Removal(p.side.ctx, at)
		if err == nil {
			err = p.remover.report(at, x.kind)
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		if err == nil && !p.target.opt.DryRun {
			changed = true
			err = p.remover.run(remove)
		}
		if err != nil {
			p.remover.failed(path.Join(x.folder, x.name), err)
		}
	}
	return changed
}

// ask asks the sender which of these names it does not have. It returns their positions, ascending.
func (p *pruner) ask(folder string, names []string) ([]uint64, error) {
	answer := make(chan *wire.Extra, 1)
	p.asking.Lock()
	p.mu.Lock()
	p.asked = append(p.asked, answer)
	p.mu.Unlock()
	p.side.pump.send(&wire.Folder{Path: folder, Names: names})
	p.asking.Unlock()
	select {
	case <-p.side.ctx.Done():
		return nil, context.Cause(p.side.ctx)
	case m := <-answer:
		if n := len(m.Names); n > 0 && m.Names[n-1] >= uint64(len(names)) {
			err := protocolError("an answer about names that were not asked for")
			p.end(err)
			return nil, err
		}
		return m.Names, nil
	}
}

// answer takes the sender's answer to the oldest question.
func (p *pruner) answer(m *wire.Extra) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.asked) == 0 {
		return protocolError("an answer without a question")
	}
	p.asked[0] <- m
	p.asked = p.asked[1:]
	return nil
}

// note remembers what is to be removed, up to the bound.
func (p *pruner) note(names []extraName) error {
	most := p.target.opt.MaxDelete
	for _, x := range names {
		n, err := p.remover.count(path.Join(p.target.base, x.folder, x.name), x.kind, most)
		if err != nil {
			return err
		}
		p.mu.Lock()
		p.count += n
		p.over = p.over || p.count > most
		over := p.over
		p.extra = append(p.extra, x)
		p.mu.Unlock()
		if over {
			return errEnough
		}
	}
	return nil
}
