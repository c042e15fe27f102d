package disk

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// copyRange copies n bytes between files in the kernel. The files share the data where the file
// system can do that.
func copyRange(to, from *os.File, off, at, n int64) error {
	for n > 0 {
		var done int
		err := withFD(to, func(toFD int) error {
			return withFD(from, func(fromFD int) (err error) {
				source, target := at, off
				done, err = unix.CopyFileRange(fromFD, &source, toFD, &target, int(min(n, 1<<30)), 0)
				return err
			})
		})
		switch {
		case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EXDEV), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPERM):
			return copyThrough(to, from, off, at, n)
		case err != nil:
			return err
		case done == 0:
			return ErrChanged // the file is shorter than before
		}
		off, at, n = off+int64(done), at+int64(done), n-int64(done)
	}
	return nil
}

// cloneRange makes two files share n bytes (FICLONERANGE).
func cloneRange(to, from *os.File, off, at, n int64) error {
	return withFD(to, func(toFD int) error {
		return withFD(from, func(fromFD int) error {
			return unix.IoctlFileCloneRange(toFD, &unix.FileCloneRange{
				Src_fd: int64(fromFD), Src_offset: uint64(at), Src_length: uint64(n), Dest_offset: uint64(off),
			})
		})
	})
}
