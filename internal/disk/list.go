package disk

import (
	"context"
	"os"
	"slices"
)

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
	names, err := namesIn(f.root)
	if err != nil {
		return at("list", path, err)
	}
	for _, name := range names {
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

// namesIn returns the names in a folder, sorted.
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
