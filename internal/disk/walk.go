package disk

import (
	"context"
	"errors"
	"io"
)

const (
	// openDepth is how many folders on the way down stay open. Whoever makes a tree decides how
	// deep it is, and descriptors are scarce.
	openDepth = 16
	// deepBatch is how many folders are known at a time in each folder that does not stay open.
	deepBatch = 256
	// deepMemory bounds the names that are known in all such folders of a walk, bytes. One name of
	// each is known in any case.
	deepMemory = 1 << 20
)

// WalkOptions say what Walk visits. The zero value visits everything.
type WalkOptions struct {
	// OneFileSystem stays on the file system of the path where the walk starts. On others it visits
	// only the folders that they are mounted on, without content.
	OneFileSystem bool
	// Xattrs fills Meta.Xattrs, and Meta.XattrErr where that fails.
	Xattrs bool
	// Foreign passes to failed reserved names that fxfer did not make, unless Skip leaves them out.
	Foreign bool
	// Skip, unless nil, says whether to leave an entry out, and with a folder everything below it.
	// The Meta that it gets lacks extended attributes.
	Skip func(Meta) bool
}

// Walk visits the entry at path and, in a folder, everything below it. It visits a folder before
// its content, and otherwise follows no order. It visits symlinks and does not follow them. It
// passes to failed what cannot be read, has vanished, has an unsupported kind or a name that
// CheckPath rejects, and continues. It skips partial files and the like. Walk ends early with the
// error of visit, of ctx, or of path itself.
//
// Memory follows the depth, not the number of entries. Each of the first openDepth folders on the
// way down holds one or two descriptors and a few hundred names. Each folder below holds no
// descriptor and at most deepBatch names, or one where those above have deepMemory.
func (t *Tree) Walk(ctx context.Context, path string, opt WalkOptions,
	visit func(Meta) error, failed func(path string, err error),
) error {
	t.folders.changed() // a tree that was just exchanged for another must be noticed
	w := walker{tree: t, ctx: ctx, opt: opt, visit: visit, failed: failed}
	return w.walk(path)
}

type walker struct {
	tree     *Tree
	ctx      context.Context
	opt      WalkOptions
	visit    func(Meta) error
	failed   func(path string, err error)
	reserved func(f *folder, name string) // gets each name of partial files and the like; nil for none

	dev   uint64 // of the entry where the walk starts
	depth int    // number of folders on the way down
	names int    // what the names in deep folders take, of deepMemory
}

// walk visits path and everything below.
func (w *walker) walk(path string) error {
	sub, err := w.first(path)
	if err != nil || sub == nil {
		return err
	}
	return w.content(sub)
}

// first visits the entry at path. It returns what entry returns.
func (w *walker) first(path string) (sub *folderReader, err error) {
	if err := checkListed(path); err != nil {
		return nil, err
	}
	above, base := splitPath(path)
	l, err := w.tree.list(above)
	if err != nil {
		return nil, at("walk", path, err)
	}
	defer l.close()
	m, err := l.describe(base, path)
	if err != nil {
		return nil, at("walk", path, err)
	}
	w.dev = m.ID.Dev
	return w.entry(l, base, m)
}

// entry visits m, which is base in l. If m is a folder to descend into, entry opens it for content.
func (w *walker) entry(l *folderReader, base string, m Meta) (sub *folderReader, err error) {
	if err := w.ctx.Err(); err != nil {
		return nil, err
	}
	elsewhere := w.opt.OneFileSystem && m.ID.Dev != w.dev
	if elsewhere && m.Kind != Dir || w.opt.Skip != nil && w.opt.Skip(m) {
		return nil, nil
	}
	if w.opt.Xattrs {
		m.Xattrs, m.XattrErr = l.xattrs(base)
	}
	if err := w.visit(m); err != nil {
		return nil, err
	}
	if m.Kind != Dir || elsewhere {
		return nil, nil
	}
	sub, err = l.enter(base, m.Path)
	if err != nil {
		w.failed(m.Path, at("open", m.Path, err))
		return nil, nil
	}
	return sub, nil
}

