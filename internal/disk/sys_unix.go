//go:build !windows

package disk

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const openNonblock = unix.O_NONBLOCK

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
		return uint64(st.Ino), uint64(st.Dev) //nolint:unconvert // they have other types on some systems
	}
	return 0, 0
}

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

func isNoSpace(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}
