//go:build !linux && !windows

package disk

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// directFlag is the flag for writes past the page cache. There is none here, and no space is claimed.
const directFlag = 0

// changeTime returns 0: nobody relies on the time of the last change here.
func changeTime(fs.FileInfo) int64 { return 0 }

// syncData returns when the file's data is on the medium.
func syncData(file *os.File) error { return file.Sync() }

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

// cachedBytes fails: the system has no call for it.
func cachedBytes(*os.File) (int64, error) { return 0, errors.ErrUnsupported }

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

// bootID identifies this run of the kernel. It is zero where that is unknown.
func bootID() (id [32]byte) { return id }
