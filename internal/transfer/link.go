package transfer

import (
	"errors"
	"path"
	"sync"
	"syscall"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

// linker gives entries further names.
type linker struct {
	target *target
	table  *table

	mu    sync.Mutex          // guards the following; a leaf
	known map[fileID]struct{} // what in the target has several names, one of which stays
}

// link gives a file that was announced before another name. Without verdict, that comes when the
// file has its own.
func (l *linker) link(e *receiving, have *disk.Meta, missing bool, a *wire.Answer) error {
	x, opt := &e.entry, &l.target.opt
	if l.target.rename {
		return protocolError("the only entry is a hard link")
	}
	if err := checkFirst(e, x.Link); err != nil {
		return err
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
		if err != nil || !file.ModTime.Equal(x.Time()) || l.mayLink(e, x.Link) != nil {
			a.Verdict = wire.Skip
			return nil
		}
	}
	return l.linkNow(e)
}

// checkFirst refuses a malformed reference to the entry with the path to.
func checkFirst(e *receiving, to string) error {
	if err := disk.CheckPath(to); err != nil {
		return err
	}
	if e.entry.First >= e.index {
		return protocolError("a hard link to an entry that comes later")
	}
	return nil
}

// wouldLink answers in a dry run for another name of a file that stays.
func (l *linker) wouldLink(e *receiving, have *disk.Meta, missing bool, a *wire.Answer) {
	if !missing && l.isLink(have, e.entry.Link) {
		a.Verdict = wire.Same
	} else {
		a.Verdict, a.New = wire.Lack, missing
	}
}

// isLink reports whether what the target has is a hard link to the entry at a path.
func (l *linker) isLink(have *disk.Meta, to string) bool {
	first, err := l.target.tree.Stat(path.Join(l.target.base, to))
	return err == nil && first.ID.Ino == have.ID.Ino && first.ID.Dev == have.ID.Dev
}

// linkAlias makes a link or special file another name of the entry that it is said to be. It returns
// false if it can't or may not be: then it becomes an entry of its own.
func (l *linker) linkAlias(e *receiving) (bool, error) {
	t := l.target
	from := path.Join(t.base, e.entry.Alias)
	if e.entry.Alias == "" || l.mayLink(e, e.entry.Alias) != nil {
		return false, nil
	}
	first, err := t.tree.StatXattrs(from)
	if err != nil || t.differs(&first, &e.meta, &e.entry) {
		return false, nil
	}
	err = t.make(e.meta.Path, func() error { return t.tree.Link(from, e.meta.Path) })
	if err != nil && cannotLink(err) {
		return false, nil
	}
	return err == nil, err
}

// hasNames reports whether what the target has at the path of a link or special file has the names
// that the source's has, as far as they are known.
func (l *linker) hasNames(e *receiving, have *disk.Meta) bool {
	if e.entry.Alias != "" {
		return l.isLink(have, e.entry.Alias)
	}
	return !l.extra(have)
}

// mayLink refuses a link to what this session has not put in place or found there. Otherwise whoever
// may write could give somebody else's file another name, in a folder that more people can reach.
func (l *linker) mayLink(e *receiving, to string) error {
	from := path.Join(l.target.base, to)
	if err := disk.CheckPath(from); err != nil || l.table.isInPlace(e.entry.First, to) {
		return err
	}
	return l.target.tree.MayLink(from)
}

// linkNow links an entry to its file, which has its name.
func (l *linker) linkNow(e *receiving) error {
	t := l.target
	from := path.Join(t.base, e.entry.Link)
	if err := l.mayLink(e, e.entry.Link); err != nil {
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

// extra reports whether an entry of the target is, unlike the source's, another name of one that
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
