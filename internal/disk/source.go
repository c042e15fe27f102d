package disk

import (
	"errors"
	"io/fs"
	"os"
	"sync"
)

// readAheadFrom is the size in bytes from which readahead is worth a system call.
const readAheadFrom = 1 << 20

// Source is an open file of a tree. Its methods are safe for concurrent use. Whoever opened it
// closes it.
type Source struct {
	tree *Tree
	path string
	file *os.File
	id   Identity
	own  bool // it is locked, and has no path that others may use

	behind *behind // nil if what was sent stays in the page cache

	seeking sync.Mutex // guards seen, and the offset of file while it seeks
	seen    segment    // the last segment that Data found
}

// Range is some bytes of a file.
type Range struct {
	Off, Len int64 // bytes
}

// segment is a part of a file: a hole, which may be empty, and the data after it.
type segment struct {
	from, data, to int64
}

// OpenFile opens the regular file at path for reading. Other kinds give ErrUnsupportedKind.
func (t *Tree) OpenFile(path string) (*Source, error) {
	s := &Source{tree: t, path: path}
	err := t.withParent(path, func(f *folder, base string) error {
		file, info, err := openRegular(f.root, base, os.O_RDONLY)
		if err != nil {
			return err
		}
		s.file, s.id = file, identityOf(info)
		return nil
	})
	if err != nil {
		return nil, at("open", path, err)
	}
	if s.id.Size > readAheadFrom {
		adviseSequential(s.file)
	}
	return s, nil
}

// ReadAt implements io.ReaderAt.
func (s *Source) ReadAt(p []byte, off int64) (int, error) { return s.file.ReadAt(p, off) }

// Leave says, before anything is read, that the file is not read again once it is closed. A large file
// then leaves the page cache as it is sent, unless others use it: on Linux from 6.5 on, with some file
// systems.
func (s *Source) Leave() { s.behind = newBehind(s.file, s.id.Size) }

// Sent says that n bytes from off need not be read again, as far as is known. See Leave.
func (s *Source) Sent(off, n int64) {
	if s.behind != nil {
		s.behind.add(off, n)
	}
}

// Identity returns the file's identity at the time of opening.
func (s *Source) Identity() Identity { return s.id }

// Unchanged returns nil if the open file and the file at the path still have the identity of
// Source.Identity. It returns ErrChanged if one of them differs or the path is gone.
func (s *Source) Unchanged() error {
	info, err := s.file.Stat()
	if err != nil {
		return at("stat", s.path, err)
	}
	if identityOf(info) != s.id {
		return at("compare", s.path, ErrChanged)
	}
	if s.own {
		return nil
	}
	var byPath fs.FileInfo
	err = s.tree.withParent(s.path, func(f *folder, base string) error {
		byPath, err = f.root.Lstat(base)
		return err
	})
	if err != nil {
		return at("compare", s.path, goneIsChanged(err))
	}
	if !os.SameFile(info, byPath) || identityOf(byPath) != s.id {
		return at("compare", s.path, ErrChanged)
	}
	return nil
}

// Data returns the ranges with data in the n bytes from off, ascending and apart. Holes lie between
// them, and read as zeros. Data ends where the file ended when it was opened. Where the file system
// cannot say, everything is data. A file with many holes has as many ranges: ask for a part at a
// time to limit them. Data remembers its last segment for the next call. Unchanged reports whether
// the file changed meanwhile.
func (s *Source) Data(off, n int64) ([]Range, error) {
	if off < 0 || n < 0 {
		return nil, at("find data in", s.path, fs.ErrInvalid)
	}
	end := s.id.Size
	if n < end-off {
		end = off + n
	}
	s.seeking.Lock()
	defer s.seeking.Unlock()
	var found []Range
	for off < end {
		if off < s.seen.from || off >= s.seen.to {
			seen, err := segmentAt(s.file, off, s.id.Size)
			if err != nil {
				return nil, at("find data in", s.path, err)
			}
			s.seen = seen
		}
		from, to := max(off, s.seen.data), min(end, s.seen.to)
		if from < to {
			found = append(found, Range{Off: from, Len: to - from})
		}
		off = s.seen.to
	}
	return found, nil
}

// Close closes the file. A second call returns an error matching os.ErrClosed.
func (s *Source) Close() error {
	if s.behind != nil { // what was only compared, and what was read ahead
		dropCache(s.file, 0, s.id.Size)
	}
	return s.file.Close()
}

// goneIsChanged turns the errors of a path that now leads nowhere into ErrChanged.
func goneIsChanged(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrNotFolder) {
		return ErrChanged
	}
	return err
}
