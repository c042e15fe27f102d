package backup

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// tryLock tries to take the exclusive lock on f, and reports whether it got it. Closing f or the
// end of the process releases the lock.
func tryLock(f *os.File) (bool, error) {
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}
