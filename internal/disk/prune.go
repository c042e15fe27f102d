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

// Names calls visit with the names in the folder at path, at most 1024 at a time, in no order, each
// with its kind or 0 for an unknown one. It leaves out the names of partial files and the like. It
// does not check the other names: CheckPath may reject them. visit may remove the entries, and may
// keep the slices. Names ends early with the error of visit or ctx.
func (t *Tree) Names(ctx context.Context, path string, visit func(names []string, kinds []Kind) error) error {
	return t.NamesAndForeign(ctx, path, visit, func(string) {})
}

// NamesAndForeign is Names, and calls foreign with each reserved name that fxfer did not give.
func (t *Tree) NamesAndForeign(
	ctx context.Context, path string, visit func(names []string, kinds []Kind) error, foreign func(name string),
) error {
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
			switch name := e.Name(); {
			case !isReserved(name):
				names, kinds = append(names, name), append(kinds, kindOf(e.Type()))
			case !isOwn(name):
				foreign(name)
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

// Remove removes the entry at path and, if that is a folder, everything below it, including partial
// files. It removes symlinks and does not follow them. It opens a folder that is closed to its
// owner; the folder that holds the entry is open only meanwhile. It returns fs.ErrNotExist if there
// is nothing at path. It is no error if something below path vanishes meanwhile.
//
// Unless backup is "", Remove moves the entry to the path backup/path of the tree instead, and
// replaces a file there. It makes missing folders, and merges an existing folder entry by entry:
// entries stay there unless they are replaced. The root cannot be removed. path and backup must not
// contain each other.
func (t *Tree) Remove(path, backup string) error {
	if err := CheckPath(path); err != nil {
		return at("remove", path, err)
	}
	if path == "." {
		return at("remove", path, fmt.Errorf("%w: the root of the tree", ErrPath))
	}
	// Some systems would count a folder that stays open below as in use.
	t.folders.forgetBelow(path)
	defer t.folders.changed()
	if backup == "" {
		return at("remove", path, t.withParent(path, func(f *folder, base string) error {
			return opened(f.root, func() error { return removeAll(f, base) })
		}))
	}
	return at("back up", path, t.backUp(path, backup))
}

// opened calls do, which removes entries from folder. If do lacks the right to that, it calls do
// once more with folder open to its owner.
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

// removeAll removes the entry base in f and everything below it. It reads a folder from the start
// after each batch, so it must remove everything or fail.
func removeAll(f *folder, base string) error { return new(removal).remove(f, base, "", 0) }

// removal removes a tree with at most openDepth of its folders open, however deep it is: it moves
// folders that are deeper up into the tree's root, which is emptied last.
type removal struct {
	top   *folder // the root; nil until it is open
	moved int
}

// remove removes base in f. The path leads there from the root, through depth folders.
func (r *removal) remove(f *folder, base, path string, depth int) error {
	info, err := f.root.Lstat(base)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return f.root.Remove(base)
	}
	if info.Mode().Perm()&0o700 != 0o700 {
		_ = f.root.Chmod(base, info.Mode()&modeBits|0o700) // if this fails, the next call says why
	}
	if depth > openDepth && r.moveUp(path) {
		return nil
	}
	sub, err := f.enter(base)
	if err != nil {
		return err
	}
	defer sub.release()
	if r.top == nil {
		r.top, path = sub, "."
	}
	err = eachName(sub, func(name string) error {
		if err := r.remove(sub, name, childPath(path, name), depth+1); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	return f.root.Remove(base)
}

// moveUp moves the folder at path into the root, and reports whether it did. A name that is taken,
// such as by an earlier attempt that was killed, leads to the next one.
func (r *removal) moveUp(path string) bool {
	for range 100 {
		name := fmt.Sprintf("%s%d%s", reservedPrefix, r.moved, removingSuffix)
		r.moved++
		if r.top.root.Rename(path, name) == nil {
			return true
		}
	}
	return false
}

// eachName calls do for the names in f until none are left. do removes the entry.
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
		return fmt.Errorf("%w: %q and the backup folder %q overlap", ErrPath, clip(path), clip(backup))
	}
	if _, err := t.Stat(path); err != nil {
		return err
	}
	above, _ := splitPath(to)
	if err := t.Mkdir(above, 0o755); err != nil {
		return err
	}
	return t.moveTo(path, to)
}

// moveTo moves the entry at path to the path to, and replaces an entry there. If both are folders,
// it moves the content entry by entry, and keeps no folder open meanwhile: a tree may be deep.
func (t *Tree) moveTo(path, to string) error {
	above, base := splitPath(path)
	aboveTarget, _ := splitPath(to)
	merge := false
	err := t.with(above, func(f *folder) error {
		return t.with(aboveTarget, func(target *folder) error {
			return opened(f.root, func() (err error) {
				merge, err = t.moveOver(f, base, target)
				return err
			})
		})
	})
	if err != nil || !merge {
		return err
	}
	for {
		names, err := t.someNames(path)
		if err != nil {
			return err
		}
		if len(names) == 0 {
			t.folders.forgetBelow(path)
			return t.with(above, func(f *folder) error { return f.root.Remove(base) })
		}
		for _, name := range names {
			if isReserved(name) {
				err = t.with(path, func(f *folder) error { return removeAll(f, name) })
			} else {
				err = t.moveTo(childPath(path, name), childPath(to, name))
			}
			if err != nil {
				return err
			}
		}
	}
}

// someNames returns names in the folder at path, and none if it is empty.
func (t *Tree) someNames(path string) (names []string, err error) {
	err = t.with(path, func(f *folder) error {
		dir, err := f.root.Open(".")
		if err != nil {
			return err
		}
		defer dir.Close()
		names, err = dir.Readdirnames(deepBatch)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return err
	})
	return names, err
}

// isBelow reports whether path is above, or is in it.
func isBelow(path, above string) bool {
	return path == above || len(path) > len(above) && path[:len(above)] == above && path[len(above)] == '/'
}

// moveOver moves the entry base in from into the folder to, and replaces an entry of that name. If
// both are folders, it moves nothing and returns true.
func (t *Tree) moveOver(from *folder, base string, to *folder) (merge bool, err error) {
	info, err := from.root.Lstat(base)
	if err != nil {
		return false, err
	}
	there, err := to.root.Lstat(base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, t.move(from, base, to, base)
	case err != nil:
		return false, err
	case info.IsDir() && there.IsDir():
		return true, nil
	case info.IsDir() || there.IsDir():
		if err := removeAll(to, base); err != nil {
			return false, err
		}
	}
	return false, t.move(from, base, to, base)
}
