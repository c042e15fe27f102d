package disk

import (
	"fmt"
	"io/fs"
)

// ReadFile fills buf, of id.Size bytes, with the whole content of the regular
// file at path, without the cost of an open Source. If the file has not the
// identity id, before reading and afterwards, or is gone, the error matches
// ErrChanged; what is in buf is of no use after any error. Like all reading it
// can't see a change that leaves the size, and the time as fine as the file system
// keeps it.
func (t *Tree) ReadFile(path string, id Identity, buf []byte) error {
	if int64(len(buf)) != id.Size {
		return at("read", path, fmt.Errorf("%w: room for %d of %d bytes", fs.ErrInvalid, len(buf), id.Size))
	}
	err := t.withParent(path, func(f *folder, base string) error { return f.readFile(base, id, buf) })
	return at("read", path, goneIsChanged(err))
}
