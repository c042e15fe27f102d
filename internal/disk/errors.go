package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Errors callers branch on. They come wrapped with the operation and the path.
var (
	// ErrPath marks a path that CheckPath rejects.
	ErrPath = errors.New("path not allowed")
	// ErrReserved marks a path that CheckPath rejects because fxfer keeps such names for its own files.
	ErrReserved = errors.New("reserved, because it begins with .fxfer-")
	// ErrNotFolder marks a path that leads through a symlink or a file where a folder is expected.
	ErrNotFolder = errors.New("a part of the path is not a folder")
	// ErrExists marks a target whose name belongs to an entry of another kind. That entry is never
	// removed.
	ErrExists = errors.New("an entry of another kind has that name")
	// ErrNotEmpty marks a folder that holds entries.
	ErrNotEmpty = errors.New("not empty")
	// ErrUnsupportedKind marks an entry whose kind the call does not handle, or which has none of
	// the Kinds.
	ErrUnsupportedKind = errors.New("unsupported kind of entry")
	// ErrChanged marks a source that is no longer the file that was opened.
	ErrChanged = errors.New("source changed")
	// ErrBusy marks a target that another Partial or Staged has open, in this or another process.
	ErrBusy = errors.New("another transfer is writing the target")
	// ErrNoSpace marks a full file system or an exhausted quota. See NoSpaceError.
	ErrNoSpace = errors.New("no space left")
	// ErrTooManyFiles marks a file that cannot be opened because this process or host has too many
	// open.
	ErrTooManyFiles = errors.New("too many open files here")
	// ErrIncomplete marks a commit of a partial that lacks data.
	ErrIncomplete = errors.New("the partial file is incomplete")
)

// existsError is ErrExists where it is known what has the name.
type existsError string

const (
	errFileExists   existsError = "a file with that name exists"
	errFolderExists existsError = "a folder with that name exists"
	errSameFile     existsError = "both are names of the same file"
)

func (e existsError) Error() string { return string(e) }

// Is reports whether target is ErrExists.
func (e existsError) Is(target error) bool { return target == ErrExists }

// NoSpaceError reports that a target does not fit, before anything was written. It matches
// ErrNoSpace.
type NoSpaceError struct {
	Need int64 // bytes that the target still needs
	Free int64 // bytes available to this user
}

func (e *NoSpaceError) Error() string {
	return fmt.Sprintf("%v: %d bytes needed, %d free", ErrNoSpace, e.Need, e.Free)
}

// Is reports whether target is ErrNoSpace.
func (e *NoSpaceError) Is(target error) bool { return target == ErrNoSpace }

// classed is an error of the system that also matches a sentinel of this package. Its text is that
// of the system, which says the same.
type classed struct{ class, cause error }

func (e *classed) Error() string   { return e.cause.Error() }
func (e *classed) Unwrap() []error { return []error{e.class, e.cause} }

// at adds the operation and the path in the tree to err. They replace the operation and the name
// that os reports.
func at(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: bare(err)}
}

// bare strips operation and name from an error of os. It adds ErrNoSpace and ErrTooManyFiles to
// system errors that mean the same.
func bare(err error) error {
	// Only the outermost error: somebody wrapped the inner ones for a reason.
	switch e := err.(type) { //nolint:errorlint // see above
	case *fs.PathError:
		err = e.Err
	case *os.LinkError:
		err = e.Err
	}
	if isNoSpace(err) && !errors.Is(err, ErrNoSpace) {
		err = &classed{ErrNoSpace, err}
	}
	if (errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)) && !errors.Is(err, ErrTooManyFiles) {
		err = &classed{ErrTooManyFiles, err}
	}
	return err
}
