package disk

import (
	"fmt"
	"io/fs"
	"os"
	"time"
)

// An early partial file holds what came of a file that still grows at its source. It never gets a
// name. When the file is complete, it is the old version of a delta, and then it goes.

const (
	// earlySize is more than any file has. It also tells the checkpoint of an early partial file from
	// others.
	earlySize = 1 << 61
	// earlyMark makes the base name of a target that of its early partial file. No name has a NUL.
	earlyMark = "\x00early"
)

// growing is the identity of a file that grows: only its inode stays.
func growing(id Identity) Identity { return Identity{Ino: id.Ino, Dev: id.Dev} }

// Early opens the early partial file of the target m.Path, whose folder must exist. It goes on with
// what an earlier run left if blockSize and the inode in m.ID are the same and m.Size, the size of
// the source by now, is not less than what is there. It discards any other leftover. The caller ends
// it with Close, which keeps it, or Abort: it can't be committed. Errors are those of Partial, and
// ErrNoSpace if the complete file would not fit beside it.
func (t *Tree) Early(m Meta, blockSize int, opt TargetOptions) (p *Partial, err error) {
	if blockSize <= 0 || blockSize > 1<<30 {
		return nil, fmt.Errorf("open early file %s: block size %d out of range", m.Path, blockSize)
	}
	err = t.withParent(m.Path, func(f *folder, base string) error {
		p = &Partial{
			tree: t, dir: f, folder: f.root, path: m.Path, base: base + earlyMark, early: true, least: m.Size,
			size: earlySize, blockSize: int64(blockSize), opt: opt,
		}
		if err := p.open(growing(m.ID)); err != nil {
			return err
		}
		f.retain()
		return nil
	})
	if err != nil {
		return nil, at("open early file", m.Path, err)
	}
	return p, nil
}

// OpenEarly opens the early partial file of the target m.Path for reading, if it is that of the
// source with the inode in m.ID. Otherwise the error matches fs.ErrNotExist. It is ErrBusy while
// somebody writes the file, and nobody can until the Source is closed.
func (t *Tree) OpenEarly(m Meta, blockSize int) (*Source, error) {
	s := &Source{tree: t, path: m.Path, own: true}
	err := t.withParent(m.Path, func(f *folder, base string) error {
		p := Partial{folder: f.root, base: base + earlyMark, size: earlySize, blockSize: int64(blockSize)}
		file, info, err := openRegular(f.root, p.partialName(), os.O_RDONLY)
		if err != nil {
			return err
		}
		if err = lockFile(file); err == nil {
			info, err = file.Stat() // as it is now that nobody writes it
		}
		if err == nil && (!isOurs(info) || !holds(f.root, p.partialName(), file) || !p.isLogged(growing(m.ID), info)) {
			err = fs.ErrNotExist
		}
		if err != nil {
			file.Close()
			return err
		}
		s.file, s.id = file, identityOf(info)
		return nil
	})
	if err != nil {
		return nil, at("open early file", m.Path, err)
	}
	return s, nil
}

// isLogged reports whether there is a checkpoint for this target, source and partial file.
func (p *Partial) isLogged(source Identity, info fs.FileInfo) bool {
	file, its, err := openRegular(p.folder, p.checkpointName(), os.O_RDONLY)
	if err != nil {
		return false
	}
	defer file.Close()
	b := make([]byte, headerSize)
	_, err = file.ReadAt(b, 0)
	header := p.header(source, info)
	return err == nil && isOurs(its) && header.accepts(b)
}

// RemoveEarly removes the early partial file of the target at path, unless somebody uses it. It
// reports whether there was one.
func (t *Tree) RemoveEarly(path string) (removed bool, err error) {
	err = t.withParent(path, func(f *folder, base string) (err error) {
		p := Partial{base: base + earlyMark}
		if _, missing := f.root.Lstat(p.partialName()); missing == nil {
			removed, err = sweepName(f.root, p.partialName(), time.Now().Add(time.Hour))
		}
		return err
	})
	return removed, at("remove early file", path, err)
}
