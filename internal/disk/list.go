package disk

import "context"

// List visits the entry at path or, where that is a folder, what it holds, sorted by name. It doesn't descend. What
// cannot be described is left out.
func (t *Tree) List(ctx context.Context, path string, visit func(Meta) error) error {
	m, err := t.Stat(path)
	if err != nil {
		return err
	}
	if m.Kind != Dir {
		return visit(m)
	}
	folder, err := t.enter(path)
	if err != nil {
		return at("list", path, err)
	}
	defer folder.Close()
	names, err := namesIn(folder)
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
		m, err := stat(folder, name, name)
		if err != nil {
			continue
		}
		if err := visit(m); err != nil {
			return err
		}
	}
	return nil
}
