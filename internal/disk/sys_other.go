//go:build !linux && !windows

package disk

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const openNonblock = unix.O_NONBLOCK

// directFlag is the flag for writes past the page cache. There is none here, and no space is claimed.
const directFlag = 0

// withFD runs f on the descriptor of file, and repeats it while it is interrupted.
func withFD(file *os.File, f func(fd int) error) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = conn.Control(func(fd uintptr) {
		for {
			if result = f(int(fd)); !errors.Is(result, unix.EINTR) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	return result
}

// fileID returns the numbers of file and device.
func fileID(info fs.FileInfo) (ino, dev uint64) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Ino), uint64(st.Dev)
	}
	return 0, 0
}

// changeTime returns 0: nobody relies on the time of the last change here.
func changeTime(fs.FileInfo) int64 { return 0 }

// allocated returns how many bytes the file takes on its file system.
func allocated(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return 0
}

// lockFile takes the exclusive lock of an open file, or returns ErrBusy. Closing the file releases
// the lock.
func lockFile(file *os.File) error {
	err := withFD(file, func(fd int) error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrBusy
	}
	return err
}

// syncData returns when the file's data is on the medium.
func syncData(file *os.File) error { return file.Sync() }

// syncFolder returns when the folder's names are on the medium, or at once if the file system
// cannot say.
func syncFolder(folder *os.Root) error {
	f, err := folder.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTSUP) {
		return err
	}
	return nil
}

// volume is what fxfer needs to know about the file system of a target.
type volume struct {
	free         int64 // bytes available to this user
	freeKnown    bool
	inMemory     bool // there is no medium to write back to
	preallocates bool // claims space without writing it
}

func volumeOf(file *os.File) (volume, error) {
	var st unix.Statfs_t
	if err := withFD(file, func(fd int) error { return unix.Fstatfs(fd, &st) }); err != nil {
		return volume{}, err
	}
	return volume{free: int64(st.Bavail) * int64(st.Bsize), freeKnown: st.Blocks > 0}, nil
}

// preallocate does nothing: no call here claims space without side effects.
func preallocate(*os.File, int64, int64, bool) error { return nil }

// startWriteBack does nothing: the system has no call for it.
func startWriteBack(_ *os.File, _, _ int64) {}

// dropCache does nothing: the system has no call for it.
func dropCache(_ *os.File, _, _ int64) {}

// adviseSequential does nothing: the system notices by itself.
func adviseSequential(*os.File) {}

// setFileTime sets the modification time of the open file name in folder.
func setFileTime(folder *os.Root, name string, _ *os.File, mtime time.Time) error {
	return folder.Chtimes(name, noTime, mtime)
}

// setLinkTime sets the modification time of the symlink name in folder itself.
func setLinkTime(folder *os.Root, name string, mtime time.Time) error {
	ts, err := unix.TimeToTimespec(mtime)
	if err != nil {
		return err
	}
	f, err := folder.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	return withFD(f, func(fd int) error {
		// Reading a symlink changes its access time. Nobody reads that.
		return unix.UtimesNanoAt(fd, name, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
	})
}

// punch is not possible here.
func punch(*os.File, int64, int64) error { return errors.ErrUnsupported }

// syncVolume is not possible here.
func syncVolume(*os.File) error { return errors.ErrUnsupported }

// openFiles returns how many files the process may have open.
func openFiles() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 256
	}
	return int(min(uint64(limit.Cur), 1<<30)) //nolint:unconvert // signed on some systems
}

// bootID identifies this run of the kernel. It is zero where that is unknown.
func bootID() (id [32]byte) { return id }

func isNoSpace(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}
