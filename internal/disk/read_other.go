//go:build !linux

package disk

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"time"
)

// noTime makes Root.Chtimes keep a time.
var noTime time.Time

// readFile fills buf with the whole regular file base in f. It returns ErrChanged unless the file
// has the identity id before and afterwards.
func (f *folder) readFile(base string, id Identity, buf []byte) error {
	file, info, err := openRegular(f.root, base, os.O_RDONLY)
	if errors.Is(err, ErrUnsupportedKind) {
		return ErrChanged
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if identityOf(info) != id {
		return ErrChanged
	}
	if n, err := file.ReadAt(buf, 0); n < len(buf) {
		if errors.Is(err, io.EOF) {
			err = ErrChanged
		}
		return err
	}
	if info, err = file.Stat(); err == nil && identityOf(info) != id {
		err = ErrChanged
	}
	return err
}

// fileRef distinguishes files. Where files have no numbers, those of two calls of refOf always differ.
type fileRef struct {
	ino, dev uint64
	info     fs.FileInfo // nil with numbers
}

func refOf(info fs.FileInfo) fileRef {
	if ino, dev := fileID(info); ino != 0 {
		return fileRef{ino: ino, dev: dev}
	}
	return fileRef{info: info}
}

// holdsAs reports whether the entry name in f is that file.
func (f *folder) holdsAs(name string, file fileRef) bool {
	if file.info != nil {
		return isNamed(f.root, name, file.info)
	}
	info, err := f.root.Lstat(name)
	return err == nil && refOf(info) == file
}

// look describes the folder name in f. It follows no symlink.
func (f *folder) look(name string) (*os.File, fs.FileInfo, error) {
	seen, err := f.root.Lstat(name)
	if err == nil && !seen.IsDir() {
		err = ErrNotFolder
	}
	return nil, seen, err
}

// leadsTo reports whether path, in the tree, is still the folder f.
func (t *Tree) leadsTo(path string, f *folder) bool {
	top, err := t.folders.top()
	if err != nil {
		return false
	}
	defer top.release()
	return leadsToSlowly(top.root, path, f)
}

// describe describes the entry name in f as path.
func (f *folder) describe(_ *os.File, name, path string) (Meta, error) {
	info, err := f.root.Lstat(name)
	if err != nil {
		return Meta{}, err
	}
	m, err := metaOf(path, info)
	if err == nil && m.Kind == Symlink {
		m.Link, err = f.root.Readlink(name)
	}
	return m, err
}

// metaOf converts the result of lstat for path, without the link's target and without what only
// some systems have.
func metaOf(path string, info fs.FileInfo) (Meta, error) {
	m := Meta{
		Path:    path,
		ModTime: info.ModTime(),
		Mode:    info.Mode() & modeBits,
	}
	m.Kind = kindOf(info.Mode())
	switch m.Kind {
	case 0:
		return Meta{}, ErrUnsupportedKind
	case File:
		m.Size = info.Size()
	}
	m.ID = identityOf(info)
	return m, nil
}

// readXattrs returns none: fxfer knows only Linux's.
func readXattrs(*os.File, string) ([]Xattr, error) { return nil, nil }

// segmentAt returns everything as data.
func segmentAt(_ *os.File, off, size int64) (segment, error) {
	return segment{from: off, data: off, to: size}, nil
}
