package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/windows"
)

const openNonblock = 0

// directFlag is the flag for writes past the page cache. There is none here, and no space is claimed.
const directFlag = 0

// withHandle runs f on the handle of file.
func withHandle(file *os.File, f func(windows.Handle) error) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	if err := conn.Control(func(fd uintptr) { result = f(windows.Handle(fd)) }); err != nil {
		return err
	}
	return result
}

// fileID returns zeros: the result of lstat here does not show the file's number.
func fileID(fs.FileInfo) (ino, dev uint64) { return 0, 0 }

// changeTime returns 0: nobody relies on the time of the last change here.
func changeTime(fs.FileInfo) int64 { return 0 }

// allocated returns about how many bytes the file takes on its file system.
func allocated(info fs.FileInfo) int64 { return info.Size() }

// lockFile takes the exclusive lock of an open file, or returns ErrBusy. Closing the file releases
// the lock. Here locks bind readers and writers, so the lock is on a byte that no file reaches.
func lockFile(file *os.File) error {
	err := withHandle(file, func(h windows.Handle) error {
		beyond := windows.Overlapped{OffsetHigh: 1<<31 - 1}
		return windows.LockFileEx(h, windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &beyond)
	})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrBusy
	}
	return err
}

// syncData returns when the file's data is on the medium.
func syncData(file *os.File) error { return file.Sync() }

// syncFolder does nothing: NTFS journals names, and folders cannot be flushed.
func syncFolder(*os.Root) error { return nil }

func volumeOf(file *os.File) (volume, error) {
	folder, err := windows.UTF16PtrFromString(filepath.Dir(file.Name()))
	if err != nil {
		return volume{}, err
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(folder, &free, nil, nil); err != nil {
		return volume{}, nil // not every file system can say
	}
	return volume{free: int64(min(free, 1<<62)), freeKnown: true}, nil
}

// preallocate does nothing: no call here claims space without side effects.
func preallocate(*os.File, int64, int64, bool) error { return nil }

// startWriteBack does nothing: the system has no call for it.
func startWriteBack(_ *os.File, _, _ int64) {}

// dropCache does nothing: the system has no call for it.
func dropCache(_ *os.File, _, _ int64) {}

// cachedBytes fails: the system has no call for it.
func cachedBytes(*os.File) (int64, error) { return 0, errors.ErrUnsupported }

// adviseSequential does nothing: the system notices by itself.
func adviseSequential(*os.File) {}

// setFileTime sets the modification time of an open file. Use the handle that wrote: otherwise
// closing that handle sets the time once more.
func setFileTime(_ *os.Root, _ string, file *os.File, mtime time.Time) error {
	t := windows.NsecToFiletime(mtime.UnixNano())
	return withHandle(file, func(h windows.Handle) error { return windows.SetFileTime(h, nil, nil, &t) })
}

// setLinkTime does nothing: os.Root gives no access to a symlink's own time.
func setLinkTime(*os.Root, string, time.Time) error { return nil }

// punch is not possible here.
func punch(*os.File, int64, int64) error { return errors.ErrUnsupported }

// syncVolume is not possible here.
func syncVolume(*os.File) error { return errors.ErrUnsupported }

// bootID identifies this run of the kernel. It is zero where that is unknown.
func bootID() (id [32]byte) { return id }

func isNoSpace(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL)
}
