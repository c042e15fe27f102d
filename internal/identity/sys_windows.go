package identity

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/windows"
)

// lockExclusive waits for the exclusive lock on f. Closing f releases it.
func lockExclusive(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, new(windows.Overlapped))
}

// replaceFile renames a file, and replaces an existing target. Windows refuses that while anyone,
// for instance a virus scanner, has the old file open, so replaceFile tries for up to a second.
func replaceFile(from, to string) error {
	for wait := time.Millisecond; ; wait *= 2 {
		err := os.Rename(from, to)
		busy := errors.Is(err, windows.ERROR_SHARING_VIOLATION) || errors.Is(err, windows.ERROR_ACCESS_DENIED)
		if !busy || wait > 512*time.Millisecond {
			return err
		}
		time.Sleep(wait)
	}
}

// syncDir does nothing: Windows cannot sync a folder, and NTFS journals the rename.
func syncDir(string) error { return nil }

// openTo reports false. On Windows the mode bits say nothing about access, and the user's profile
// folder is private.
func openTo(fs.FileInfo, fs.FileMode) bool { return false }
