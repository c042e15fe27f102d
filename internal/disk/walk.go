package disk

import (
	"context"
	"os"
	"slices"
)

// Walk visits the entry at path and, in a folder, all below it: a folder before
// what it holds, and each folder's entries in the byte order of their names.
// Symlinks are visited, never followed. What cannot be read, has vanished, is of
// an unsupported kind or has a name CheckPath refuses goes to failed, and the
// walk goes on; partial files and their like are passed over. Walk ends early
// with the error of visit, of ctx, or of path itself.
//
// Each folder on the way down holds one handle and its sorted names in memory.
func (t *Tree) Walk(ctx context.Context, path string, visit func(Meta) error, failed func(path string, err error)) error {
	folder, base, err := t.enterParent(path)
	if err != nil {
		return at("walk", path, err)
	}
	defer folder.Close()
	m, err := stat(folder, base, path)
	if err != nil {
		return at("walk", path, err)
	}
	w := walker{ctx: ctx, visit: visit, failed: failed, reserved: func(*os.Root, string) {}}
	return w.entry(folder, base, m)
}

type walker struct {
	ctx      context.Context
	visit    func(Meta) error
	failed   func(path string, err error)
	reserved func(folder *os.Root, name string) // called for each name of partials and their like
}

// entry visits m, which is base in folder, and descends.
func (w *walker) entry(folder *os.Root, base string, m Meta) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if err := w.visit(m); err != nil {
		return err
	}
	if m.Kind != Dir {
		return nil
	}
	sub, err := enter(folder, base)
	if err != nil {
		w.failed(m.Path, at("open", m.Path, err))
		return nil
	}
	defer sub.Close()
	return w.content(sub, m.Path)
}

func (w *walker) content(folder *os.Root, path string) error {
	names, err := namesIn(folder)
	if err != nil {
		w.failed(path, at("read folder", path, err))
	}
	for _, name := range names {
		if isReserved(name) {
			w.reserved(folder, name)
			continue
		}
		child := name
		if path != "." {
			child = path + "/" + name
		}
		if err := CheckPath(child); err != nil {
			w.failed(child, err)
			continue
		}
		m, err := stat(folder, name, child)
		if err != nil {
			w.failed(child, at("stat", child, err))
			continue
		}
		if err := w.entry(folder, name, m); err != nil {
			return err
		}
	}
	return nil
}

// namesIn lists a folder, sorted. With an error come the names read before it.
func namesIn(folder *os.Root) ([]string, error) {
	f, err := folder.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}
