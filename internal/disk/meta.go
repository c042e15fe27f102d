package disk

import (
	"io/fs"
	"time"
)

// Kind is what an entry of a tree is. The values are those of the wire.
type Kind uint8

// The kinds that are transferred.
const (
	File    Kind = 1
	Dir     Kind = 2
	Symlink Kind = 3
)

func (k Kind) String() string {
	switch k {
	case File:
		return "file"
	case Dir:
		return "folder"
	case Symlink:
		return "symlink"
	}
	return "unknown"
}

// Meta describes an entry of a tree.
type Meta struct {
	Path    string // slash separated, relative, clean; "." for the root itself
	Kind    Kind
	Size    int64       // bytes of a file, 0 for others; as a target, -1 is a stream of unknown length
	ModTime time.Time   // as precise as the file system has it; the zero Time leaves a target's alone
	Mode    fs.FileMode // permission bits, setuid, setgid and sticky
	Link    string      // target of a symlink, its bytes as they are
	ID      Identity    // which state of which file this describes
}

// Identity tells one state of a source file from another. Equal identities mean
// that the content is the same as far as the file system can tell. The zero
// Identity is that of a source that has none, such as standard input.
type Identity struct {
	Size    int64  // bytes
	ModTime int64  // ns since the Unix epoch
	Ino     uint64 // file number, 0 where the system has none
	Dev     uint64 // device number, 0 where the system has none
}

const modeBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// metaOf translates what lstat said about path, without the link's target.
func metaOf(path string, info fs.FileInfo) (Meta, error) {
	m := Meta{
		Path:    path,
		ModTime: info.ModTime(),
		Mode:    info.Mode() & modeBits,
	}
	switch {
	case info.Mode().IsRegular():
		m.Kind, m.Size = File, info.Size()
	case info.IsDir():
		m.Kind = Dir
	case info.Mode().Type() == fs.ModeSymlink:
		m.Kind = Symlink
	default:
		return Meta{}, ErrUnsupportedKind
	}
	m.ID = identityOf(info)
	return m, nil
}

func identityOf(info fs.FileInfo) Identity {
	ino, dev := fileID(info)
	return Identity{Size: info.Size(), ModTime: info.ModTime().UnixNano(), Ino: ino, Dev: dev}
}
