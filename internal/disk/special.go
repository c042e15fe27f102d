package disk

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// Symlink makes the symlink m.Path with target m.Link and m's metadata, except for the mode. It
// atomically replaces a file or symlink of that name. A symlink that already has the target stays
// and gets the metadata, unless it has other names. A folder there gives ErrExists.
func (t *Tree) Symlink(m Meta, opt TargetOptions) error {
	m.Kind = Symlink
	err := t.replace(m, opt, func(f *folder, name string) error { return f.root.Symlink(m.Link, name) })
	return at("symlink", m.Path, err)
}

// Special makes the pipe, device or socket m.Path with m's metadata, and atomically replaces a file
// or symlink of that name. An equal one stays and gets the metadata, unless it has other names. A
// folder there gives ErrExists. If the system or this user cannot make it, or if it is a device and opt does not set
// what gives privilege, there is a warning, and the present entry of that name stays.
func (t *Tree) Special(m Meta, opt TargetOptions) error {
	switch m.Kind {
	case Fifo, Socket:
		m.Rdev = 0
	case CharDevice, BlockDevice:
	default:
		return at("make node", m.Path, ErrUnsupportedKind)
	}
	var refused error
	if isDevice(m.Kind) && !opt.Privileged {
		opt.warn(m.Path, "device", errDevicePrivilege)
		return nil
	}
	err := t.replace(m, opt, func(f *folder, name string) error {
		err := makeNode(f, name, m.Kind, m.Rdev)
		// Not EACCES: that says that the folder refuses it.
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
			refused = err
		}
		return err
	})
	if refused != nil {
		opt.warn(m.Path, "device", refused)
		return nil
	}
	return at("make "+m.Kind.String(), m.Path, err)
}

// replace gives the name m.Path to an entry that create makes, unless an equal one exists, and sets
// the metadata of m.
func (t *Tree) replace(m Meta, opt TargetOptions, create func(f *folder, name string) error) error {
	return t.withParent(m.Path, func(f *folder, base string) error {
		if base == "." {
			return errFolderExists
		}
		dir, err := f.dir()
		if err != nil {
			return err
		}
		have, err := f.describe(dir, base, m.Path)
		// Other names of an equal one must not get the metadata.
		if err == nil && have.Kind == m.Kind && have.Link == m.Link && have.Rdev == m.Rdev && have.Nlink < 2 {
			err := t.apply(f, base, m, &opt)
			if !errors.Is(err, ErrExists) && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		return t.swapIn(f, base, linkSuffix, func(name string) error {
			if err := create(f, name); err != nil {
				return err
			}
			return t.apply(f, name, m, &opt)
		})
	})
}

// Link makes to another name of the entry from, which is not a folder, and atomically replaces a
// file or symlink of the name to. If both are already the same file, it does nothing. A folder
// there gives ErrExists. If the file system has no hard links, the limit of links is reached, or
// the two are on different file systems, Link returns the system's error and to is as before.
func (t *Tree) Link(from, to string) error {
	err := t.withParent(from, func(source *folder, sourceBase string) error {
		info, err := source.root.Lstat(sourceBase)
		if err != nil {
			return err
		}
		return t.withParent(to, func(f *folder, base string) error {
			if base == "." {
				return errFolderExists
			}
			if have, err := f.root.Lstat(base); err == nil && os.SameFile(info, have) {
				return nil
			}
			return t.swapIn(f, base, hardSuffix, func(name string) error {
				if err := t.link(source, sourceBase, f, name); err != nil {
					return err
				}
				_, dev := fileID(info)
				_, err := t.volumes.note(dev, f)
				return err
			})
		})
	})
	return at("link", to, err)
}

// swapIn lets create make an entry under a temporary name in f, and renames it to base. No lock
// protects such an entry against another writer of base, who removes it and makes another. A writer
// that finds its entry gone or replaced starts again, so the last one wins. Hard links have a
// suffix of their own: otherwise metadata for a new entry could reach a file that is linked.
func (t *Tree) swapIn(f *folder, base, suffix string, create func(name string) error) (err error) {
	name := reservedName(base) + suffix
	for range 100 {
		err = create(name)
		if errors.Is(err, fs.ErrExist) || errors.Is(err, ErrExists) {
			if err := f.root.RemoveAll(name); err != nil {
				return err
			}
			continue
		}
		if err == nil {
			err = t.renameOver(f, name, base)
		}
		if _, gone := f.root.Stat("."); errors.Is(err, fs.ErrNotExist) && gone == nil {
			continue
		}
		break
	}
	// This is needed even after a successful rename: a rename does nothing if both names are
	// already the same file.
	return errors.Join(err, removeIfThere(f.root, name))
}

// renameOver renames within a folder. It replaces files and symlinks, but no folder.
func (t *Tree) renameOver(f *folder, from, to string) error {
	err := t.move(f, from, f, to)
	if err == nil {
		return nil
	}
	if info, statErr := f.root.Lstat(to); statErr == nil && info.IsDir() {
		return errFolderExists
	}
	return err
}
