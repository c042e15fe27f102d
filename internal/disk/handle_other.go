//go:build !linux

package disk

import (
	"errors"
	"io/fs"
	"os"
	"time"
)

// handle gives access to the metadata of one entry.
type handle struct {
	root *os.Root
	name string   // in root
	file *os.File // nil unless open for writing
	sub  *folder  // to release, or nil
}

// openHandle finds the entry base in f for its metadata. The caller closes the handle.
func openHandle(f *folder, base string) (handle, error) {
	info, err := f.root.Lstat(base)
	if err != nil {
		return handle{}, err
	}
	if !info.IsDir() || base == "." {
		return handle{root: f.root, name: base}, nil
	}
	sub, err := f.enter(base)
	if err != nil {
		return handle{}, err
	}
	return handle{root: sub.root, name: ".", sub: sub}, nil
}

// fileHandle returns a handle of file, which is open for writing as name in folder. It is not
// closed.
func fileHandle(folder *os.Root, name string, file *os.File) handle {
	return handle{root: folder, name: name, file: file}
}

func (h handle) Close() {
	if h.sub != nil {
		h.sub.release()
	}
}

// describe describes the entry, without the target of a symlink and without extended attributes.
func (h handle) describe(path string) (Meta, error) {
	info, err := h.root.Lstat(h.name)
	if err != nil {
		return Meta{}, err
	}
	return metaOf(path, info)
}

// chown sets owner and group. -1 keeps the present one.
func (h handle) chown(uid, gid int64) error { return h.root.Lchown(h.name, int(uid), int(gid)) }

func (h handle) chmod(mode fs.FileMode) error {
	if h.file != nil {
		return h.file.Chmod(mode)
	}
	return h.root.Chmod(h.name, mode)
}

// setTime sets the modification time.
func (h handle) setTime(mtime time.Time) error {
	if h.file != nil {
		return setFileTime(h.root, h.name, h.file, mtime)
	}
	info, err := h.root.Lstat(h.name)
	if err != nil {
		return err
	}
	if info.Mode().Type() == fs.ModeSymlink {
		return setLinkTime(h.root, h.name, mtime)
	}
	return h.root.Chtimes(h.name, noTime, mtime)
}

// Extended attributes are not read or written here.

func (handle) xattrs() ([]string, error)     { return nil, errors.ErrUnsupported }
func (handle) xattr(string) ([]byte, error)  { return nil, errors.ErrUnsupported }
func (handle) setXattr(string, []byte) error { return errors.ErrUnsupported }
func (handle) removeXattr(string) error      { return errors.ErrUnsupported }
