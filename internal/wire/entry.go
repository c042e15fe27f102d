package wire

import "time"

const (
	// MaxSize is the size of the largest file, in bytes.
	MaxSize = 1 << 60
	// MaxXattrs is how much an entry's extended attributes may take, names and values, in bytes.
	MaxXattrs = 64 << 10
	// Unknown is the size of a stream whose end is not known yet.
	Unknown = -1
	// NoEntry is the Index in an EntryFailed about a path that could not become an entry.
	NoEntry = 1<<64 - 1
)

// Manifest opens the list of entries.
type Manifest struct {
	Single bool // there is exactly one regular file or stream: the target may be its new name
	Prune  bool // a Prune follows when all entries are resolved
	Delta  bool // the sender can use old versions
}

// Type implements Message.
func (*Manifest) Type() Type { return TypeManifest }

func (m *Manifest) encode(e *encoder) { e.bool(m.Single); e.bool(m.Prune); e.bool(m.Delta) }

func (m *Manifest) decode(d *decoder) {
	m.Single = d.bool()
	m.Prune = d.bool()
	m.Delta = d.more() && d.bool()
}

// Entries carries entries in manifest order. They are numbered from First upward, without gaps.
type Entries struct {
	First   uint64
	Entries []Entry
}

// Type implements Message.
func (*Entries) Type() Type { return TypeEntries }

func (m *Entries) encode(e *encoder) {
	e.uint(m.First)
	e.uint(uint64(len(m.Entries)))
	for i := range m.Entries {
		m.Entries[i].encode(e)
	}
	m.encodeAliases(e)
}

// encodeAliases writes which entries are other names of others. A peer of an older release ignores
// them, so they stand at the end.
func (m *Entries) encodeAliases(e *encoder) {
	var with []int
	for i := range m.Entries {
		if m.Entries[i].Alias != "" {
			with = append(with, i)
		}
	}
	e.uint(uint64(len(with)))
	for _, i := range with {
		e.uint(uint64(i))
		e.string(m.Entries[i].Alias)
		e.uint(m.Entries[i].First)
	}
}

func (m *Entries) decode(d *decoder) {
	m.First = d.uint()
	m.Entries = d.entries(d.count(costEntry))
	for i := range m.Entries {
		before := &Entry{}
		if i > 0 {
			before = &m.Entries[i-1]
		}
		if m.Entries[i].decode(d, before); d.err != nil {
			return
		}
	}
	if !d.more() {
		return
	}
	for range d.count(costNumber) {
		i, alias, first := d.uint(), d.string(MaxPath), d.uint()
		if d.err != nil || i >= uint64(len(m.Entries)) || alias == "" || !m.Entries[i].mayHaveAlias() {
			d.fail("an alias of nothing")
			return
		}
		m.Entries[i].Alias, m.Entries[i].First = alias, first
	}
}

// mayHaveAlias reports whether an entry may be another name of an entry that is not a file.
func (x *Entry) mayHaveAlias() bool {
	switch x.Kind {
	case Symlink, Fifo, CharDevice, BlockDevice, Socket:
		return true
	case File, Dir, Share, Hardlink:
	}
	return false
}

// Kind is the kind of an entry.
type Kind uint8

// The kinds. A Hardlink is another name of a file that an earlier entry announced.
const (
	File        Kind = 1
	Dir         Kind = 2
	Symlink     Kind = 3
	Share       Kind = 4 // only in listings
	Fifo        Kind = 5
	CharDevice  Kind = 6
	BlockDevice Kind = 7
	Socket      Kind = 8
	Hardlink    Kind = 9
)

// Entry is one file, folder, link or special file of the manifest.
type Entry struct {
	Kind        Kind
	BlockLog    uint8  // block size is 1<<BlockLog bytes
	Holes       bool   // the file has ranges without data
	Named       bool   // it has several names: others may follow
	Owned       bool   // UID and GID are known
	Listed      bool   // Xattrs has all attributes of the source
	Mode        uint32 // permission bits 0o7777
	UID, GID    uint32
	Path        string // slash separated, relative to the target
	Size        int64  // bytes, or Unknown
	ModTime     int64  // ns since 1970
	Link        string // a symlink's target, a share's rights, or the path of a hard link's file
	Alias       string // path of the entry that this link or special file is another name of, or ""
	First       uint64 // index of a hard link's file, or of Alias
	Ino, Dev    uint64 // the source's file id, 0 if it has none
	User, Group string // names of UID and GID, "" if unknown
	Rdev        uint64 // number of a device, as Linux encodes it
	Xattrs      []Xattr
}

// Xattr is an extended attribute. POSIX ACLs travel as attributes, too.
type Xattr struct {
	Name  string
	Value []byte
}

// Time converts ModTime.
func (x *Entry) Time() time.Time { return time.Unix(0, x.ModTime) }

// The flags of an encoded entry.
const (
	entryOwned  = 1 << 0
	entryHoles  = 1 << 1
	entryXattrs = 1 << 2
	entryListed = 1 << 3
	entryNamed  = 1 << 4
)

