package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fdOf returns the descriptor of a file that stays open. The file of a folder stays open for
// whoever holds the folder.
func fdOf(file *os.File) int { return int(file.Fd()) }

// endedName is a name as the system takes it, with a zero behind it. On the stack it takes no memory,
// unlike the names in calls of x/sys.
type endedName [maxElement + 1]byte

// set reports whether name fits.
func (n *endedName) set(name string) bool {
	if len(name) > maxElement || strings.IndexByte(name, 0) >= 0 {
		return false
	}
	n[copy(n[:], name)] = 0
	return true
}

// openAt opens the entry name in the folder dir, close-on-exec. It returns a bare descriptor: an
// os.File costs several more system calls.
func openAt(dir int, name string, flags int, perm uint32) (int, error) {
	var ended endedName
	if !ended.set(name) {
		return -1, unix.ENAMETOOLONG
	}
	for {
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, uintptr(dir), uintptr(unsafe.Pointer(&ended[0])),
			uintptr(flags|unix.O_CLOEXEC|unix.O_LARGEFILE), uintptr(perm), 0, 0)
		switch errno {
		case 0:
			return int(fd), nil
		case unix.EINTR:
		default:
			return -1, errno
		}
	}
}

// readFile fills buf with the whole regular file base in f. It returns ErrChanged unless the file
// has the identity id before and afterwards. It may open a special file in its place, but does not
// read it.
func (f *folder) readFile(base string, id Identity, buf []byte) error {
	dir, err := f.dir()
	if err != nil {
		return err
	}
	fd, err := openAt(fdOf(dir), base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	switch {
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV): // a symlink, socket or device
		return ErrChanged
	case err != nil:
		return err
	}
	defer unix.Close(fd)
	if err := checkIdentity(fd, id); err != nil || len(buf) == 0 {
		return err
	}
	for n := 0; n < len(buf); {
		more, err := unix.Pread(fd, buf[n:], int64(n))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case more == 0:
			return ErrChanged
		default:
			n += more
		}
	}
	return checkIdentity(fd, id)
}

// checkIdentity returns ErrChanged unless fd is a regular file in the state id.
func checkIdentity(fd int, id Identity) error {
	var st unix.Stat_t
	if err := ignoringEINTR(func() error { return unix.Fstat(fd, &st) }); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || identityOfStat(&st) != id {
		return ErrChanged
	}
	return nil
}

func identityOfStat(st *unix.Stat_t) Identity {
	return Identity{Size: st.Size, ModTime: st.Mtim.Nano(), Ino: st.Ino, Dev: st.Dev}
}

// fileRef distinguishes files.
type fileRef struct{ ino, dev uint64 }

func refOf(info fs.FileInfo) fileRef {
	ino, dev := fileID(info)
	return fileRef{ino, dev}
}

// holdsAs reports whether the entry name in f is that file.
func (f *folder) holdsAs(name string, file fileRef) bool {
	dir, err := f.dir()
	if err != nil {
		return false
	}
	var st unix.Stat_t
	err = ignoringEINTR(func() error { return unix.Fstatat(fdOf(dir), name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return err == nil && file == fileRef{st.Ino, st.Dev}
}

// look opens the folder name in f as a file, and describes it. It follows no symlink. os.Root would
// take six system calls for the file, because it tries whether folders can be polled.
func (f *folder) look(name string) (*os.File, fs.FileInfo, error) {
	dir, err := f.dir()
	if err != nil {
		return nil, nil, err
	}
	fd, err := openFolderAt(fdOf(dir), name)
	if err != nil {
		return nil, nil, err
	}
	file := os.NewFile(uintptr(fd), name)
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, info, nil
}

// openFolderAt opens the folder name in the folder dir, and no symlink to one.
func openFolderAt(dir int, name string) (int, error) {
	fd, err := openAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		err = ErrNotFolder
	}
	return fd, err
}

// leadsTo reports whether path, in the tree, is still the folder f.
func (t *Tree) leadsTo(path string, f *folder) bool {
	top, err := t.folders.top()
	if err != nil {
		return false
	}
	defer top.release()
	dir, err := top.dir()
	if err != nil {
		return false
	}
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	fd, err := unix.Openat2(fdOf(dir), path, &how)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // Linux before 5.6, or a sandbox
		return leadsToSlowly(top.root, path, f)
	}
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false
	}
	ino, dev := fileID(f.info)
	return st.Ino == ino && st.Dev == dev
}

