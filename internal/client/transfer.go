package client

import (
	"iter"
	"time"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/filter"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/shard"
	"github.com/fxfer/fxfer/internal/wire"
)

// Transfer says what one call of Send, SendStream, Get or GetTo does. Its zero value transfers
// everything and reports nothing until the end.
type Transfer struct {
	// Selection chooses the entries to transfer. SendStream and GetTo transfer one file and take none.
	Selection Selection
	// Target says how the receiver compares and writes.
	Target Target
	// Throttle replaces Options.RateLimit, and may be changed at any time; nil keeps
	// Options.RateLimit. For Get, the server is asked to keep the limit. If several transfers to get
	// files have one Throttle, each of them has the whole rate.
	Throttle *Throttle
	// Priority replaces Options.Priority, and may be changed at any time; nil keeps
	// Options.Priority.
	Priority *session.LivePriority
	// Deadline is when the transfer should end. Its priority is then the lowest that will do, by the
	// rate of the last minutes, and not below Priority. The zero Time is none.
	Deadline time.Time
	// Left estimates the bytes that are still to be written, for Deadline. nil counts the files that
	// were found and are not done.
	Left func(session.Progress) int64
	// Manifest is a file for the digest and the path of each file in place, in the format of b3sum;
	// "" is none.
	Manifest string

	// Progress is called a few times a second and once at the end, from one goroutine at a time.
	Progress func(session.Progress)
	// File is called once for each entry whose outcome is known, from one goroutine at a time. After
	// a lost connection, the entries of the session before come again.
	File func(session.FileResult)
}

// Selection chooses the entries to transfer.
type Selection struct {
	// Rules have the syntax of gitignore: an entry is left out if the last rule that matches it says
	// so.
	Rules []string
	// MaxSize leaves out larger files, in bytes; 0 is no bound.
	MaxSize int64
	// NewerThan leaves out entries that were not changed after it, except folders; the zero Time is no
	// bound.
	NewerThan time.Time
	// OneFileSystem skips what is mounted below a source.
	OneFileSystem bool
	// Files are the only paths to send, below the one source folder. Each session reads them anew.
	// nil sends all. Get does not take it.
	Files iter.Seq2[string, error]
	// Intact, unless nil, leaves out each of Files that is not a regular file, or for which it returns
	// false. It is called after the metadata of the file were read. With Intact, a file that changes
	// later fails. Without, it is sent again.
	Intact func(path string) bool
	// Within are the only folders that a source may be in; nil is any. No symlink leads out of them,
	// whenever somebody makes it. Get does not take it.
	Within []string
	// Part says that Files are a part of the source, as a Shard is. The folders above them are sent,
	// too, paths that are gone are no failure, and Target.Delete removes only what is in the way.
	Part bool
	// Shard sends only this part of the files, with the folders above them. The shards of a source may be
	// sent at any time and in any order. A Send without Shard has to follow. It sends files that have
	// changed meanwhile, and everything that is neither a file nor a folder, sets folders' times, and does
	// what Target.Delete says. The target is then the same as without shards. A shard removes only entries
	// that are in the way of its files. The zero Shard sends all files. Get does not take it.
	Shard Shard
}

// Shard is one of Count parts of the files; Index counts from 0. Files are divided by their sizes, and
// the names of one file stay together. Each process lists the source before it sends. If the source
// changes between these lists, a file may be in two shards or in none of them.
type Shard = shard.Shard

// ParseShard reads a Shard such as "3/8", the fourth of eight.
func ParseShard(s string) (Shard, error) { return shard.Parse(s) }

// Target says how the receiver compares and writes.
type Target struct {
	Checksum       bool // compare content instead of modification times
	Update         bool // leave files that are newer at the target
	Existing       bool // leave out what the target does not have
	IgnoreExisting bool // leave out what the target has

	Sync       session.Sync // when files are durable; "" is SyncBatch
	Readback   bool         // read each file back from the disk before it gets its name
	NumericIDs bool         // owners by number instead of by name
	Strict     bool         // fail if the target could not store everything about an entry
	Delete     bool         // remove what the source does not have, once all else has succeeded
	MaxDelete  int64        // remove nothing if more entries would go; 0 is no bound
	BackupDir  string       // below the target: keeps what is removed or replaced; "" is none
	DryRun     bool         // compare only, and report what would be done

	// Privileged also keeps what gives privilege on this host: setuid, setgid, devices, and
	// attributes in security.* and trusted.*. Only Get takes it. A server's Share has a field of
	// its own for that.
	Privileged bool

	// Delta says how an older version of a file at the target saves sending what both have in
	// common. "" is DeltaAuto.
	Delta Delta

	// Snapshot transfers into a new folder below the target. Its name is a time, such as
	// 2026-11-20T020000Z (see SnapshotName), or SnapshotAuto. Files that did not change are shared
	// with the newest snapshot there. The snapshot becomes visible when it is complete; until then,
	// transferring with the same name continues it. "" is no snapshot. GetTo does not take it.
	Snapshot string
	// AllowFailed is the number of entries, at most MaxAllowFailed, that a snapshot may lack and
	// still become visible. It covers entries that cannot be read at the source or keep changing
	// there, and names and kinds that the target cannot store. The call then still returns an error of
	// KindPartial, with a Report that names the snapshot. It has no effect without Snapshot.
	AllowFailed int64
}

// Delta is a way to find what two versions of a file have in common.
type Delta string

