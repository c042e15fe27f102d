//go:build !linux

package outbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// isOpenForWriting returns false: only Linux can tell.
func isOpenForWriting(*os.File) bool { return false }

// dataOf returns the size of a file: only Linux tells where its holes are.
func dataOf(_ *os.File, size int64) int64 { return size }

// openFlags open a file for reading.
const openFlags = os.O_RDONLY

// remoteType returns "": the notifications of these systems cover what they mount.
func remoteType(string) string { return "" }

// isFullOfWatches reports whether the process has no room for another watch.
func isFullOfWatches(err error) bool { return errors.Is(err, syscall.EMFILE) }

// renameNew renames a file in one open folder to a name in another one. It fails with an error
// matching fs.ErrExist if the new name is taken. Where the file system has no hard links, it
// replaces a file that is made at the same moment.
func renameNew(from *os.File, name string, into *os.File, as string) error {
	old, to := filepath.Join(from.Name(), name), filepath.Join(into.Name(), as)
	err := os.Link(old, to)
	switch {
	case err == nil:
		return os.Remove(old)
	case errors.Is(err, fs.ErrExist):
		return err
	}
	if _, taken := os.Lstat(to); taken == nil {
		return fs.ErrExist
	}
	return os.Rename(old, to)
}
