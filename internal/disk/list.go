package disk

import "context"

// List visits the entry at path or, if that is a folder, the entries in it, sorted by name. It does
// not descend, and skips entries that it cannot describe.
func (t *Tree) List(ctx context.Context, path string, visit func(Meta) error) error {
	m, err := t.Stat(path)
	if err != nil {
		return err
	}
	if m.Kind != Dir {
		return visit(m)
	}
	f, err := t.folder(path)
	if err != nil {
		return at("list", path, err)
	}
	defer f.release()
	dir, err := f.dir()
	if err != nil {
		return at("list", path, err)
	}
	for name, err := range namesIn(f.root) {
		if err != nil {
			return at("list", path, err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if isReserved(name) || CheckPath(name) != nil {
			continue
		}
		m, err := f.describe(dir, name, name)
		if err != nil {
			continue
		}
		if err := visit(m); err != nil {
			return err
		}
	}
	return nil
}