// describe describes the entry name in f as path. dir is an open file of f.
func (f *folder) describe(dir *os.File, name, path string) (Meta, error) {
	return describeAt(fdOf(dir), name, path)
}

// describeAt describes the entry name in the folder dir as path. It takes one system call, and one
// more for a symlink.
func describeAt(dir int, name, path string) (Meta, error) {
	var st unix.Stat_t
	err := statAt(dir, name, &st)
	for errors.Is(err, unix.EINTR) {
		err = statAt(dir, name, &st)
	}
	if err != nil {
		return Meta{}, err
	}
	m, err := metaOfStat(path, &st)
	if err == nil && m.Kind == Symlink {
		m.Link, err = readLink(dir, name)
	}
	return m, err
}

// readLink returns the target of the symlink name in the folder dir.
func readLink(dir int, name string) (string, error) {
	for room := 256; ; room *= 4 {
		b := make([]byte, room)
		n, err := unix.Readlinkat(dir, name, b)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return "", err
		case n < room:
			return string(b[:n]), nil
		}
	}
}

// metaOfStat converts the result of stat for path, without the link's target.
func metaOfStat(path string, st *unix.Stat_t) (Meta, error) {
	m := Meta{
		Path:    path,
		ModTime: time.Unix(st.Mtim.Unix()),
		Mode:    fs.FileMode(st.Mode & 0o777),
		ID:      identityOfStat(st),
		UID:     st.Uid,
		GID:     st.Gid,
		Nlink:   uint64(st.Nlink), //nolint:unconvert // 32 bits on arm64
	}
	if st.Mode&unix.S_ISUID != 0 {
		m.Mode |= fs.ModeSetuid
	}
	if st.Mode&unix.S_ISGID != 0 {
		m.Mode |= fs.ModeSetgid
	}
	if st.Mode&unix.S_ISVTX != 0 {
		m.Mode |= fs.ModeSticky
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		m.Kind, m.Size, m.Holes = File, st.Size, st.Blocks*512 < st.Size
	case unix.S_IFDIR:
		m.Kind = Dir
	case unix.S_IFLNK:
		m.Kind = Symlink
	case unix.S_IFIFO:
		m.Kind = Fifo
	case unix.S_IFCHR:
		m.Kind, m.Rdev = CharDevice, st.Rdev
	case unix.S_IFBLK:
		m.Kind, m.Rdev = BlockDevice, st.Rdev
	case unix.S_IFSOCK:
		m.Kind = Socket
	default:
		return Meta{}, ErrUnsupportedKind
	}
	return m, nil
}

// errXattrSize marks an entry with more extended attributes than Meta holds.
var errXattrSize = fmt.Errorf("more than %d bytes of extended attributes", maxXattrs)

// readXattrs reads the extended attributes of the entry name in the folder dir. It does not follow
// a symlink. With an error it returns those that it could read. If there are none, it takes one
// system call and no memory. On a file system without attributes there are none.
func readXattrs(dir *os.File, name string) ([]Xattr, error) { return readXattrsAt(fdOf(dir), name) }

// xattrsUsual says that the last entry had extended attributes. Otherwise the system is asked for the
// length of the list first, for which it needs no memory.
var xattrsUsual atomic.Bool

