package disk

import (
	"io/fs"
	"time"
)

// Kind is the kind of an entry of a tree. The values are those of the wire.
type Kind uint8

// The kinds that fxfer transfers.
const (
	File    Kind = 1
	Dir     Kind = 2
	Symlink Kind = 3
	// On the wire, 4 is a share.
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
	Path    string      // slash separated, relative, clean; "." for the root itself
	Size    int64       // bytes of a file, 0 for other kinds; -1 for a target is a stream of unknown length
	ModTime time.Time   // as precise as the file system keeps it; the zero Time keeps a target's
	Link    string      // target of a symlink, its bytes as they are
	ID      Identity    // identifies the file and its state
	Mode    fs.FileMode // permission bits, setuid, setgid and sticky
	Kind    Kind

	// Zero where the system lacks them.
	Holes    bool // of a file: less is allocated than its size, so it may have holes
	UID, GID uint32
	Nlink    uint64  // names that the file has
	Rdev     uint64  // device number of a CharDevice or BlockDevice, as the system encodes it
	Xattrs   []Xattr // including POSIX ACLs, sorted by name; only if asked for
	XattrErr error   // why Xattrs lacks some or all of them
}

// maxXattrs is the largest size in bytes of an entry's attributes, names and values together.
const maxXattrs = 64 << 10

// Xattr is an extended attribute.
type Xattr struct {
	Name  string
	Value []byte
}

// Identity distinguishes the states of a source file. Equal identities mean equal content, as far
// as the file system can show it. The zero Identity belongs to a source without one, such as
// standard input.
type Identity struct {
	Size    int64  // bytes
	ModTime int64  // ns since the Unix epoch
	Ino     uint64 // file number, 0 where the system has none
	Dev     uint64 // device number, 0 where the system has none
}

const modeBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// kindOf returns the kind of an entry with this mode, 0 for a kind that is not ours.
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
