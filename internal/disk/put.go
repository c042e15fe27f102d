package disk

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
)

// Staged is a complete target that lacks only its final name. It keeps its partial file open and
// locked, so no other writer and no Sweep can take it. Or it has no name at all yet. Its owner adds
// it to a Batch or discards it.
type Staged struct {
	tree   *Tree
	path   string
	target writingTarget // until it ended
	file   content
	ref    fileRef
	before moment         // the data was written after it
	synced bool           // on the medium already
	log    *checkpointLog // nil without checkpoint

	nameless *unnamedFile // nil if it has its reserved name

	mu    sync.Mutex // guards the following and the use of file; held during the rename
	ended bool
	err   error // a failed sync, final
}

func newStaged(t *Tree, path string, file *os.File, info fs.FileInfo, before moment) *Staged {
	return &Staged{tree: t, path: path, file: file, ref: refOf(info), before: before}
}

// content is an open file.
type content interface {
	io.ReaderAt
	Sync() error
	Close() error
}

// Put writes the whole target m.Path with content data and m's metadata, and leaves its name to a
// Batch. The folder must exist, and m.Size must be the length of data. With SyncFile it returns
// when the file is on the medium; concurrent calls share the cost. Put does not keep data.
//
// Errors: ErrBusy while another Partial or Staged has the target open, ErrNoSpace if it does not
// fit, ErrPath and ErrNotFolder for a bad path, and a system error if too many files are open.
// Batch.Most says how many targets may be open. A folder of the final name shows only when the
// Batch is committed.
func (t *Tree) Put(m Meta, data []byte, opt TargetOptions) (s *Staged, err error) {
	if m.Size != int64(len(data)) {
		return nil, at("write", m.Path, fmt.Errorf("size %d is not that of the content, %d", m.Size, len(data)))
	}
	err = t.withParent(m.Path, func(f *folder, base string) error {
		if base == "." {
			return errFolderExists
		}
		target, err := writing.begin(f, base)
		if err != nil {
			return err
		}
		if s, err = t.put(f, base, m, data, &opt); err != nil {
			writing.end(target)
			return err
		}
		s.target = target
		return nil
	})
	return s, at("write", m.Path, err)
}

// putOver is put for a name that a writer used before. It works on every system.
func (t *Tree) putOver(f *folder, base string, m Meta, data []byte, opt *TargetOptions) (_ *Staged, err error) {
	reserved := reservedName(base)
	name := reserved + partialSuffix
	file, info, fresh, err := claim(f.root, name, func(fs.FileInfo) bool { return false })
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = removeIfThere(f.root, name)
			file.Close()
		}
	}()
	if !fresh {
		if err := removeIfThere(f.root, reserved+checkpointSuffix); err != nil {
			return nil, err
		}
	}
	_, dev := fileID(info)
	before, err := t.volumes.note(dev, f)
	if err != nil {
		return nil, err
	}
	if len(data) > 0 {
		if _, err := file.Write(data); err != nil {
			return nil, err
		}
	}
	m.Kind = File
	if err := opt.dress(fileHandle(f.root, name, file), nil, m); err != nil {
		return nil, err
	}
	s := newStaged(t, m.Path, file, info, before)
	if opt.Sync == SyncFile {
		if err := opt.syncing(file.Sync); err != nil {
			return nil, err
		}
		s.synced = true
	}
	return s, nil
}

// Path returns the path that the target is for.
func (s *Staged) Path() string { return s.path }

// name gives the target its final name. After an error the target is as before.
func (s *Staged) name(f *folder, base string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return os.ErrClosed
	}
	if s.err != nil {
		return s.err
	}
	if s.nameless != nil {
		if err := s.nameless.name(s.tree, f, base); err != nil {
			return err
		}
		s.endLocked()
		return nil
	}
	reserved := reservedName(base)
	name := reserved + partialSuffix
	// The lock keeps other writers away. Somebody who ignores it may have removed the file, and
	// another writer may have made one of that name that is not complete.
	if !f.holdsAs(name, s.ref) {
		return errTakenAway
	}
	if err := s.tree.renameOver(f, name, base); err != nil {
		return err
	}
	s.endLocked()
	if s.log != nil {
		_ = removeIfThere(f.root, reserved+checkpointSuffix) // Sweep would find it
	}
	return nil
}

// Discard gives the target up. Like Partial.Close, it keeps a file with a checkpoint for a later
// run, and removes any other. After the target has its name, Discard does nothing.
func (s *Staged) Discard() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil
	}
	var err error
	if s.log == nil && s.nameless == nil {
		err = s.tree.withParent(s.path, func(f *folder, base string) error {
			name := reservedName(base) + partialSuffix
			if !f.holdsAs(name, s.ref) {
				return nil
			}
			return removeIfThere(f.root, name)
		})
	}
	s.endLocked()
	return at("discard", s.path, err)
}

func (s *Staged) endLocked() {
	s.ended = true
	if s.log != nil {
		s.log.file.Close()
	}
	_ = s.file.Close() // also unlocks
	writing.end(s.target)
}

// fail makes err the result of all further attempts. Once data could not be written back, a later
// sync that succeeds does not prove that it is on the medium.
func (s *Staged) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

// sync returns when the content is on the medium.
func (s *Staged) sync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return os.ErrClosed
	}
	return s.file.Sync()
}

// ReadAt implements io.ReaderAt, until the target has its name or is discarded.
func (s *Staged) ReadAt(b []byte, off int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return 0, at("read", s.path, os.ErrClosed)
	}
	return s.file.ReadAt(b, off)
}