func (x *Entry) flags() (flags byte) {
	if x.Owned {
		flags |= entryOwned
	}
	if x.Holes {
		flags |= entryHoles
	}
	if len(x.Xattrs) > 0 {
		flags |= entryXattrs
	}
	if x.Listed {
		flags |= entryListed
	}
	if x.Named {
		flags |= entryNamed
	}
	return flags
}

func (x *Entry) encode(e *encoder) {
	e.byte(byte(x.Kind))
	e.byte(x.flags())
	e.string(x.Path)
	e.int(x.ModTime)
	e.uint(uint64(x.Mode))
	switch x.Kind {
	case File:
		e.int(x.Size)
		e.uint(x.Ino)
		e.uint(x.Dev)
		e.byte(x.BlockLog)
	case Symlink, Share:
		e.string(x.Link)
	case Hardlink:
		e.string(x.Link)
		e.uint(x.First)
	case CharDevice, BlockDevice:
		e.uint(x.Rdev)
	case Dir, Fifo, Socket:
	}
	if x.Owned {
		e.uint(uint64(x.UID))
		e.uint(uint64(x.GID))
		e.string(x.User)
		e.string(x.Group)
	}
	if len(x.Xattrs) > 0 {
		e.uint(uint64(len(x.Xattrs)))
		for _, a := range x.Xattrs {
			e.string(a.Name)
			e.string(string(a.Value))
		}
	}
}

// decode reads an entry. It shares names of owners with the one before.
func (x *Entry) decode(d *decoder, before *Entry) {
	x.Kind = Kind(d.byte())
	flags := d.byte()
	x.Path = d.string(MaxPath)
	x.ModTime = d.int()
	x.Mode = uint32(d.uint() & 0o7777)
	switch x.Kind {
	case File:
		x.decodeFile(d)
	case Symlink, Share:
		x.Link = d.string(MaxPath)
	case Hardlink:
		x.Link = d.string(MaxPath)
		x.First = d.uint()
	case CharDevice, BlockDevice:
		x.Rdev = d.uint()
	case Dir, Fifo, Socket:
	default:
		d.fail("unknown kind of entry")
	}
	x.Holes, x.Listed, x.Named = flags&entryHoles != 0, flags&entryListed != 0, flags&entryNamed != 0
	if x.Owned = flags&entryOwned != 0; x.Owned {
		x.UID, x.GID = d.uint32(), d.uint32()
		x.User, x.Group = d.stringLike(before.User, maxName), d.stringLike(before.Group, maxName)
	}
	if flags&entryXattrs != 0 {
		x.decodeXattrs(d)
	}
}

func (x *Entry) decodeFile(d *decoder) {
	x.Size = d.int()
	x.Ino = d.uint()
	x.Dev = d.uint()
	x.BlockLog = d.byte()
	if x.Size < Unknown || x.Size > MaxSize || x.BlockLog < MinBlockLog || x.BlockLog > MaxBlockLog {
		d.fail("file entry out of range")
	}
}

func (x *Entry) decodeXattrs(d *decoder) {
	size := 0
	for range d.count(costAttribute) {
		a := Xattr{d.string(maxName), []byte(d.string(MaxXattrs))}
		size += len(a.Name) + len(a.Value) + 8
		if d.err != nil || a.Name == "" || size > 2*MaxXattrs {
			d.fail("extended attributes too long")
			return
		}
		x.Xattrs = append(x.Xattrs, a)
	}
}

// EndManifest follows the last Entries.
type EndManifest struct {
	Count uint64
	Bytes int64 // 0 if not known
}

// Type implements Message.
func (*EndManifest) Type() Type { return TypeEndManifest }

func (m *EndManifest) encode(e *encoder) { e.uint(m.Count); e.uint(uint64(m.Bytes)) }
func (m *EndManifest) decode(d *decoder) { m.Count = d.uint(); m.Bytes = d.nonNegative() }

// EndEntry gives the final size and digest of a stream, or of a file of more than one block.
type EndEntry struct {
	Index  uint64
	Size   int64
	Digest [32]byte
	Holes  []Extent // blocks without data, which are not sent
}

// Type implements Message.
func (*EndEntry) Type() Type { return TypeEndEntry }

func (m *EndEntry) encode(e *encoder) {
	e.uint(m.Index)
	e.uint(uint64(m.Size))
	e.raw(m.Digest[:])
	e.extents(m.Holes)
}

func (m *EndEntry) decode(d *decoder) {
	m.Index = d.uint()
	if m.Size = d.nonNegative(); m.Size > MaxSize {
		d.fail("size out of range")
	}
	d.raw(m.Digest[:])
	m.Holes = d.extents()
}

// EntryFailed ends an entry without a commit. Either side may send it.
type EntryFailed struct {
	Index uint64 // or NoEntry
	Code  Code
	Text  string
}

// Type implements Message.
func (*EntryFailed) Type() Type { return TypeEntryFailed }

func (m *EntryFailed) encode(e *encoder) {
	e.uint(m.Index)
	e.uint(uint64(m.Code))
	e.text(m.Text)
}

func (m *EntryFailed) decode(d *decoder) {
	m.Index = d.uint()
	m.Code = Code(d.uint())
	m.Text = d.string(MaxText)
}
