//go:build !windows

package backup

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// tryLock tries to take the exclusive lock on f, and reports whether it got it. Closing f or the
// end of the process releases the lock.
func tryLock(f *os.File) (bool, error) {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, unix.EINTR):
			return false, err
		}
	}
}
