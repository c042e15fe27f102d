package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
)

// Staged is a complete target that lacks only its final name. It keeps its
// partial file open and locked, so that no other writer and no Sweep takes it.
// Its owner adds it to a Batch or discards it.
type Staged struct {
	tree   *Tree
	path   string
	file   content
	ref    fileRef
	dev    uint64
	synced bool           // on the medium already
	log    *checkpointLog // nil without checkpoint

	mu    sync.Mutex // guards the following and the use of file; held while the name is given
	ended bool
	err   error // a failed sync, final
}

func newStaged(t *Tree, path string, file *os.File, info fs.FileInfo) *Staged {
	_, dev := fileID(info)
	return &Staged{tree: t, path: path, file: file, ref: refOf(info), dev: dev}
}

// content is an open file.
type content interface {
	io.ReaderAt
	Sync() error
	Close() error
}

// Put writes the whole target m.Path with content data and m's metadata, whose
// folder must exist, and leaves its name to a Batch. m.Size must be the length of
// data. With SyncFile it returns when the file is on the medium; calls from
// several goroutines share the work of that. data is not kept.
//
// Errors: ErrBusy while another Partial or Staged has the target open, ErrNoSpace
// if it doesn't fit, ErrPath and ErrNotFolder for a bad path, a system error if
// too many files are open; Batch.Full says when to commit before. A folder of the
// final name shows only when the Batch is committed.
func (t *Tree) Put(m Meta, data []byte, opt TargetOptions) (s *Staged, err error) {
	if m.Size != int64(len(data)) {
		return nil, at("put", m.Path, fmt.Errorf("size %d is not that of the content, %d", m.Size, len(data)))
	}
	err = t.withParent(m.Path, func(f *folder, base string) error {
		if base == "." {
			return ErrExists
		}
		s, err = t.put(f, base, m, data, &opt)
		return err
	})
	return s, at("put", m.Path, err)
}

// putOver is put over what an earlier or other writer left, with what every
// system has.
func (t *Tree) putOver(f *folder, base string, m Meta, data []byte, opt *TargetOptions) (_ *Staged, err error) {
	reserved := reservedName(base)
	name := reserved + partialSuffix
	file, info, created, err := claim(f.root, name)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = removeIfThere(f.root, name)
			file.Close()
		}
	}()
	s := newStaged(t, m.Path, file, info)
	if !created {
		if err := errors.Join(file.Truncate(0), removeIfThere(f.root, reserved+checkpointSuffix)); err != nil {
			return nil, err
		}
	}
	if err := t.volumes.note(s.dev, f); err != nil {
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
	if opt.Sync == SyncFile {
		if err := opt.syncing(file.Sync); err != nil {
			return nil, err
		}
		s.synced = true
	}
	return s, nil
}

// name gives the target its final name. After an error it stays as it was.
func (s *Staged) name(f *folder, base string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return os.ErrClosed
	}
	if s.err != nil {
		return s.err
	}
	reserved := reservedName(base)
	name := reserved + partialSuffix
	// The lock keeps those away who know of it. Who removed the file all the same
	// may have made room for another writer's, which is not complete.
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

// Discard gives the target up. A file with a checkpoint stays for a later run, as
// after Partial.Close; any other is removed. After the target has its name,
// Discard does nothing.
func (s *Staged) Discard() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil
	}
	var err error
	if s.log == nil {
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
}

// fail makes err the answer to any further attempt: what could not be written
// back once is not known to be on the medium by a later sync that succeeds.
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

// ReadAt is io.ReaderAt's, until the target has its name or is discarded.
func (s *Staged) ReadAt(b []byte, off int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return 0, at("read", s.path, os.ErrClosed)
	}
	return s.file.ReadAt(b, off)
}
