package wire

// Target says what the receiver does with entries. It travels in Hello.
type Target struct {
	Compare     Compare
	Sync        Sync
	Readback    bool   // read each file back from the disk before it gets its name
	NumericIDs  bool   // use owners by number, not by name
	Delete      bool   // remove entries that the sender does not have
	MaxDelete   int64  // but remove nothing if there are more than so many; -1 is any number
	BackupDir   string // below the share: move what Delete removes or replaces there; "" removes it
	DryRun      bool   // only compare
	Delta       Delta  // how to use the old version of a file
	AllowFailed int64  // for Store: publish the snapshot though up to so many entries failed
}

// Compare says how the receiver decides whether it needs an entry. The zero value compares size and
// modification time.
type Compare struct {
	Checksum       bool // compare digests when the sizes are equal
	Update         bool // keep files that are newer at the target
	Existing       bool // skip entries that the target does not have
	IgnoreExisting bool // skip entries that the target has
}

// Sync says when files become durable.
type Sync uint8

// The policies.
const (
	SyncBatch Sync = 0 // many files at a time, each before it gets its name
	SyncFile  Sync = 1 // each file on its own
	SyncNone  Sync = 2 // whenever the system writes them
)

// encode leaves out Delta and AllowFailed, which were added later: they stand at the end of Hello.
func (t *Target) encode(e *encoder) {
	e.bool(t.Compare.Checksum)
	e.bool(t.Compare.Update)
	e.bool(t.Compare.Existing)
	e.bool(t.Compare.IgnoreExisting)
	e.byte(byte(t.Sync))
	e.bool(t.Readback)
	e.bool(t.NumericIDs)
	e.bool(t.Delete)
	e.int(t.MaxDelete)
	e.string(t.BackupDir)
	e.bool(t.DryRun)
}

func (t *Target) decode(d *decoder) {
	t.Compare.Checksum = d.bool()
	t.Compare.Update = d.bool()
	t.Compare.Existing = d.bool()
	t.Compare.IgnoreExisting = d.bool()
	if t.Sync = Sync(d.byte()); t.Sync > SyncNone {
		d.fail("unknown sync policy")
	}
	t.Readback = d.bool()
	t.NumericIDs = d.bool()
	t.Delete = d.bool()
	t.MaxDelete = d.int()
	t.BackupDir = d.string(MaxPath)
	t.DryRun = d.bool()
}

// Select says which parts of the source are not sent. It travels in Hello.
type Select struct {
	Rules         []string // gitignore lines, in order
	MaxSize       int64    // skip larger files, bytes; 0 is no limit
	NewerThan     int64    // skip files not changed after this time, ns since 1970; 0 is no limit
	OneFileSystem bool
	Compress      string // algorithm; "" is none
}

func (s *Select) encode(e *encoder) {
	e.strings(s.Rules)
	e.uint(uint64(s.MaxSize))
	e.int(s.NewerThan)
	e.bool(s.OneFileSystem)
	e.string(s.Compress)
}

func (s *Select) decode(d *decoder) {
	s.Rules = d.strings()
	s.MaxSize = d.nonNegative()
	s.NewerThan = d.int()
	s.OneFileSystem = d.bool()
	s.Compress = d.string(maxAlgorithm)
}
