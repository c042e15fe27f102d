package disk

import (
	"fmt"
	"io/fs"
)

// ReadFile fills buf, of id.Size bytes, with the whole content of the regular file at path, without
// the cost of an open Source. The error matches ErrChanged if the file is gone, or does not have
// the identity id before and after reading. After any error the content of buf is useless. Like all
// reading, ReadFile cannot see a change that keeps the size, and keeps the time at the resolution
// of the file system.
func (t *Tree) ReadFile(path string, id Identity, buf []byte) error {
	if int64(len(buf)) != id.Size {
		return at("read", path, fmt.Errorf("%w: room for %d of %d bytes", fs.ErrInvalid, len(buf), id.Size))
	}
	err := t.withParent(path, func(f *folder, base string) error { return f.readFile(base, id, buf) })
	return at("read", path, goneIsChanged(err))
}
