package disk

import (
	"errors"
	"io/fs"
	"os"
)

// readAheadFrom is the size in bytes from which readahead is worth a system call.
const readAheadFrom = 1 << 20

// Source is an open file of a tree. Its methods are safe for concurrent use; the
// opener closes it.
type Source struct {
	tree *Tree
	path string
	file *os.File
	id   Identity
}

// OpenFile opens the regular file at path for reading.
func (t *Tree) OpenFile(path string) (*Source, error) {
	folder, base, err := t.enterParent(path)
	if err != nil {
		return nil, at("open", path, err)
	}
	defer folder.Close()
	file, info, err := openRegular(folder, base, os.O_RDONLY)
	if err != nil {
		return nil, at("open", path, err)
	}
	if info.Size() > readAheadFrom {
		adviseSequential(file)
	}
	return &Source{tree: t, path: path, file: file, id: identityOf(info)}, nil
}

// ReadAt is io.ReaderAt's.
func (s *Source) ReadAt(p []byte, off int64) (int, error) { return s.file.ReadAt(p, off) }

// Identity is that of the file when it was opened.
func (s *Source) Identity() Identity { return s.id }

// Unchanged returns nil if the open file and the path both still have the
// identity of Source.Identity, and ErrChanged if one has not or the path is gone.
func (s *Source) Unchanged() error {
	info, err := s.file.Stat()
	if err != nil {
		return at("stat", s.path, err)
	}
	if identityOf(info) != s.id {
		return at("compare", s.path, ErrChanged)
	}
	folder, base, err := s.tree.enterParent(s.path)
	if err != nil {
		return at("compare", s.path, goneIsChanged(err))
	}
	defer folder.Close()
	byPath, err := folder.Lstat(base)
	if err != nil {
		return at("compare", s.path, goneIsChanged(err))
	}
	if !os.SameFile(info, byPath) || identityOf(byPath) != s.id {
		return at("compare", s.path, ErrChanged)
	}
	return nil
}

// Close closes the file. A second call returns an error matching os.ErrClosed.
func (s *Source) Close() error { return s.file.Close() }

// goneIsChanged turns the errors of a path that leads nowhere now into ErrChanged.
func goneIsChanged(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrNotFolder) {
		return ErrChanged
	}
	return err
}
