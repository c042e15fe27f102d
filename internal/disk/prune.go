package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// pruneBatch is how many names of a folder are in memory at a time.
const pruneBatch = 1024

// Names calls visit with what the folder at path holds, at most 1024 names at a
// time, in no order and each with its kind, 0 for an unknown one. Names of partial
// files and their like are left out, others are as they are: CheckPath may refuse
// them. visit may remove what it is told of, and keeps the slices if it likes.
// Names ends early with the error of visit or ctx.
func (t *Tree) Names(ctx context.Context, path string, visit func(names []string, kinds []Kind) error) error {
	var dir *os.File
	err := t.withFolder(path, func(folder *os.Root) (err error) {
		dir, err = folder.Open(".")
		return err
	})
	if err != nil {
		return at("read folder", path, err)
	}
	defer dir.Close()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		entries, readErr := dir.ReadDir(pruneBatch)
		names, kinds := make([]string, 0, len(entries)), make([]Kind, 0, len(entries))
		for _, e := range entries {
			if !isReserved(e.Name()) {
				names, kinds = append(names, e.Name()), append(kinds, kindOf(e.Type()))
			}
		}
		if len(names) > 0 {
			if err := visit(names, kinds); err != nil {
				return err
			}
		}
		if errors.Is(readErr, io.EOF) {
			return nil
		}
		if readErr != nil {
			return at("read folder", path, readErr)
		}
	}
}

// Remove removes the entry at path and, if that is a folder, all below it,
// partial files included. Symlinks are removed, not followed; a folder that is
// closed to its owner is opened, the one that holds the entry only for the time.
// Nothing there is fs.ErrNotExist, but what vanishes below meanwhile is fine.
//
// Unless backup is "", the entry is moved to the path backup/path of the tree
// instead, over a file that is there; folders that are missing are made, and a
// folder that is there is merged, entry by entry, so that what is in it already
// stays unless it is replaced. The root can't be removed, and path and backup
// can't lie in each other.
func (t *Tree) Remove(path, backup string) error {
	if err := CheckPath(path); err != nil {
		return at("remove", path, err)
	}
	if path == "." {
		return at("remove", path, fmt.Errorf("%w: the root of the tree", ErrPath))
	}
	// What is kept open below would count as in use on some systems.
	t.folders.forgetBelow(path)
	defer t.folders.changed()
	if backup == "" {
		return at("remove", path, t.withParent(path, func(f *folder, base string) error {
			return opened(f.root, func() error { return removeAll(f, base) })
		}))
	}
	return at("back up", path, t.backUp(path, backup))
}

// opened calls do, which takes entries out of folder, and once more with folder open
// to its owner if that is what it lacks.
func opened(folder *os.Root, do func() error) error {
	err := do()
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	info, statErr := folder.Stat(".")
	if statErr != nil || info.Mode().Perm()&0o700 == 0o700 {
		return err
	}
	mode := info.Mode() & modeBits
	if folder.Chmod(".", mode|0o700) != nil {
		return err
	}
	return errors.Join(do(), folder.Chmod(".", mode))
}

// removeAll removes the entry base of f with all below it. As it reads a folder
// from the start after each batch, it must remove everything or fail.
func removeAll(f *folder, base string) error {
	info, err := f.root.Lstat(base)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return f.root.Remove(base)
	}
	if info.Mode().Perm()&0o700 != 0o700 {
		_ = f.root.Chmod(base, info.Mode()&modeBits|0o700) // or the next call says what is wrong
	}
	sub, err := f.enter(base)
	if err != nil {
		return err
	}
	defer sub.release()
	err = eachName(sub, func(name string) error {
		if err := removeAll(sub, name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	return f.root.Remove(base)
}

// eachName calls do, which removes the entry, for the names in f until there are
// none.
func eachName(f *folder, do func(name string) error) error {
	for {
		dir, err := f.root.Open(".")
		if err != nil {
			return err
		}
		names, err := dir.Readdirnames(pruneBatch)
		dir.Close()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := do(name); err != nil {
				return err
			}
		}
	}
}

// backUp moves the entry at path to backup/path.
func (t *Tree) backUp(path, backup string) error {
	to := childPath(backup, path)
	if err := CheckPath(backup); err != nil {
		return err
	}
	if err := CheckPath(to); err != nil {
		return err
	}
	if backup == "." || isBelow(backup, path) || isBelow(path, backup) {
		return fmt.Errorf("%w: %q and the backup folder %q lie in each other", ErrPath, clip(path), clip(backup))
	}
	if _, err := t.Stat(path); err != nil {
		return err
	}
	above, _ := splitPath(to)
	if err := t.Mkdir(above, 0o755); err != nil {
		return err
	}
	return t.withParent(path, func(f *folder, base string) error {
		return t.withParent(to, func(target *folder, _ string) error {
			return opened(f.root, func() error { return t.moveOver(f, base, target) })
		})
	})
}

// isBelow reports whether path is the entry above or lies in it.
func isBelow(path, above string) bool {
	return path == above || len(path) > len(above) && path[:len(above)] == above && path[len(above)] == '/'
}

// moveOver moves the entry base of from into the folder to, in place of what has
// the name there; of two folders the content is moved.
func (t *Tree) moveOver(from *folder, base string, to *folder) error {
	info, err := from.root.Lstat(base)
	if err != nil {
		return err
	}
	there, err := to.root.Lstat(base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return t.move(from, base, to, base)
	case err != nil:
		return err
	case info.IsDir() && there.IsDir():
		return t.merge(from, base, to)
	case info.IsDir() || there.IsDir():
		if err := removeAll(to, base); err != nil {
			return err
		}
	}
	return t.move(from, base, to, base)
}

// merge moves the content of the folder base of from into that of to, and removes
// the former.
func (t *Tree) merge(from *folder, base string, to *folder) error {
	source, err := from.enter(base)
	if err != nil {
		return err
	}
	defer source.release()
	target, err := to.enter(base)
	if err != nil {
		return err
	}
	defer target.release()
	err = eachName(source, func(name string) error {
		if isReserved(name) {
			return removeAll(source, name)
		}
		return t.moveOver(source, name, target)
	})
	if err != nil {
		return err
	}
	return from.root.Remove(base)
}
