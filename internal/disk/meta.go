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
	// 4 is a share on the wire.
	Fifo        Kind = 5
	CharDevice  Kind = 6
	BlockDevice Kind = 7
	Socket      Kind = 8
)

func (k Kind) String() string {
	switch k {
	case File:
		return "file"
	case Dir:
		return "folder"
	case Symlink:
		return "symlink"
	case Fifo:
		return "fifo"
	case CharDevice:
		return "character device"
	case BlockDevice:
		return "block device"
	case Socket:
		return "socket"
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

	// Zero where the system has no such thing.
	UID, GID uint32
	Nlink    uint64  // names that the file has
	Rdev     uint64  // device number of a CharDevice or BlockDevice, as the system encodes it
	Holes    bool    // of a file: less is allocated than the size says, so some of it may be holes
	Xattrs   []Xattr // POSIX ACLs among them, in the order of their names; only if asked for
	XattrErr error   // why Xattrs lacks some or all of them
}

// maxXattrs is how many bytes an entry's attributes have at most, names and
// values together.
const maxXattrs = 64 << 10

// Xattr is an extended attribute.
type Xattr struct {
	Name  string
	Value []byte
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

// kindOf is the kind of an entry of that mode, 0 for none of ours.
func kindOf(mode fs.FileMode) Kind {
	switch mode.Type() {
	case 0:
		return File
	case fs.ModeDir:
		return Dir
	case fs.ModeSymlink:
		return Symlink
	case fs.ModeNamedPipe:
		return Fifo
	case fs.ModeDevice:
		return BlockDevice
	case fs.ModeDevice | fs.ModeCharDevice:
		return CharDevice
	case fs.ModeSocket:
		return Socket
	}
	return 0
}

func identityOf(info fs.FileInfo) Identity {
	ino, dev := fileID(info)
	return Identity{Size: info.Size(), ModTime: info.ModTime().UnixNano(), Ino: ino, Dev: dev}
}
