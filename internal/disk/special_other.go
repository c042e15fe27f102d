//go:build !linux

package disk

import "errors"

// makeNode is not possible here.
func makeNode(*folder, string, Kind, uint64) error { return errors.ErrUnsupported }

// link makes the entry name in to another name of the entry base in from.
func (t *Tree) link(from *folder, base string, to *folder, name string) error {
	return t.root.Link(childPath(from.path, base), childPath(to.path, name))
}

// linkFrom is link for an entry in a folder of another tree. Both are snapshots in the same tree.
func (t *Tree) linkFrom(other *Tree, from *folder, base string, to *folder, name string) error {
	if t.above == nil || t.above != other.above {
		return errors.ErrUnsupported
	}
	return t.above.Link(childPath(other.place, childPath(from.path, base)), childPath(t.place, childPath(to.path, name)))
}

// move renames an entry from one folder to another. It replaces a file, or an empty folder if the
// entry is a folder.
func (t *Tree) move(from *folder, base string, to *folder, name string) error {
	to.fill()
	if from == to {
		return from.root.Rename(base, name)
	}
	return t.root.Rename(childPath(from.path, base), childPath(to.path, name))
}

// moveNew is move for a name that was free a moment ago.
func (t *Tree) moveNew(from *folder, base string, to *folder, name string) error {
	return t.move(from, base, to, name)
}
