//go:build !linux

package disk

import "errors"

// makeNode is not possible here.
func makeNode(*folder, string, Kind, uint64) error { return errors.ErrUnsupported }

// link makes the entry name of to another name of the entry base of from.
func (t *Tree) link(from *folder, base string, to *folder, name string) error {
	return t.root.Link(childPath(from.path, base), childPath(to.path, name))
}

// linkFrom is link from a folder of another tree. Both are snapshots in the same one.
func (t *Tree) linkFrom(other *Tree, from *folder, base string, to *folder, name string) error {
	if t.above == nil || t.above != other.above {
		return errors.ErrUnsupported
	}
	return t.above.Link(childPath(other.place, childPath(from.path, base)), childPath(t.place, childPath(to.path, name)))
}

// move renames an entry from one folder to another, over a file or an empty
// folder if it is one.
func (t *Tree) move(from *folder, base string, to *folder, name string) error {
	if from == to {
		return from.root.Rename(base, name)
	}
	return t.root.Rename(childPath(from.path, base), childPath(to.path, name))
}