// The ways.
const (
	DeltaAuto   Delta = "auto"   // chosen for each file, by a sample of it
	DeltaFixed  Delta = "fixed"  // blocks at the same offsets: images, databases
	DeltaChunks Delta = "chunks" // chunks that the content delimits, at any offset: dumps, archives
	DeltaNone   Delta = "none"   // send everything
)

var deltas = map[Delta]wire.Delta{"": wire.DeltaAuto, DeltaAuto: wire.DeltaAuto,
	DeltaFixed: wire.DeltaFixed, DeltaChunks: wire.DeltaChunks, DeltaNone: wire.DeltaNone}

// check rejects what no transfer can do.
func (t *Transfer) check() error {
	if err := t.Selection.check(); err != nil {
		return err
	}
	if t.Target.Delete && t.Selection.Files != nil && !t.Selection.Part {
		return session.Usage("leave one of the two out",
			"a list of files does not say what else is to stay, so nothing can be removed by it")
	}
	if !t.Selection.Shard.All() && t.Target.Snapshot != "" {
		return session.Usage("send into a folder", "a snapshot is sent by one process, not in shards")
	}
	return t.Target.check()
}

// checkStream rejects what the transfer of a stream cannot do.
func (t *Transfer) checkStream() error {
	if !t.Selection.all() {
		return session.Usage("leave the selection out", "a stream is sent whole: there is nothing to select")
	}
	if t.Target.Delete {
		return session.Usage("leave it out",
			"a stream does not say what else is to stay at the target, so nothing can be removed by it")
	}
	if t.Target.Checksum || t.Target.Update || t.Target.DryRun {
		return session.Usage("send a file", "a stream is read once: it cannot be compared before it is sent")
	}
	return t.check()
}

// checkGet rejects what cannot be asked of a server.
func (t *Transfer) checkGet() error {
	if !t.Selection.Shard.All() {
		return session.Usage("leave it out", "shards are sent, not got")
	}
	if t.Selection.Files != nil {
		return session.Usage("name each as a source", "a list of files selects what is sent, not what is got")
	}
	return t.check()
}

// checkGetTo rejects what makes no sense for one file that goes to a Writer.
func (t *Transfer) checkGetTo() error {
	if !t.Selection.all() {
		return session.Usage("leave the selection out", "one file is got whole: there is nothing to select")
	}
	x := &t.Target
	if x.Snapshot != "" {
		return session.Usage("leave it out", "a snapshot needs a folder as the target")
	}
	if x.Update || x.Existing || x.IgnoreExisting || x.Delete || x.BackupDir != "" || x.DryRun {
		return session.Usage("leave it out", "--update, --existing, --ignore-existing, --delete, --backup-dir and --dry-run need a folder or a file as the target")
	}
	return t.checkGet()
}

func (s *Selection) check() error {
	if err := s.Shard.Check(); err != nil {
		return session.Usage("shards count from 0", "%w", err)
	}
	if _, err := s.filter(); err != nil {
		return session.Usage("rules are those of gitignore", "%w", err)
	}
	// The protocol counts nanoseconds in an int64.
	if t := s.NewerThan; !t.IsZero() && (t.Year() < 1678 || t.Year() > 2261) {
		return session.Usage("", "the year %d is out of range", t.Year())
	}
	return nil
}

// all reports whether the selection leaves nothing out.
func (s *Selection) all() bool {
	return len(s.Rules) == 0 && s.MaxSize == 0 && s.NewerThan.IsZero() && !s.OneFileSystem && s.Files == nil && s.Shard.All()
}

func (s *Selection) filter() (*filter.Filter, error) {
	return filter.New(filter.Options{Rules: s.Rules, MaxSize: s.MaxSize, NewerThan: s.NewerThan})
}

// wire asks a server to make the selection, and to compress what it sends.
func (s *Selection) wire(compress string) wire.Select {
	w := wire.Select{Rules: s.Rules, MaxSize: s.MaxSize, OneFileSystem: s.OneFileSystem, Compress: compress}
	if !s.NewerThan.IsZero() {
		w.NewerThan = s.NewerThan.UnixNano()
	}
	return w
}

func (t *Target) check() error {
	if _, ok := session.WireSync(t.Sync); !ok {
		return session.Usage("choose batch, file or none", "there is no sync policy %q", t.Sync)
	}
	if _, ok := deltas[t.Delta]; !ok {
		return session.Usage("choose auto, fixed, chunks or none", "there is no delta %q", t.Delta)
	}
	if t.MaxDelete < 0 {
		return session.Usage("0 is any number", "at most %d entries to be removed", t.MaxDelete)
	}
	if dir := t.BackupDir; dir != "" {
		if err := disk.CheckPath(dir); err != nil || dir == "." {
			return session.Usage("name a folder below the target", "%q is not a folder for backups", dir)
		}
	}
	return t.checkSnapshot()
}

// wire puts the target into the words of the protocol.
func (t *Target) wire() wire.Target {
	sync, _ := session.WireSync(t.Sync) // checked
	w := wire.Target{
		Compare: wire.Compare{Checksum: t.Checksum, Update: t.Update, Existing: t.Existing, IgnoreExisting: t.IgnoreExisting},
		Sync:    sync, Readback: t.Readback, NumericIDs: t.NumericIDs,
		Delete: t.Delete, MaxDelete: t.MaxDelete, BackupDir: t.BackupDir, DryRun: t.DryRun,
		Delta: deltas[t.Delta], AllowFailed: t.AllowFailed,
	}
	if w.MaxDelete == 0 {
		w.MaxDelete = -1
	}
	return w
}