// content visits the entries of l, and closes it.
func (w *walker) content(l *folderReader) error {
	w.depth++
	defer func() { w.depth-- }()
	if w.depth > openDepth {
		l.close()
		return w.deepContent(l.path)
	}
	defer l.close()
	for {
		path, name, _, err := l.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			w.failed(l.path, at("read folder", l.path, err))
			return nil
		}
		sub, err := w.name(l, path, name)
		if err == nil && sub != nil {
			err = w.content(sub)
		}
		if err != nil {
			return err
		}
	}
}

// name visits the entry of this name in l, which has this path in the tree. It returns what entry
// returns.
func (w *walker) name(l *folderReader, path, name string) (sub *folderReader, err error) {
	if isReserved(name) {
		w.leftover(l, path, name)
		return nil, nil
	}
	if err := checkName(name, path, checkListed); err != nil {
		w.failed(path, err)
		return nil, nil
	}
	m, err := l.describe(name, path)
	if err != nil {
		w.failed(path, at("stat", path, err))
		return nil, nil
	}
	return w.entry(l, name, m)
}

// leftover deals with a reserved name in l.
func (w *walker) leftover(l *folderReader, path, name string) {
	if w.opt.Foreign {
		w.foreign(l, path, name)
	}
	if w.reserved == nil {
		return
	}
	f, err := w.tree.openFolder(l.path)
	if err != nil {
		w.failed(path, at("open", l.path, err))
		return
	}
	defer f.release()
	w.reserved(f, name)
}

// foreign passes a reserved name to failed if fxfer did not make it.
func (w *walker) foreign(l *folderReader, path, name string) {
	if isOwn(name) {
		return
	}
	if w.opt.Skip != nil {
		if m, err := l.describe(name, path); err == nil && w.opt.Skip(m) {
			return
		}
	}
	w.failed(path, checkListed(path))
}

// deepContent visits the entries of the folder at path. While it descends, the folder is closed: it
// is read once for everything but folders, and once more for each deepBatch folders.
func (w *walker) deepContent(path string) error {
	for after := ""; ; {
		folders, err := w.scan(path, after)
		if err != nil {
			return err
		}
		w.names += folders.held
		for _, name := range folders.names {
			sub, err := w.deepFolder(path, name)
			if err == nil && sub != nil {
				err = w.content(sub)
			}
			if err != nil {
				return err
			}
		}
		w.names -= folders.held
		if !folders.more {
			return nil
		}
		after = folders.last
	}
}

// scan returns the first names of folders that come after a name. If that is "", it visits
// everything in the folder but folders.
func (w *walker) scan(path, after string) (folders firstNames, err error) {
	folders = firstNames{after: after, most: deepBatch, bytes: max(0, deepMemory-w.names) / 4}
	l, err := w.tree.list(path)
	if err != nil {
		w.failed(path, at("read folder", path, err))
		return folders, nil
	}
	defer l.close()
	for {
		entry, name, isDir, readErr := l.next()
		switch {
		case readErr != nil:
			if !errors.Is(readErr, io.EOF) {
				w.failed(path, at("read folder", path, readErr))
			}
			folders.sort()
			return folders, nil
		case isDir && !isReserved(name):
			folders.add(name)
		case after == "":
			if _, err := w.name(l, entry, name); err != nil {
				return folders, err
			}
		}
	}
}

// deepFolder visits the folder name in the folder at path. It returns what entry returns.
func (w *walker) deepFolder(path, name string) (sub *folderReader, err error) {
	l, err := w.tree.list(path)
	if err != nil {
		w.failed(path, at("read folder", path, err))
		return nil, nil
	}
	defer l.close()
	return w.name(l, childPath(path, name), name)
}

// list opens the folder at path, which was checked, to read what is in it.
func (t *Tree) list(path string) (*folderReader, error) {
	f, err := t.openFolder(path)
	if err != nil {
		return nil, err
	}
	defer f.release()
	return f.list()
}
