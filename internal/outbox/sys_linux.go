package outbox

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// changeOf returns the time of the last change of a file or its metadata, in ns since 1970, and its
// inode.
func changeOf(info fs.FileInfo) (changed int64, inode uint64) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0
	}
	return st.Ctim.Nano(), st.Ino
}

// isOpenForWriting reports whether some process has the file open for writing, as far as the kernel
// tells. A read lease is granted only if nobody has; it is given back at once. The kernel grants
// leases on local file systems to the owner of the file and to root; otherwise the answer is false.
func isOpenForWriting(f *os.File) bool {
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	open := false
	_ = raw.Control(func(fd uintptr) {
		_, err := unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_RDLCK)
		open = errors.Is(err, unix.EAGAIN)
		if err == nil {
			_, _ = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_UNLCK)
		}
	})
	return open
}

// dataOf returns how many bytes a file has before its first hole. It moves the offset of the file.
func dataOf(f *os.File, size int64) int64 {
	hole, err := f.Seek(0, unix.SEEK_HOLE)
	if err != nil {
		return size
	}
	return min(hole, size)
}

// openFlags keep an open from waiting for the other end of a pipe and from following a link.
const openFlags = os.O_RDONLY | unix.O_NONBLOCK | unix.O_NOFOLLOW

// remoteTypes are the file systems whose changes by other hosts the kernel does not report, by
// their numbers in statfs(2).
var remoteTypes = map[uint32]string{
	unix.NFS_SUPER_MAGIC: "NFS", unix.SMB_SUPER_MAGIC: "SMB", unix.CIFS_SUPER_MAGIC: "SMB",
	unix.SMB2_SUPER_MAGIC: "SMB", unix.AFS_SUPER_MAGIC: "AFS", unix.CEPH_SUPER_MAGIC: "Ceph",
	unix.V9FS_MAGIC: "9P", unix.FUSE_SUPER_MAGIC: "FUSE",
}

// remoteType returns the name of the file system of dir if other hosts may change it, or "".
func remoteType(dir string) string {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return ""
	}
	return remoteTypes[uint32(st.Type)]
}

// isFullOfWatches reports whether the kernel has no room for another watch of this user.
func isFullOfWatches(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EMFILE)
}

// renameNew renames a file in one open folder to a name in another one. It fails with an error
// matching fs.ErrExist if the new name is taken. Where the file system knows neither that flag (NFS)
// nor hard links, it replaces a file that is made at the same moment.
func renameNew(from *os.File, name string, into *os.File, as string) error {
	defer runtime.KeepAlive(into)
	defer runtime.KeepAlive(from)
	a, b := int(from.Fd()), int(into.Fd())
	err := unix.Renameat2(a, name, b, as, unix.RENAME_NOREPLACE)
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	err = unix.Linkat(a, name, b, as, 0)
	switch {
	case err == nil:
		return unix.Unlinkat(a, name, 0)
	case errors.Is(err, unix.EEXIST):
		return err
	}
	if unix.Fstatat(b, as, new(unix.Stat_t), unix.AT_SYMLINK_NOFOLLOW) == nil {
		return unix.EEXIST
	}
	return unix.Renameat(a, name, b, as)
}
