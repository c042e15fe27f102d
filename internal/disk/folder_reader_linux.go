package disk

import (
	"encoding/binary"
	"errors"
	"io"
	"sync"

	"golang.org/x/sys/unix"
)

// folderReader is a folder that somebody reads, entry by entry. It has a descriptor of its own, and
// it is not in the cache: a walk comes by most folders once, and a folder of the cache takes more
// than twice as many system calls. One goroutine uses it.
type folderReader struct {
	fd   int
	path string // of the folder, in the tree
	room *[readerRoom]byte
	rest []byte // of room: what next has not returned
}

// readerRoom is how many bytes of names the system is asked for at a time.
const readerRoom = 32 << 10

var readerRooms = sync.Pool{New: func() any { return new([readerRoom]byte) }}

// list opens f to read it. The caller closes it.
func (f *folder) list() (*folderReader, error) {
	dir, err := f.dir()
	if err != nil {
		return nil, err
	}
	return openReader(fdOf(dir), ".", f.path)
}

// enter opens the folder name in l, which has this path in the tree. It follows no symlink. The
// caller closes it.
func (l *folderReader) enter(name, path string) (*folderReader, error) {
	return openReader(l.fd, name, path)
}

func openReader(dir int, name, path string) (*folderReader, error) {
	fd, err := openFolderAt(dir, name)
	if err != nil {
		return nil, err
	}
	return &folderReader{fd: fd, path: path}, nil
}

func (l *folderReader) close() {
	unix.Close(l.fd)
	if l.room != nil {
		readerRooms.Put(l.room)
	}
}

// next returns the path in the tree and the name of the next entry, and whether it is a folder. At
// the end it returns io.EOF.
func (l *folderReader) next() (path, name string, isDir bool, err error) {
	for {
		if len(l.rest) == 0 {
			if err := l.fill(); err != nil {
				return "", "", false, err
			}
		}
		// This is struct linux_dirent64: see getdents64(2).
		const head = 19
		length := int(binary.NativeEndian.Uint16(l.rest[16:]))
		kind, b := l.rest[18], l.rest[head:length]
		l.rest = l.rest[length:]
		for i, c := range b {
			if c == 0 {
				b = b[:i]
				break
			}
		}
		if len(b) == 0 || string(b) == "." || string(b) == ".." {
			continue
		}
		if l.path == "." {
			path = string(b)
		} else {
			path = l.path + "/" + string(b)
		}
		name = path[len(path)-len(b):]
		isDir = kind == unix.DT_DIR
		if kind == unix.DT_UNKNOWN { // some file systems do not say
			m, err := l.describe(name, path)
			isDir = err == nil && m.Kind == Dir
		}
		return path, name, isDir, nil
	}
}

// fill reads more entries.
func (l *folderReader) fill() error {
	if l.room == nil {
		l.room = readerRooms.Get().(*[readerRoom]byte)
	}
	for {
		n, err := unix.Getdents(l.fd, l.room[:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n == 0:
			return io.EOF
		default:
			l.rest = l.room[:n]
			return nil
		}
	}
}

// describe describes the entry name in l, which has this path in the tree.
func (l *folderReader) describe(name, path string) (Meta, error) { return describeAt(l.fd, name, path) }

// xattrs reads the extended attributes of the entry name in l.
func (l *folderReader) xattrs(name string) ([]Xattr, error) { return readXattrsAt(l.fd, name) }
