package disk

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// handle reaches the metadata of one entry of any kind, whatever has taken its
// name since.
type handle struct {
	fd int
	// link leads to a file opened with O_PATH, which most calls don't take; "" for
	// one opened for writing.
	link string
	bare bool // no extended attributes that would have to be removed
}

// openHandle opens the entry base of f for its metadata; a symlink is opened
// itself. The caller closes it.
func openHandle(f *folder, base string) (handle, error) {
	dir, err := f.dir()
	if err != nil {
		return handle{}, err
	}
	fd, err := openAt(fdOf(dir), base, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return handle{}, err
	}
	return handle{fd: fd, link: "/proc/self/fd/" + strconv.Itoa(fd)}, nil
}

// fileHandle is the handle of file, name in folder, which is open for writing, and
// stays so. It is not closed.
func fileHandle(_ *os.Root, _ string, file *os.File) handle { return handle{fd: fdOf(file)} }

func (h handle) Close() { unix.Close(h.fd) }

// describe tells what the entry is, without the target of a symlink and without
// extended attributes.
func (h handle) describe(path string) (Meta, error) {
	var st unix.Stat_t
	if err := ignoringEINTR(func() error { return unix.Fstat(h.fd, &st) }); err != nil {
		return Meta{}, err
	}
	return metaOfStat(path, &st)
}

// chown sets owner and group; -1 leaves one alone.
func (h handle) chown(uid, gid int64) error {
	return ignoringEINTR(func() error {
		return unix.Fchownat(h.fd, "", int(uid), int(gid), unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW)
	})
}

func (h handle) chmod(mode fs.FileMode) error {
	if h.link != "" {
		return ignoringEINTR(func() error { return unix.Chmod(h.link, unixMode(mode)) })
	}
	return ignoringEINTR(func() error { return unix.Fchmod(h.fd, unixMode(mode)) })
}

// setTime sets the modification time.
func (h handle) setTime(mtime time.Time) error {
	ts, err := modTimeOnly(mtime)
	if err != nil {
		return err
	}
	if h.link != "" {
		return ignoringEINTR(func() error { return unix.UtimesNanoAt(unix.AT_FDCWD, h.link, ts[:], 0) })
	}
	// futimens(3); x/sys has no wrapper that takes no path.
	return ignoringEINTR(func() error {
		_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(h.fd), 0, uintptr(unsafe.Pointer(&ts[0])), 0, 0, 0)
		if errno != 0 {
			return errno
		}
		return nil
	})
}

// xattrs lists the names of the extended attributes, ACLs among them.
func (h handle) xattrs() (names []string, err error) {
	if h.bare {
		return nil, nil
	}
	list, err := grow(func(b []byte) (int, error) {
		if h.link != "" {
			return unix.Listxattr(h.link, b)
		}
		return unix.Flistxattr(h.fd, b)
	})
	for name := range bytes.SplitSeq(list, []byte{0}) {
		if len(name) > 0 {
			names = append(names, string(name))
		}
	}
	return names, err
}

// xattr reads one extended attribute.
func (h handle) xattr(name string) ([]byte, error) {
	return grow(func(b []byte) (int, error) {
		if h.link != "" {
			return unix.Getxattr(h.link, name, b)
		}
		return unix.Fgetxattr(h.fd, name, b)
	})
}

func (h handle) setXattr(name string, value []byte) error {
	return ignoringEINTR(func() error {
		if h.link != "" {
			return unix.Setxattr(h.link, name, value, 0)
		}
		return unix.Fsetxattr(h.fd, name, value, 0)
	})
}

func (h handle) removeXattr(name string) error {
	err := ignoringEINTR(func() error {
		if h.link != "" {
			return unix.Removexattr(h.link, name)
		}
		return unix.Fremovexattr(h.fd, name)
	})
	if errors.Is(err, unix.ENODATA) {
		return nil
	}
	return err
}

// ignoringEINTR calls f again as long as it is interrupted.
func ignoringEINTR(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// unixMode is mode as the system encodes it.
func unixMode(mode fs.FileMode) uint32 {
	bits := uint32(mode.Perm())
	if mode&fs.ModeSetuid != 0 {
		bits |= unix.S_ISUID
	}
	if mode&fs.ModeSetgid != 0 {
		bits |= unix.S_ISGID
	}
	if mode&fs.ModeSticky != 0 {
		bits |= unix.S_ISVTX
	}
	return bits
}

func modTimeOnly(mtime time.Time) ([2]unix.Timespec, error) {
	ts, err := unix.TimeToTimespec(mtime)
	return [2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, ts}, err
}
