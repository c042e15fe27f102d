//go:build !linux

package outbox

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// isOpenForWriting returns false: only Linux can tell.
func isOpenForWriting(*os.File) bool { return false }

// openFlags open a file for reading.
const openFlags = os.O_RDONLY

// remoteType returns "": the notifications of these systems cover what they mount.
func remoteType(string) string { return "" }

// isFullOfWatches reports whether the process has no room for another watch.
func isFullOfWatches(err error) bool { return errors.Is(err, syscall.EMFILE) }

// linkBetween makes a hard link from a name in one open folder to a name in another one. It fails
// with an error matching fs.ErrExist if the new name is taken.
func linkBetween(from *os.File, name string, into *os.File, as string) error {
	return os.Link(filepath.Join(from.Name(), name), filepath.Join(into.Name(), as))
}
