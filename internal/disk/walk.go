package disk

import (
	"context"
	"errors"
	"io"
	"os"
)

const (
	// walkBatch is how many names of a folder are known at a time. The system gives some 200 of them
	// at a time, whatever is asked for.
	walkBatch = 128
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
// way down holds two or three descriptors and at most walkBatch names. Each folder below holds no
// descriptor and at most deepBatch names, or one where those above have deepMemory.
func (t *Tree) Walk(ctx context.Context, path string, opt WalkOptions,
	visit func(Meta) error, failed func(path string, err error),
) error {
	t.folders.changed() // a tree that was just exchanged for another must be noticed
	w := walker{tree: t, ctx: ctx, opt: opt, visit: visit, failed: failed, reserved: func(*folder, string) {}}
	if opt.Foreign {
		w.reserved = w.foreign
	}
	return w.walk(path)
}

type walker struct {
	tree     *Tree
	ctx      context.Context
	opt      WalkOptions
	visit    func(Meta) error
	failed   func(path string, err error)
	reserved func(f *folder, name string) // gets each name of partial files and the like

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
func (w *walker) first(path string) (sub *folder, err error) {
	f, base, err := w.tree.parent(path)
	if err != nil {
		return nil, at("walk", path, err)
	}
	defer f.release()
	dir, err := f.dir()
	if err != nil {
		return nil, at("walk", path, err)
	}
	m, err := f.describe(dir, base, path)
	if err != nil {
		return nil, at("walk", path, err)
	}
	w.dev = m.ID.Dev
	return w.entry(f, dir, base, m)
}

// entry visits m, which is base in f. dir is an open file of f. If m is a folder to descend into,
// entry opens it for content.
func (w *walker) entry(f *folder, dir *os.File, base string, m Meta) (sub *folder, err error) {
	if err := w.ctx.Err(); err != nil {
		return nil, err
	}
	elsewhere := w.opt.OneFileSystem && m.ID.Dev != w.dev
	if elsewhere && m.Kind != Dir || w.opt.Skip != nil && w.opt.Skip(m) {
		return nil, nil
	}
	if w.opt.Xattrs {
		m.Xattrs, m.XattrErr = readXattrs(dir, base)
	}
	if err := w.visit(m); err != nil {
		return nil, err
	}
	if m.Kind != Dir || elsewhere {
		return nil, nil
	}
	if base == "." {
		return f.retain(), nil
	}
	// The cache keeps this folder, since somebody will probably open its files soon.
	sub, err = w.tree.enter(f, base)
	if err != nil {
		w.failed(m.Path, at("open", m.Path, err))
		return nil, nil
	}
	return sub, nil
}

// content visits the entries of f, and releases it.
func (w *walker) content(f *folder) error {
	w.depth++
	defer func() { w.depth-- }()
	if w.depth > openDepth {
		path := f.path
		f.release()
		return w.deepContent(path)
	}
	defer f.release()
	dir, err := f.root.Open(".")
	if err != nil {
		w.failed(f.path, at("read folder", f.path, err))
		return nil
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(walkBatch)
		for _, name := range names {
			sub, err := w.name(f, dir, name)
			if err == nil && sub != nil {
				err = w.content(sub)
			}
			if err != nil {
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

// name visits the entry of this name in f. It returns what entry returns.
func (w *walker) name(f *folder, dir *os.File, name string) (sub *folder, err error) {
	if isReserved(name) {
		w.reserved(f, name)
		return nil, nil
	}
	path := childPath(f.path, name)
	if err := checkName(name, path); err != nil {
		w.failed(path, err)
		return nil, nil
	}
	m, err := f.describe(dir, name, path)
	if err != nil {
		w.failed(path, at("stat", path, err))
		return nil, nil
	}
	return w.entry(f, dir, name, m)
}

// foreign passes a reserved name to failed if fxfer did not make it.
func (w *walker) foreign(f *folder, name string) {
	if isOwn(name) {
		return
	}
	path := childPath(f.path, name)
	if dir, err := f.dir(); err == nil && w.opt.Skip != nil {
		if m, err := f.describe(dir, name, path); err == nil && w.opt.Skip(m) {
			return
		}
	}
	w.failed(path, checkName(name, path))
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
	f, err := w.tree.openFolder(path)
	if err != nil {
		w.failed(path, at("read folder", path, err))
		return folders, nil
	}
	defer f.release()
	dir, err := f.root.Open(".")
	if err != nil {
		w.failed(path, at("read folder", path, err))
		return folders, nil
	}
	defer dir.Close()
	for {
		entries, readErr := dir.ReadDir(readBatch)
		for _, e := range entries {
			name := e.Name()
			switch {
			case !e.IsDir() || isReserved(name):
				if after == "" {
					_, err = w.name(f, dir, name)
				}
			default:
				folders.add(name)
			}
			if err != nil {
				return folders, err
			}
		}
		if readErr == nil {
			continue
		}
		if !errors.Is(readErr, io.EOF) {
			w.failed(path, at("read folder", path, readErr))
		}
		folders.sort()
		return folders, nil
	}
}

// deepFolder visits the folder name in the folder at path. It returns what entry returns.
func (w *walker) deepFolder(path, name string) (sub *folder, err error) {
	f, err := w.tree.openFolder(path)
	if err != nil {
		w.failed(path, at("read folder", path, err))
		return nil, nil
	}
	defer f.release()
	dir, err := f.dir()
	if err != nil {
		w.failed(path, at("read folder", path, err))
		return nil, nil
	}
	return w.name(f, dir, name)
}
