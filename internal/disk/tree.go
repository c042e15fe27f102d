// Package disk reads and writes trees of files below one folder that no path can
// leave. Sources are walked and opened without following symlinks. Targets are
// written under a reserved name beside the final one, with a checkpoint of what
// is finished, and get the final name by an atomic rename when they are complete.
//
// All access goes through an os.Root or the descriptor of a folder, one element of
// a path at a time: a symlink is never followed, not even to a place in the same
// tree, also when somebody exchanges a folder for one meanwhile.
package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Tree is a folder and all below it. Its methods are safe for concurrent use.
// Paths are as CheckPath demands.
//
// Folders stay open for the next call. Where somebody else renames, removes or
// replaces one, a call within the next 20 ms may still be about the folder that
// had the path before, as if the call had come before that. What the Tree itself
// did counts at once.
type Tree struct {
	root    *os.Root
	above   *os.Root // of a snapshot: that of the tree it is in, at place
	place   string
	folders folders
	volumes volumes
}

// Free is how many bytes are left on the file system of the tree's root, -1 if
// that is not known.
func (t *Tree) Free() int64 {
	f, err := t.root.Open(".")
	if err != nil {
		return -1
	}
	defer f.Close()
	v, err := volumeOf(f)
	if err != nil || !v.freeKnown {
		return -1
	}
	return v.free
}

// Open opens the tree below dir, which may itself be reached through symlinks.
// The caller closes it.
func Open(dir string) (*Tree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open tree: %w", err)
	}
	info, err := root.Stat(".")
	if err != nil {
		root.Close()
		return nil, fmt.Errorf("open tree: %w", err)
	}
	t := &Tree{root: root}
	t.folders.start(&folder{root: root, path: ".", info: info})
	return t, nil
}

// Close releases the tree. Sources and partials opened from it stay usable, but
// Source.Unchanged needs the tree.
func (t *Tree) Close() error {
	t.folders.close()
	t.volumes.close()
	return nil
}

// Is reports whether info, of os.Stat, is of the folder that was opened.
func (t *Tree) Is(info fs.FileInfo) bool {
	mine, err := t.root.Stat(".")
	return err == nil && os.SameFile(mine, info)
}

// Name is the folder as given to Open.
func (t *Tree) Name() string { return t.root.Name() }

// Stat describes the entry at path without following symlinks, and without its
// extended attributes.
func (t *Tree) Stat(path string) (Meta, error) { return t.stat(path, false) }

// StatXattrs is Stat with the extended attributes. That nothing is there is said of the folder as it was a moment
// ago, see Tree; Stat looks again.
func (t *Tree) StatXattrs(path string) (Meta, error) { return t.stat(path, true) }

func (t *Tree) stat(path string, xattrs bool) (m Meta, err error) {
	var missing error
	err = t.withParent(path, func(f *folder, base string) error {
		dir, err := f.dir()
		if err != nil {
			return err
		}
		m, err = f.describe(dir, base, path)
		if errors.Is(err, fs.ErrNotExist) && xattrs {
			// So it was at some moment even if the folder has been replaced: not worth
			// another look at that.
			missing = err
			return nil
		}
		if err == nil && xattrs {
			m.Xattrs, m.XattrErr = readXattrs(dir, base)
		}
		return err
	})
	if err == nil {
		err = missing
	}
	return m, at("stat", path, err)
}

// Mkdir makes the folder at path and the missing ones above it. A folder that
// exists is fine; a file or symlink there is ErrExists, above it ErrNotFolder.
// While a transfer fills it the folder is open to its owner whatever mode says;
// Apply gives it its final mode. Bits beyond the permissions are left to Apply,
// too.
func (t *Tree) Mkdir(path string, mode fs.FileMode) error {
	perm := mode.Perm() | 0o700
	err := t.mkdir(path, perm, ErrExists)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		// Make what is above, and open it as well.
		for i := range path {
			if path[i] != '/' {
				continue
			}
			if err := t.mkdir(path[:i], 0o755, ErrNotFolder); err != nil {
				return at("mkdir", path, err)
			}
		}
		err = t.mkdir(path, perm, ErrExists)
	}
	return at("mkdir", path, err)
}

func (t *Tree) mkdir(path string, perm fs.FileMode, taken error) error {
	return t.withParent(path, func(f *folder, base string) error {
		if base == "." {
			return nil
		}
		err := f.root.Mkdir(base, perm)
		if errors.Is(err, fs.ErrExist) {
			return openUp(f.root, base, taken)
		}
		if err == nil {
			t.folders.made(path)
		}
		return err
	})
}

// openUp accepts a folder that is there and opens it to its owner when that is
// possible: an earlier transfer may have closed it.
func openUp(folder *os.Root, name string, taken error) error {
	info, err := folder.Lstat(name)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return taken
	case info.Mode().Perm()&0o700 != 0o700:
		// Not fatal: another owner's folder may be writable all the same.
		_ = folder.Chmod(name, info.Mode()&modeBits|0o700)
	}
	return nil
}

// openRegular opens the regular file name in folder, and nothing else, whatever
// takes its place meanwhile. A pipe in its place must not block the open.
func openRegular(folder *os.Root, name string, flag int) (*os.File, fs.FileInfo, error) {
	seen, err := folder.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	if !seen.Mode().IsRegular() {
		return nil, nil, ErrUnsupportedKind
	}
	f, err := folder.OpenFile(name, flag|openNonblock, 0)
	if err != nil {
		return nil, nil, err
	}
	got, err := f.Stat()
	if err == nil && !os.SameFile(seen, got) {
		err = ErrChanged
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, got, nil
}
