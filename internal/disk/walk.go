package disk

import (
	"context"
	"errors"
	"io"
	"os"
)

// walkBatch is how many names of a folder are read at a time.
const walkBatch = 1024

// WalkOptions say what Walk visits. The zero value visits everything.
type WalkOptions struct {
	// OneFileSystem stays on the file system of the path where the walk starts. On others it visits
	// only the folders that they are mounted on, without content.
	OneFileSystem bool
	// Xattrs fills Meta.Xattrs, and Meta.XattrErr where that fails.
	Xattrs bool
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
// Memory follows the depth, not the number of entries: each folder on the way down holds two or
// three descriptors and at most walkBatch names.
func (t *Tree) Walk(ctx context.Context, path string, opt WalkOptions,
	visit func(Meta) error, failed func(path string, err error),
) error {
	t.folders.changed() // a tree that was just exchanged for another must be noticed
	w := walker{tree: t, ctx: ctx, opt: opt, visit: visit, failed: failed, reserved: func(*folder, string) {}}
	return w.walk(path)
}

type walker struct {
	tree     *Tree
	ctx      context.Context
	opt      WalkOptions
	visit    func(Meta) error
	failed   func(path string, err error)
	reserved func(f *folder, name string) // gets each name of partial files and the like

	dev uint64 // of the entry where the walk starts
}

// walk visits path and everything below.
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

// entry visits m, which is base in f, and descends. dir is an open file of f.
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
	// The cache keeps this folder, since somebody will probably open its files soon.
	sub, err := w.tree.enter(f, base)
	if err != nil {
		w.failed(m.Path, at("open", m.Path, err))
		return nil
	}
	defer sub.release()
	return w.content(sub)
}

// content visits the entries of f.
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

// name visits the entry of this name in f.
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
