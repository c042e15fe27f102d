package disk

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"strconv"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// errNeedsName says that a file can't be made without a name, or must not.
var errNeedsName = errors.New("the file needs a name from the start")

// unnamedFile is a file without a name. A crash leaves nothing of it.
type unnamedFile plainFile

// putUnnamed writes a file in f without a name. It takes three system calls if the file gets the
// right mode, owner and attributes from the start. It returns errNeedsName if the system can't do
// that.
func (t *Tree) putUnnamed(f *folder, m Meta, data []byte, opt *TargetOptions) (_ *Staged, err error) {
	dir, err := f.dir()
	if err != nil {
		return nil, err
	}
	like, now := t.likeNew(f)
	mode := startMode(m, like, opt.Owner)
	fd, err := openUnnamed(fdOf(dir), mode)
	if err != nil {
		return nil, errNeedsName // file systems give many errors; the other way finds what is wrong
	}
	file := &plainFile{fd}
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	if !canLink(fd, fdOf(dir)) {
		return nil, errNeedsName
	}
	if like == nil || like.asked != mode {
		var st unix.Stat_t
		if err := ignoringEINTR(func() error { return unix.Fstat(fd, &st) }); err != nil {
			return nil, err
		}
		like = like.as(mode, now, &st)
	}
	s, err := t.fill(f, file, like, m, data, opt)
	if err != nil {
		return nil, err
	}
	s.nameless = (*unnamedFile)(file)
	return s, nil
}

// name gives the file the name base in f: the folder that it was made in, or another one in its place. It
// returns errTakenAway if f was removed, or is on another file system.
func (u *unnamedFile) name(t *Tree, f *folder, base string) error {
	dir, err := f.dir()
	if err != nil {
		return err
	}
	f.fill()
	err = linkFile(u.fd, fdOf(dir), base)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EXDEV) {
		return errTakenAway
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	// A file that lost its first name gets no other. So the name to rename is one that nobody else
	// gives, and the lock keeps Sweep away.
	if info, err := f.root.Lstat(base); err == nil && info.IsDir() {
		return errFolderExists
	}
	if err := ignoringEINTR(func() error { return unix.Flock(u.fd, unix.LOCK_EX|unix.LOCK_NB) }); err != nil {
		return err
	}
	name := reservedName(base+"/"+rand.Text()) + partialSuffix
	if err := linkFile(u.fd, fdOf(dir), name); err != nil {
		return err
	}
	if err := t.renameOver(f, name, base); err != nil {
		return errors.Join(err, removeIfThere(f.root, name))
	}
	return nil
}

// openUnnamed makes a file without a name in the folder dir. Unlike openAt it takes no memory.
func openUnnamed(dir int, mode uint32) (int, error) {
	for {
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, uintptr(dir), uintptr(unsafe.Pointer(&thisFolder[0])),
			unix.O_RDWR|unix.O_TMPFILE|unix.O_LARGEFILE|unix.O_CLOEXEC, uintptr(mode), 0, 0)
		switch errno {
		case 0:
			return int(fd), nil
		case unix.EINTR:
		default:
			return -1, errno
		}
	}
}

// thisFolder is "." as the system takes it, and noName the empty path.
var (
	thisFolder = [2]byte{'.'}
	noName     [1]byte
)

// How this process may give an open file a name: by its descriptor, which takes Linux 6.10 or
// CAP_DAC_READ_SEARCH, or by its path in /proc.
const (
	linkUnknown int32 = iota
	linkByDescriptor
	linkByPath
	linkNever
)

var linkHow atomic.Int32

// canLink reports whether linkFile works. The name "." always exists, so the first call asks the
// system without an effect.
func canLink(fd, dir int) bool {
	if linkHow.Load() == linkUnknown {
		how := linkNever
		for _, x := range []int32{linkByDescriptor, linkByPath} {
			if errors.Is(linkAs(x, fd, dir, "."), unix.EEXIST) {
				how = x
				break
			}
		}
		linkHow.Store(how)
	}
	return linkHow.Load() != linkNever
}

// linkFile gives an open file without a name the name in dir. The system links a descriptor only for
// the very credentials that opened it, and says otherwise that it does not exist. Each thread of a
// process that Landlock confines has credentials of its own.
func linkFile(fd, dir int, name string) error {
	how := linkHow.Load()
	err := ignoringEINTR(func() error { return linkAs(how, fd, dir, name) })
	if how != linkByDescriptor || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err = ignoringEINTR(func() error { return linkAs(linkByPath, fd, dir, name) })
	if err == nil {
		linkHow.Store(linkByPath)
	}
	return err
}

// ownFiles is the folder of this process's descriptors in /proc, or -1. It stays open, so that the
// system does not look up its path for each file.
var ownFiles = sync.OnceValue(func() int {
	fd, err := unix.Open("/proc/self/fd", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
})

func linkAs(how int32, fd, dir int, name string) error {
	if how == linkByPath {
		return unix.Linkat(ownFiles(), strconv.Itoa(fd), dir, name, unix.AT_SYMLINK_FOLLOW)
	}
	var ended endedName
	if !ended.set(name) {
		return unix.ENAMETOOLONG
	}
	_, _, errno := unix.Syscall6(unix.SYS_LINKAT, uintptr(fd), uintptr(unsafe.Pointer(&noName[0])),
		uintptr(dir), uintptr(unsafe.Pointer(&ended[0])), unix.AT_EMPTY_PATH, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
