package disk

import (
	"context"
	"errors"
	"io/fs"
)

// List visits the entry at path or, if that is a folder, the entries in it, sorted by name. It does
// not descend. It leaves out entries of kinds that it does not know, partial files and the like. Each
// other entry that it cannot describe goes to failed, with its name: whoever compares folders must not
// take it for missing. If CheckPath rejects its path, the error matches ErrPath.
func (t *Tree) List(
	ctx context.Context, path string, visit func(Meta) error, failed func(name string, err error),
) error {
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
		if isReserved(name) && isOwn(name) {
			continue
		}
		if err := checkName(name, childPath(path, name), CheckPath); err != nil {
			failed(name, err)
			continue
		}
		m, err := f.describe(dir, name, name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrUnsupportedKind) { // gone meanwhile, or unknown
			continue
		}
		if err != nil {
			failed(name, at("stat", childPath(path, name), err))
			continue
		}
		if err := visit(m); err != nil {
			return err
		}
	}
	return nil
}
