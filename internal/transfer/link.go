package transfer

import (
	"errors"
	"path"
	"sync"
	"syscall"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

// linker gives files further names.
type linker struct {
	target *target
	table  *table

	mu    sync.Mutex          // guards the following; a leaf
	known map[fileID]struct{} // files of the target that have several names, one of which stays
}

// link gives a file that was announced before another name. Without verdict, that comes when the
// file has its own.
func (l *linker) link(e *receiving, have *disk.Meta, missing bool, a *wire.Answer) error {
	x, opt := &e.entry, &l.target.opt
	if l.target.rename {
		return protocolError("the only entry is a hard link")
	}
	if err := disk.CheckPath(x.Link); err != nil {
		return err
	}
	if x.First >= e.index {
		return protocolError("a hard link to an entry that comes later")
	}
	if l.table.waitFor(x.First, e) {
		return nil
	}
	if opt.DryRun {
		l.wouldLink(e, have, missing, a)
		return nil
	}
	a.Verdict = wire.Done
	// The file may have been left as it was.
	if c := opt.Compare; c.Update || c.Existing || c.IgnoreExisting {
		file, err := l.target.tree.Stat(path.Join(l.target.base, x.Link))
		if err != nil || !file.ModTime.Equal(x.Time()) || l.mayLink(e) != nil {
			a.Verdict = wire.Skip
			return nil
		}
	}
	return l.linkNow(e)
}

// wouldLink answers in a dry run for another name of a file that stays.
func (l *linker) wouldLink(e *receiving, have *disk.Meta, missing bool, a *wire.Answer) {
	file, err := l.target.tree.Stat(path.Join(l.target.base, e.entry.Link))
	if !missing && err == nil && file.ID.Ino == have.ID.Ino && file.ID.Dev == have.ID.Dev {
		a.Verdict = wire.Same
	} else {
		a.Verdict, a.New = wire.Lack, missing
	}
}

// mayLink refuses a link to what this session has not put in place or found there. Otherwise whoever
// may write could give somebody else's file another name, in a folder that more people can reach.
func (l *linker) mayLink(e *receiving) error {
	from := path.Join(l.target.base, e.entry.Link)
	if err := disk.CheckPath(from); err != nil || l.table.isInPlace(&e.entry) {
		return err
	}
	return l.target.tree.MayLink(from)
}

// linkNow links an entry to its file, which has its name.
func (l *linker) linkNow(e *receiving) error {
	t := l.target
	from := path.Join(t.base, e.entry.Link)
	if err := l.mayLink(e); err != nil {
		return err
	}
	have, err := t.tree.Stat(from)
	if err != nil || have.Kind != disk.File || !have.ModTime.Equal(e.entry.Time()) {
		return wire.Errorf(wire.CodeChanged, "its file %q is missing", e.entry.Link)
	}
	if err := t.usage.take(e, 0, 1); err != nil {
		return err
	}
	t.keepOld(e)
	err = t.make(e.meta.Path, func() error { return t.tree.Link(from, e.meta.Path) })
	if err != nil && cannotLink(err) {
		t.warnings.add(disk.Warning{Path: e.meta.Path, What: "hard link", Err: err})
		err = l.copy(e, from)
	}
	return err
}

// cannotLink reports whether an error says that the file system has no such link.
func cannotLink(err error) bool {
	return errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EMLINK) ||
		errors.Is(err, syscall.EXDEV) || errors.Is(err, errors.ErrUnsupported)
}

// copy makes a hard link's file anew where it cannot be linked.
func (l *linker) copy(e *receiving, from string) error {
	meta, err := l.target.tree.StatXattrs(from)
	if err != nil {
		return err
	}
	meta.Path = e.meta.Path
	return l.target.copyFile(e, meta, l.target.meta, l.target.tree, from)
}

// answer answers for a hard link whose file has ended; became is how.
func (l *linker) answer(e *receiving, became *Event) (a wire.Answer, err error) {
	a = wire.Answer{Index: e.index, Verdict: wire.Done}
	switch {
	case became.Err != nil:
		return a, wire.Errorf(codeOf(became.Err), "its file %q failed: %v", e.entry.Link, became.Err)
	case !l.target.opt.DryRun:
		return a, l.linkNow(e)
	}
	have, failed := l.target.tree.Stat(e.meta.Path)
	if l.wouldLink(e, &have, failed != nil, &a); became.Kind == outcomes[wire.Lack] {
		a.Verdict = wire.Lack // to the new file
	}
	return a, nil
}

// extra reports whether a file of the target is, unlike the source's, another name of one that
// stays. It must not share that one's metadata.
func (l *linker) extra(have *disk.Meta) bool {
	if have.Nlink < 2 || have.ID.Ino == 0 {
		return false
	}
	id := fileID{have.ID.Dev, have.ID.Ino}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, known := l.known[id]
	if l.known == nil {
		l.known = make(map[fileID]struct{})
	}
	l.known[id] = struct{}{}
	return known
}
