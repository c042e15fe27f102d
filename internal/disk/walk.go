package disk

import (
	"context"
	"errors"
	"io"
	"os"
)

// walkBatch is how many names of a folder are read at a time.
const walkBatch = 1024

// WalkOptions choose what Walk visits. The zero value visits everything.
type WalkOptions struct {
	// OneFileSystem stays on the file system of the path that the walk starts at:
	// of others it visits only the folders that they are mounted on, without content.
	OneFileSystem bool
	// Xattrs fills Meta.Xattrs, and Meta.XattrErr where that fails.
	Xattrs bool
	// Skip, if not nil, says of each entry whether to leave it out, a folder with
	// all below it. Its Meta is without extended attributes.
	Skip func(Meta) bool
}

// Walk visits the entry at path and, in a folder, all below it: a folder before
// what it holds, apart from that in no order. Symlinks are visited, never
// followed. What cannot be read, has vanished, is of an unsupported kind or has a
// name CheckPath refuses goes to failed, and the walk goes on; partial files and
// their like are passed over. Walk ends early with the error of visit, of ctx, or
// of path itself.
//
// Memory follows the depth, not the number of entries: each folder on the way
// down holds two or three descriptors and at most walkBatch names.
func (t *Tree) Walk(ctx context.Context, path string, opt WalkOptions,
	visit func(Meta) error, failed func(path string, err error),
) error {
	t.folders.changed() // a tree that was just exchanged for another must not be missed
	w := walker{tree: t, ctx: ctx, opt: opt, visit: visit, failed: failed, reserved: func(*folder, string) {}}
	return w.walk(path)
}

type walker struct {
	tree     *Tree
	ctx      context.Context
	opt      WalkOptions
	visit    func(Meta) error
	failed   func(path string, err error)
	reserved func(f *folder, name string) // called for each name of partials and their like

	dev uint64 // of the entry at which the walk starts
}

// walk visits path and what is below.
func (w *walker) walk(path string) error {
	f, base, err := w.tree.parent(path)
	if err != nil {
		return at("walk", path, err)
	}
	defer f.release()
	dir, err := f.dir()
	if err != nil {
		return at("walk", path, err)
	}
	m, err := f.describe(dir, base, path)
	if err != nil {
		return at("walk", path, err)
	}
	w.dev = m.ID.Dev
	return w.entry(f, dir, base, m)
}

// entry visits m, which is base in f, whose file is dir, and descends.
func (w *walker) entry(f *folder, dir *os.File, base string, m Meta) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	elsewhere := w.opt.OneFileSystem && m.ID.Dev != w.dev
	if elsewhere && m.Kind != Dir || w.opt.Skip != nil && w.opt.Skip(m) {
		return nil
	}
	if w.opt.Xattrs {
		m.Xattrs, m.XattrErr = readXattrs(dir, base)
	}
	if err := w.visit(m); err != nil {
		return err
	}
	if m.Kind != Dir || elsewhere {
		return nil
	}
	if base == "." {
		return w.content(f)
	}
	// It is kept, as its files are likely to be opened soon.
	sub, err := w.tree.enter(f, base)
	if err != nil {
		w.failed(m.Path, at("open", m.Path, err))
		return nil
	}
	defer sub.release()
	return w.content(sub)
}

// content visits what is in f.
func (w *walker) content(f *folder) error {
	dir, err := f.root.Open(".")
	if err != nil {
		w.failed(f.path, at("read folder", f.path, err))
		return nil
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(walkBatch)
		for _, name := range names {
			if err := w.name(f, dir, name); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			w.failed(f.path, at("read folder", f.path, err))
			return nil
		}
	}
}

// name visits the entry of that name in f.
func (w *walker) name(f *folder, dir *os.File, name string) error {
	if isReserved(name) {
		w.reserved(f, name)
		return nil
	}
	path := childPath(f.path, name)
	if err := checkName(name, path); err != nil {
		w.failed(path, err)
		return nil
	}
	m, err := f.describe(dir, name, path)
	if err != nil {
		w.failed(path, at("stat", path, err))
		return nil
	}
	return w.entry(f, dir, name, m)
}
