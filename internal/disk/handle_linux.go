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

// handle gives access to the metadata of one entry of any kind, even if something else
// has its name by now.
type handle struct {
	fd int
	// link leads to a file opened with O_PATH, which most calls refuse. It is "" for a file opened
	// for writing.
	link string
	bare bool // the entry has no extended attributes to remove
}

// openHandle opens the entry base in f for its metadata. It opens a symlink itself. The caller
// closes the handle.
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

// fileHandle returns a handle of file, which is open for writing as name in folder. The file stays
// open, and the handle is not closed.
func fileHandle(_ *os.Root, _ string, file *os.File) handle { return handle{fd: fdOf(file)} }

func (h handle) Close() { unix.Close(h.fd) }

// describe describes the entry, without the target of a symlink and without extended attributes.
func (h handle) describe(path string) (Meta, error) {
	var st unix.Stat_t
	if err := ignoringEINTR(func() error { return unix.Fstat(h.fd, &st) }); err != nil {
		return Meta{}, err
	}
	return metaOfStat(path, &st)
}

// chown sets owner and group. -1 keeps the present one.
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
	// This is futimens(3). x/sys has no wrapper without a path.
	return ignoringEINTR(func() error {
		_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(h.fd), 0, uintptr(unsafe.Pointer(&ts[0])), 0, 0, 0)
		if errno != 0 {
			return errno
		}
		return nil
	})
}

// xattrs lists the names of the extended attributes, including ACLs.
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

// ignoringEINTR calls f again while it is interrupted.
func ignoringEINTR(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// unixMode encodes mode like the system does.
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