func readXattrsAt(dir int, name string) ([]Xattr, error) {
	var list []byte
	n, err := 1, error(nil)
	if !xattrsUsual.Load() {
		n, err = listXattrs(dir, name, nil)
	}
	if err == nil && n > 0 || errors.Is(err, unix.E2BIG) || errors.Is(err, unix.EINTR) {
		list, err = grow(func(b []byte) (int, error) { return listXattrs(dir, name, b) })
		if some := len(list) > 0; some != xattrsUsual.Load() {
			xattrsUsual.Store(some)
		}
	}
	switch {
	case errors.Is(err, unix.ENOTSUP) || err == nil && len(list) == 0:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list extended attributes: %w", err)
	}
	path := entryPath(dir, name)
	var (
		all   []Xattr
		total int
		first error
	)
	for raw := range bytes.SplitSeq(bytes.TrimSuffix(list, []byte{0}), []byte{0}) {
		attr := string(raw)
		value, err := grow(func(b []byte) (int, error) { return unix.Lgetxattr(path, attr, b) })
		switch {
		case errors.Is(err, unix.ENODATA): // removed meanwhile
			continue
		case errors.Is(err, errXattrSize):
			return nil, err
		case err != nil:
			if first == nil {
				first = fmt.Errorf("read extended attribute %q: %w", attr, err)
			}
			continue
		}
		if total += len(attr) + len(value); total > maxXattrs {
			return nil, errXattrSize
		}
		all = append(all, Xattr{Name: attr, Value: value})
	}
	slices.SortFunc(all, func(a, b Xattr) int { return strings.Compare(a.Name, b.Name) })
	return all, first
}

// entryPath returns a path to the entry name in exactly this folder, for calls that take a path and
// do not follow its last element.
func entryPath(dir int, name string) string {
	return "/proc/self/fd/" + strconv.Itoa(dir) + "/" + name
}

// noXattrAt says that the system lacks listxattrat(2), which Linux has since 6.13 and which takes
// half the time.
var noXattrAt atomic.Bool

// listXattrs is llistxattr(2) for the entry name in dir.
func listXattrs(dir int, name string, b []byte) (int, error) {
	if !noXattrAt.Load() && len(name) <= maxElement {
		var ended endedName
		copy(ended[:], name)
		n, _, errno := unix.Syscall6(unix.SYS_LISTXATTRAT, uintptr(dir), uintptr(unsafe.Pointer(&ended[0])),
			unix.AT_SYMLINK_NOFOLLOW, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.ENOSYS, unix.EPERM: // some sandboxes return EPERM for unknown calls
			noXattrAt.Store(true)
		default:
			return 0, errno
		}
	}
	return unix.Llistxattr(entryPath(dir, name), b)
}

// smallRooms holds buffers that most lists and values fit in.
var smallRooms = sync.Pool{New: func() any { return new([256]byte) }}

// grow calls read with larger and larger buffers, and returns a copy of the result. The kernel
// allocates as much as it is offered, so the buffers begin small.
func grow(read func([]byte) (int, error)) ([]byte, error) {
	small := smallRooms.Get().(*[256]byte)
	defer smallRooms.Put(small)
	room := small[:]
	for {
		n, err := read(room)
		switch {
		case err == nil:
			return append([]byte{}, room[:n]...), nil
		case !errors.Is(err, unix.ERANGE) && !errors.Is(err, unix.E2BIG):
			return nil, err
		case len(room) >= maxXattrs:
			return nil, errXattrSize
		}
		room = make([]byte, min(16*len(room), maxXattrs))
	}
}

// segmentAt finds the hole, if any, and the data after it at off in a file of size bytes, off <
// size. It moves the offset of the file.
func segmentAt(file *os.File, off, size int64) (found segment, err error) {
	err = withFD(file, func(fd int) error {
		found, err = seekSegment(fd, off, size)
		return err
	})
	return found, err
}

func seekSegment(fd int, off, size int64) (segment, error) {
	data, err := unix.Seek(fd, off, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return segment{from: off, data: size, to: size}, nil
	case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP):
		return segment{from: off, data: off, to: size}, nil
	case err != nil:
		return segment{}, err
	}
	hole, err := unix.Seek(fd, data, unix.SEEK_HOLE)
	if err != nil || hole <= data {
		hole = size // somebody is changing the file; reading finds the zeros
	}
	return segment{from: off, data: min(data, size), to: min(hole, size)}, nil
}
