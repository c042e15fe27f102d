// Package disk reads and writes trees of files below one folder that no path can
// leave. Sources are walked and opened without following symlinks. Targets are
// written under a reserved name beside the final one, with a checkpoint of what
// is finished, and get the final name by an atomic rename when they are complete.
//
// All access goes through os.Root, one folder at a time: a symlink is never
// followed, not even to a place in the same tree, also when somebody exchanges a
// folder for one meanwhile.
package disk

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
)

// noTime leaves a time alone in Root.Chtimes.
var noTime time.Time

// Tree is a folder and all below it. Its methods are safe for concurrent use.
// Paths are as CheckPath demands.
type Tree struct {
	root *os.Root
}

// Open opens the tree below dir, which may itself be reached through symlinks.
// The caller closes it.
func Open(dir string) (*Tree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open tree: %w", err)
	}
	return &Tree{root: root}, nil
}

// Close releases the tree. Sources and partials opened from it stay usable, but
// Source.Unchanged needs the tree.
func (t *Tree) Close() error { return t.root.Close() }

// Name is the folder as given to Open.
func (t *Tree) Name() string { return t.root.Name() }

// Stat describes the entry at path without following symlinks. Other kinds of
// entries give ErrUnsupportedKind.
func (t *Tree) Stat(path string) (Meta, error) {
	folder, base, err := t.enterParent(path)
	if err != nil {
		return Meta{}, at("stat", path, err)
	}
	defer folder.Close()
	m, err := stat(folder, base, path)
	return m, at("stat", path, err)
}

// Mkdir makes the folder at path and the missing ones above it. A folder that
// exists is fine; a file or symlink there is ErrExists, above it ErrNotFolder.
// While a transfer fills it the folder is open to its owner whatever mode says;
// SetDirMeta gives it its final mode. Bits beyond the permissions are left to
// SetDirMeta, too.
func (t *Tree) Mkdir(path string, mode fs.FileMode) error {
	if err := CheckPath(path); err != nil {
		return at("mkdir", path, err)
	}
	folder, err := t.root.OpenRoot(".")
	if err != nil {
		return at("mkdir", path, err)
	}
	defer func() { folder.Close() }()
	if path == "." {
		return nil
	}
	rest := path
	for more := true; more; {
		var element string
		element, rest, more = strings.Cut(rest, "/")
		perm, taken := fs.FileMode(0o755), ErrNotFolder
		if !more {
			perm, taken = mode.Perm()|0o700, ErrExists
		}
		if err := mkdir(folder, element, perm, taken); err != nil {
			return at("mkdir", path, err)
		}
		next, err := enter(folder, element)
		if err != nil {
			return at("mkdir", path, err)
		}
		folder.Close()
		folder = next
	}
	return nil
}

// mkdir makes one folder or accepts the one that is there, opening it to its
// owner when that is possible: an earlier transfer may have closed it.
func mkdir(folder *os.Root, name string, perm fs.FileMode, taken error) error {
	err := folder.Mkdir(name, perm)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
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

// SetDirMeta gives the folder at path the mode and the modification time of m.
// It comes last, as every change inside alters the time.
func (t *Tree) SetDirMeta(path string, m Meta) error {
	folder, err := t.enter(path)
	if err != nil {
		return at("set folder metadata", path, err)
	}
	defer folder.Close()
	if err := folder.Chtimes(".", noTime, m.ModTime); err != nil {
		return at("set folder times", path, err)
	}
	return at("set folder mode", path, folder.Chmod(".", m.Mode&modeBits))
}

// Symlink makes the symlink m.Path with target m.Link, or replaces a file or
// symlink of that name atomically. A folder there is ErrExists. The time is set
// where the system can; the mode of a symlink means nothing.
func (t *Tree) Symlink(m Meta) error {
	folder, base, err := t.enterParent(m.Path)
	if err != nil {
		return at("symlink", m.Path, err)
	}
	defer folder.Close()
	if base == "." {
		return at("symlink", m.Path, ErrExists)
	}
	// A random name, since nothing locks a symlink against another writer.
	temporary := reservedName(base) + "-" + rand.Text() + linkSuffix
	if err := folder.Symlink(m.Link, temporary); err != nil {
		return at("symlink", m.Path, err)
	}
	if err := renameOver(folder, temporary, base); err != nil {
		_ = folder.Remove(temporary)
		return at("symlink", m.Path, err)
	}
	if m.ModTime.IsZero() {
		return nil
	}
	// After the rename, or Sweep could take the new link for an old leftover.
	return at("set symlink time", m.Path, setLinkTime(folder, base, m.ModTime))
}

// renameOver renames in a folder, replacing files and symlinks but no folder.
func renameOver(folder *os.Root, from, to string) error {
	err := folder.Rename(from, to)
	if err == nil {
		return nil
	}
	if info, statErr := folder.Lstat(to); statErr == nil && info.IsDir() {
		return ErrExists
	}
	return err
}

// enter opens the folder at path, element by element. The caller closes it.
func (t *Tree) enter(path string) (*os.Root, error) {
	if err := CheckPath(path); err != nil {
		return nil, err
	}
	folder, err := t.root.OpenRoot(".")
	if err != nil || path == "." {
		return folder, err
	}
	for element := range strings.SplitSeq(path, "/") {
		next, err := enter(folder, element)
		folder.Close()
		if err != nil {
			return nil, err
		}
		folder = next
	}
	return folder, nil
}

// enterParent opens the folder that holds path, and says under which name. The
// root is held by itself under ".". The caller closes the folder.
func (t *Tree) enterParent(path string) (folder *os.Root, base string, err error) {
	if err := CheckPath(path); err != nil {
		return nil, "", err
	}
	parent, base := splitPath(path)
	folder, err = t.enter(parent)
	return folder, base, err
}

// enter opens the folder name, one element, in parent. Root.OpenRoot would follow
// a symlink inside parent; comparing what it opened with what lstat saw under the
// name shows that, also when the two changed places in between.
func enter(parent *os.Root, name string) (*os.Root, error) {
	seen, err := parent.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !seen.IsDir() {
		return nil, ErrNotFolder
	}
	folder, err := parent.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	got, err := folder.Stat(".")
	if err == nil && !os.SameFile(seen, got) {
		err = ErrNotFolder
	}
	if err != nil {
		folder.Close()
		return nil, err
	}
	return folder, nil
}

// stat describes the entry base of folder as path.
func stat(folder *os.Root, base, path string) (Meta, error) {
	info, err := folder.Lstat(base)
	if err != nil {
		return Meta{}, err
	}
	m, err := metaOf(path, info)
	if err == nil && m.Kind == Symlink {
		m.Link, err = folder.Readlink(base)
	}
	return m, err
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
