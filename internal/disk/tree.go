// Package disk reads and writes trees of files below one folder that no path can leave. It walks
// and opens sources without following symlinks. It writes targets under a reserved name beside the
// final one, with a checkpoint of what is finished, and gives complete targets the final name by an
// atomic rename.
//
// All access goes through an os.Root or the descriptor of a folder, one element of a path at a
// time. It never follows a symlink, not even to a place in the same tree, and not even when
// somebody exchanges a folder for a symlink meanwhile.
package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Tree is a folder and everything below it. Its methods are safe for concurrent use. CheckPath must
// accept all paths.
//
// Folders stay open for later calls. After somebody else renames, removes or replaces a folder, a
// call within the next 20 ms may still use the folder that had the path before, as if the call had
// come earlier. Changes by the Tree itself count at once.
type Tree struct {
	root    *os.Root
	above   *os.Root // of a snapshot: the root of the tree that has it at place
	place   string
	folders *folders
	shared  bool // folders belong to another Tree
	volumes volumes
}

// Free returns how many bytes are free on the file system of the tree's root, -1 if that is
// unknown.
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

// Open opens the tree below dir. The path of dir itself may lead through symlinks. The caller
// closes the tree.
func Open(dir string) (*Tree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("folder %s: %w", dir, bare(err))
	}
	return treeOf(root, dir)
}

// OpenIn opens the tree below rest, a path in the folder dir. The path of dir may lead through symlinks.
// Those in rest may lead to places in dir only, whenever they are made. The caller closes the tree.
func OpenIn(dir, rest string) (*Tree, error) {
	outer, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("folder %s: %w", dir, bare(err))
	}
	defer outer.Close()
	root, err := outer.OpenRoot(rest)
	if err != nil {
		return nil, fmt.Errorf("folder %s: %w", filepath.Join(dir, rest), bare(err))
	}
	return treeOf(root, dir)
}

// treeOf returns the tree of a folder, which it closes if it fails.
func treeOf(root *os.Root, dir string) (*Tree, error) {
	info, err := root.Stat(".")
	if err != nil {
		root.Close()
		return nil, fmt.Errorf("folder %s: %w", dir, bare(err))
	}
	t := &Tree{root: root, folders: new(folders)}
	t.folders.start(&folder{root: root, path: ".", info: info})
	return t, nil
}

// Session returns the tree for one session, which shares its open folders. A tree has a folder open
// on each file system that it wrote to, until it is closed: that of a session ends with the session.
// The caller closes it before t.
func (t *Tree) Session() *Tree {
	return &Tree{root: t.root, above: t.above, place: t.place, folders: t.folders, shared: true}
}

// Close releases the tree. Its open sources and partials stay usable, except that Source.Unchanged
// needs the tree.
func (t *Tree) Close() error {
	if !t.shared {
		t.folders.close()
	}
	t.volumes.close()
	return nil
}

// Is reports whether info, from os.Stat, describes the folder that was opened.
func (t *Tree) Is(info fs.FileInfo) bool {
	mine, err := t.root.Stat(".")
	return err == nil && os.SameFile(mine, info)
}

// Name returns the folder as Open got it.
func (t *Tree) Name() string { return t.root.Name() }

// Stat describes the entry at path without following symlinks, and without its
// extended attributes.
func (t *Tree) Stat(path string) (Meta, error) { return t.stat(path, false, neverVacant) }

// StatXattrs is Stat with the extended attributes. It may find nothing in a folder that was
// replaced a moment ago, see Tree. Stat checks that again.
func (t *Tree) StatXattrs(path string) (Meta, error) { return t.stat(path, true, neverVacant) }

// StatTarget is StatXattrs for a target that is about to be written. It takes no system call if the
// tree has just made the folder of the target, and put nothing into it: then nothing is there, and
// the error is fs.ErrNotExist without the path.
func (t *Tree) StatTarget(path string) (Meta, error) {
	return t.stat(path, true, t.folders.isVacant)
}

func (t *Tree) stat(path string, xattrs bool, vacant func(*folder) bool) (m Meta, err error) {
	var missing error
	empty := false
	err = t.withParent(path, func(f *folder, base string) error {
		if empty = vacant(f) && base != "."; empty {
			return nil
		}
		dir, err := f.dir()
		if err != nil {
			return err
		}
		m, err = f.describe(dir, base, path)
		if errors.Is(err, fs.ErrNotExist) && xattrs {
			// There was a moment at which this was true, even if the folder was replaced. That does
			// not justify another check.
			missing = err
			return nil
		}
		if err == nil && xattrs {
			m.Xattrs, m.XattrErr = readXattrs(dir, base)
		}
		return err
	})
	if err == nil && empty {
		return m, fs.ErrNotExist // without the path: so it is for each file of a new tree
	}
	if err == nil {
		err = missing
	}
	return m, at("stat", path, err)
}

// Mkdir makes the folder at path and missing folders above it. A folder that exists is fine. A file
// or symlink at path gives ErrExists, and one above it ErrNotFolder. While a transfer fills the
// folder, it is open to its owner, whatever mode says. Apply gives it its final mode, and mode bits
// that are not permissions.
func (t *Tree) Mkdir(path string, mode fs.FileMode) error {
	perm := mode.Perm() | 0o700
	err := t.mkdir(path, perm, errFileExists)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		// Make the folders above, and open them to their owner.
		for i := range path {
			if path[i] != '/' {
				continue
			}
			if err := t.mkdir(path[:i], 0o755, ErrNotFolder); err != nil {
				return at("mkdir", path, err)
			}
		}
		err = t.mkdir(path, perm, errFileExists)
	}
	return at("mkdir", path, err)
}

func (t *Tree) mkdir(path string, perm fs.FileMode, taken error) error {
	return t.withParent(path, func(f *folder, base string) error {
		if base == "." {
			return nil
		}
		f.fill()
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

// openUp accepts an existing folder, and opens it to its owner if possible: an earlier transfer may
// have closed it.
func openUp(folder *os.Root, name string, taken error) error {
	info, err := folder.Lstat(name)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return taken
	case info.Mode().Perm()&0o700 != 0o700:
		// This is not fatal: another owner's folder may still be writable.
		_ = folder.Chmod(name, info.Mode()&modeBits|0o700)
	}
	return nil
}

// openRegular opens the regular file name in folder, and nothing else, whatever takes its place
// meanwhile. A pipe in its place must not block the open.
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
