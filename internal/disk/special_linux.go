package disk

import (
	"errors"

	"golang.org/x/sys/unix"
)

// makeNode makes a pipe, device or socket in f that only its owner may use.
func makeNode(f *folder, name string, kind Kind, rdev uint64) error {
	mode := uint32(0o600)
	switch kind {
	case Fifo:
		mode |= unix.S_IFIFO
	case CharDevice:
		mode |= unix.S_IFCHR
	case BlockDevice:
		mode |= unix.S_IFBLK
	case Socket:
		mode |= unix.S_IFSOCK
	default:
		return ErrUnsupportedKind
	}
	dir, err := f.dir()
	if err != nil {
		return err
	}
	return withFD(dir, func(fd int) error { return unix.Mknodat(fd, name, mode, int(rdev)) })
}

// link makes the entry name in to another name of the entry base in from. It does not follow a
// symlink.
func (t *Tree) link(from *folder, base string, to *folder, name string) error {
	return betweenFolders(from, to, func(fromFD, toFD int) error { return unix.Linkat(fromFD, base, toFD, name, 0) })
}

// linkFrom is link for an entry in a folder of another tree.
func (t *Tree) linkFrom(_ *Tree, from *folder, base string, to *folder, name string) error {
	return t.link(from, base, to, name)
}

// move renames an entry from one folder to another. It replaces a file, or an empty folder if the
// entry is a folder.
func (t *Tree) move(from *folder, base string, to *folder, name string) error {
	to.fill()
	return betweenFolders(from, to, func(fromFD, toFD int) error { return unix.Renameat(fromFD, base, toFD, name) })
}

// moveNew is move that replaces nothing.
func (t *Tree) moveNew(from *folder, base string, to *folder, name string) error {
	to.fill()
	err := betweenFolders(from, to, func(fromFD, toFD int) error {
		return unix.Renameat2(fromFD, base, toFD, name, unix.RENAME_NOREPLACE)
	})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // the file system can't refuse
		return t.move(from, base, to, name)
	}
	return err
}

func betweenFolders(from, to *folder, do func(fromFD, toFD int) error) error {
	fromDir, err := from.dir()
	if err != nil {
		return err
	}
	toDir, err := to.dir()
	if err != nil {
		return err
	}
	return ignoringEINTR(func() error { return do(fdOf(fromDir), fdOf(toDir)) })
}
