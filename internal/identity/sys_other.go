//go:build !windows

package identity

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// lockExclusive waits for the exclusive lock on f. Closing f releases it.
func lockExclusive(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// replaceFile renames a file, and replaces an existing target.
func replaceFile(from, to string) error { return os.Rename(from, to) }

// syncDir makes a rename in dir durable, where the file system can.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTSUP) {
		return err
	}
	return nil
}

// openTo reports whether the file has any of the given mode bits.
func openTo(info fs.FileInfo, bits fs.FileMode) bool { return info.Mode().Perm()&bits != 0 }
