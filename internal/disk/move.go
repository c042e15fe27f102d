package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// MakeDir makes the folder at path, which is on the medium then. The name must be free, and the
// folder above must exist. Other than Mkdir, it changes nothing that exists.
//
// Errors: ErrExists, fs.ErrNotExist, ErrPath and ErrNotFolder.
func (t *Tree) MakeDir(path string, mode fs.FileMode) error {
	err := t.withParent(path, func(f *folder, base string) error {
		if base == "." {
			return errFolderExists
		}
		err := f.root.Mkdir(base, mode.Perm())
		if errors.Is(err, fs.ErrExist) {
			return f.taken(base)
		}
		if err != nil {
			return err
		}
		t.folders.made(path)
		return syncFolder(f.root)
	})
	return at("mkdir", path, err)
}

// RemoveOne removes the file, symlink, special file or empty folder at path, and returns when that
// is on the medium. The root cannot be removed.
//
// Errors: ErrNotEmpty, fs.ErrNotExist, ErrPath and ErrNotFolder.
func (t *Tree) RemoveOne(path string) error {
	if path == "." {
		return at("remove", path, fmt.Errorf("%w: the root of the tree", ErrPath))
	}
	t.folders.forgetBelow(path)
	defer t.folders.changed()
	err := t.withParent(path, func(f *folder, base string) error {
		err := f.root.Remove(base)
		if errors.Is(err, fs.ErrExist) {
			return ErrNotEmpty
		}
		if err != nil {
			return err
		}
		return syncFolder(f.root)
	})
	return at("remove", path, err)
}

// Move gives the entry at path the path to, and returns when that is on the medium. The folder
// above must exist. With replace, a file takes the place of an entry that is no folder; otherwise
// the name must be free. Where the system cannot refuse a name that is taken, somebody who takes it
// in the same moment loses it. The root cannot be moved, nor a folder into itself.
//
// Errors: ErrExists, fs.ErrNotExist, ErrPath and ErrNotFolder.
func (t *Tree) Move(path, to string, replace bool) error {
	if err := CheckPath(to); err != nil {
		return at("move", to, err)
	}
	switch {
	case path == "." || to == ".":
		return at("move", path, fmt.Errorf("%w: the root of the tree", ErrPath))
	case to != path && isBelow(to, path):
		return at("move", path, fmt.Errorf("%w: %q is in it", ErrPath, clip(to)))
	}
	t.folders.forgetBelow(path) // some systems would count an open folder as in use
	defer t.folders.changed()
	err := t.withParent(path, func(from *folder, base string) error {
		return t.withParent(to, func(target *folder, name string) error {
			return t.moveEntry(from, base, target, name, replace)
		})
	})
	return at("move", path, err)
}

// moveEntry is Move between two open folders.
func (t *Tree) moveEntry(from *folder, base string, to *folder, name string, replace bool) error {
	info, err := from.root.Lstat(base)
	if err != nil {
		return err
	}
	there, err := to.root.Lstat(name)
	switch {
	case err == nil && (!replace || there.IsDir() || info.IsDir()):
		return to.taken(name)
	case err == nil && os.SameFile(info, there):
		return errSameFile // the system would leave both names
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if replace && !info.IsDir() {
		err = t.move(from, base, to, name)
	} else {
		err = t.moveNew(from, base, to, name)
	}
	if errors.Is(err, fs.ErrExist) {
		return to.taken(name)
	}
	if err != nil {
		return err
	}
	return errors.Join(syncFolder(to.root), syncFolder(from.root))
}

// taken is the error of a name that an entry of f has.
func (f *folder) taken(name string) error {
	if info, err := f.root.Lstat(name); err == nil && info.IsDir() {
		return errFolderExists
	}
	return errFileExists
}

// SyncFolder returns when the names in the folder at path are on the medium.
func (t *Tree) SyncFolder(path string) error {
	err := t.withFolder(path, syncFolder)
	return at("sync folder", path, err)
}
