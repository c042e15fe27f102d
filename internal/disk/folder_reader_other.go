//go:build !linux

package disk

import (
	"io/fs"
	"os"
)

// readerBatch is how many names a folderReader knows at a time.
const readerBatch = 128

// folderReader is a folder that somebody reads, entry by entry. One goroutine uses it.
type folderReader struct {
	folder *folder
	dir    *os.File
	path   string // of the folder, in the tree
	rest   []fs.DirEntry
}

// list opens f to read it. The caller closes it.
func (f *folder) list() (*folderReader, error) {
	dir, err := f.root.Open(".")
	if err != nil {
		return nil, err
	}
	return &folderReader{folder: f.retain(), dir: dir, path: f.path}, nil
}

// enter opens the folder name in l, which has this path in the tree. It follows no symlink. The
// caller closes it.
func (l *folderReader) enter(name, _ string) (*folderReader, error) {
	if name == "." {
		return l.folder.list()
	}
	f, err := l.folder.enter(name)
	if err != nil {
		return nil, err
	}
	defer f.release()
	return f.list()
}

func (l *folderReader) close() {
	l.dir.Close()
	l.folder.release()
}

// next returns the path in the tree and the name of the next entry, and whether it is a folder. At
// the end it returns io.EOF.
func (l *folderReader) next() (path, name string, isDir bool, err error) {
	if len(l.rest) == 0 {
		if l.rest, err = l.dir.ReadDir(readerBatch); len(l.rest) == 0 {
			return "", "", false, err
		}
	}
	e := l.rest[0]
	l.rest = l.rest[1:]
	return childPath(l.path, e.Name()), e.Name(), e.IsDir(), nil
}

// describe describes the entry name in l, which has this path in the tree.
func (l *folderReader) describe(name, path string) (Meta, error) {
	return l.folder.describe(l.dir, name, path)
}

// xattrs reads the extended attributes of the entry name in l.
func (l *folderReader) xattrs(name string) ([]Xattr, error) { return readXattrs(l.dir, name) }
