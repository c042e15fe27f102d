package session

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/wire"
)

// Sync says when files are durable.
type Sync string

// The policies.
const (
	SyncBatch Sync = "batch" // data before names, many files at a time; everything at the end
	SyncFile  Sync = "file"  // each file with its name
	SyncNone  Sync = "none"  // when the operating system likes
)

// WireSync returns the number of a policy in the protocol. "" is SyncBatch.
func WireSync(s Sync) (n wire.Sync, ok bool) {
	switch s {
	case "", SyncBatch:
		return wire.SyncBatch, true
	case SyncFile:
		return wire.SyncFile, true
	case SyncNone:
		return wire.SyncNone, true
	}
	return 0, false
}

// SyncOf returns the policy of a number in the protocol, "" for an unknown one.
func SyncOf(n wire.Sync) Sync {
	for _, s := range []Sync{SyncBatch, SyncFile, SyncNone} {
		if known, _ := WireSync(s); known == n {
			return s
		}
	}
	return ""
}

// Outcome is what became of an entry.
type Outcome string

// The outcomes.
const (
	Committed Outcome = "committed" // sent, checked and, unless Sync is SyncNone, durable by the end
	Unchanged Outcome = "unchanged" // the same as at the target
	Made      Outcome = "made"      // folder, link or special file
	Skipped   Outcome = "skipped"   // not wanted, by Target
	Removed   Outcome = "removed"   // from the target, by Delete
	Failed    Outcome = "failed"

	// In a dry run.
	WouldCreate Outcome = "would create"
	WouldUpdate Outcome = "would update"
	WouldSet    Outcome = "would set metadata"
	WouldRemove Outcome = "would remove"
)

// FileResult is the outcome of one entry.
type FileResult struct {
	Path    string
	Kind    string // such as "file", "folder" or "symlink"
	Bytes   int64
	Outcome Outcome
	Digest  string // of a committed file: BLAKE3, as b3sum prints it; "" if the file has holes
	Err     error  // of a failed entry
	Local   string // the whole path of an entry that failed on this host, "" if unknown
}

// Failure returns the error of a failed entry, together with its path where that is known. It names
// the path once, and wholly if the entry failed on this host.
func (r *FileResult) Failure() error {
	if r.Path == "" {
		return r.Err
	}
	text, at := r.Err.Error(), (*fs.PathError)(nil)
	if errors.As(r.Err, &at) && (at.Path == r.Path || strings.HasSuffix("/"+r.Local, "/"+at.Path)) {
		text = strings.Replace(text, at.Error(), at.Op+": "+at.Err.Error(), 1)
	}
	return &failure{wire.Printable(cmp.Or(r.Local, r.Path)) + ": " + text, r.Err}
}

// failure is an error with another text.
type failure struct {
	text string
	err  error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.err }

// kindsOfEntries is no map, because each entry's outcome looks here.
var kindsOfEntries = [...]string{
	wire.File: "file", wire.Dir: "folder", wire.Symlink: "symlink", wire.Share: "share",
	wire.Fifo: "fifo", wire.Hardlink: "hard link", wire.CharDevice: "character device",
	wire.BlockDevice: "block device", wire.Socket: "socket",
}

// KindName is the word for a kind of entries, such as "file"; "" for an unknown kind.
func KindName(k wire.Kind) string {
	if int(k) >= len(kindsOfEntries) {
		return ""
	}
	return kindsOfEntries[k]
}

// Report sums a transfer up.
type Report struct {
	Server   string        // host and port
	Duration time.Duration // of the whole transfer, connecting included
	Complete bool          // each entry has its outcome, and the target is as durable as Target.Sync says

	// Entries.
	Files   int64 // regular files found
	Sent    int64 // of these, committed
	Same    int64 // of these, unchanged
	Skipped int64 // of these, not wanted, by Target
	Links   int64 // symlinks that were made; they are no files
	Failed  int64 // entries that failed
	// Healed counts the files of a snapshot that were damaged at the server in the one before it, and
	// are intact in this.
	Healed  int64
	Removed int64 // entries that Delete removed, or in a dry run would remove

	// Bytes.
	Bytes   int64 // of all files found
	Written int64 // payload written at the receiver in this run
	Copied  int64 // taken from older versions of the files at the target; not in Written
	Resumed int64 // payload that was there from an interrupted run
	Resent  int64 // payload sent more than once
	Raw     int64 // payload that was compressed, before; 0 if none was
	Coded   int64 // and after

	// Results.
	Digest    string       // of the file, if it was exactly one
	Snapshot  string       // that is visible now; "" if none is
	Failures  []FileResult // the first 100
	NotStored []NotStored  // what the target could not store
	NotPruned bool         // Target.Delete removed nothing, because entries failed
	Plan      *Plan        // of a dry run; nil otherwise

	// The path.
	Goodput         float64       // Written over Duration, bit/s
	Peak            float64       // highest goodput over a second, bit/s
	Streams         int           // most data streams at a time
	Transport       Transport     // that carried the data, "" if there was none
	TransportReason string        // why it was chosen, where that was automatic
	Connections     int           // QUIC connections of the data streams at the end; 0 with TCP
	Congestion      string        // congestion control of the data streams
	RTT             time.Duration // the least seen
	BDP             int64         // Peak × RTT, bytes
	SendBuffer      int64         // socket buffer of the sending end, bytes as the kernel counts them
	RecvBuffer      int64         // and of the receiving end
	Retransmits     int64         // segments
	Reconnects      int           // sessions after the first

	Sharing Sharing          // how the sending end shared the line with others
	Changes []PriorityChange // of the priority, for the sake of a deadline

	Limits   []Limit  // what held the transfer back, the longest first; empty if nothing was measured, or a disk ended it
	Timeline []Moment // the same, moment by moment
}

// Sharing is how the sending end of a transfer shared the line with other traffic. It is zero where
// nothing was measured.
type Sharing struct {
	Priority Priority      // at the end
	Shared   time.Duration // others used the line, and the transfer took a part of it
	Yielded  time.Duration // others used the line, and the transfer took what they left

	// Queue and QueueMost are the delay that the transfer added: that in the queue before the
	// bottleneck, while there was no sign of others; the median and the largest.
	Queue, QueueMost time.Duration

	// Segments that were sent again, by what they were lost to.
	LostOwn    int64 // the transfer's own queue
	LostOthers int64 // a queue that others kept full
	LostLine   int64 // no queue: the line, a policer, or a queue too short to be seen
	Spurious   int64 // nothing: they arrived twice
}

// SharingOf reads a sender's last sample.
func SharingOf(s *diagnose.Sample) Sharing {
	return Sharing{
		Priority: PriorityOf(wire.Priority(min(s.Priority, 255))), Shared: s.Shared, Yielded: s.Yielded,
		Queue: s.Queue, QueueMost: s.QueueMost,
		LostOwn: s.LostOwn, LostOthers: s.LostOthers, LostLine: s.LostLine, Spurious: s.Spurious,
	}
}

// Add adds what a later session of the same transfer did.
func (a *Sharing) Add(b Sharing) {
	if b.Priority == "" {
		return
	}
	a.Priority = b.Priority
	a.Shared += b.Shared
	a.Yielded += b.Yielded
	if b.Queue > 0 {
		a.Queue = b.Queue
	}
	a.QueueMost = max(a.QueueMost, b.QueueMost)
	a.LostOwn += b.LostOwn
	a.LostOthers += b.LostOthers
	a.LostLine += b.LostLine
	a.Spurious += b.Spurious
}

// Limit is something that held a transfer back, with the evidence.
type Limit = diagnose.Verdict

// Fact is one piece of evidence for a Limit.
type Fact = diagnose.Fact

// Remedy is something that can be done about a Limit.
type Remedy = diagnose.Remedy

// Moment is a short time of a transfer, with its limiter.
type Moment = diagnose.Cell

// Plan sums a dry run up.
type Plan struct {
	Create int64 // entries that would be made
	Update int64 // entries that would be replaced
	Set    int64 // entries whose metadata would be set
	Bytes  int64 // of the files that would be made or replaced
}

// NotStored counts entries that the target could not store completely.
type NotStored struct {
	What  string // such as "owner", "mode", "privilege", "xattr", "acl", "device", "time" or "holes"
	Count int64  // entries
	Path  string // of the first one
	Text  string // the reason there
}

// String is a sentence for people. It has the peer's text as it came, control characters included.
func (n NotStored) String() string {
	first := "of"
	if n.Count > 1 {
		first = fmt.Sprintf("of %d entries, first of", n.Count)
	}
	return fmt.Sprintf("the target could not store the %s %s %s: %s", n.What, first, n.Path, n.Text)
}

// Finding is what a verification found about an entry.
type Finding string

// The findings.
const (
	Missing    Finding = "missing"    // the server does not have it
	Extra      Finding = "extra"      // only the server has it
	Different  Finding = "different"  // in content or kind
	Unreadable Finding = "unreadable" // at one end, so nothing is known
	Lacking    Finding = "lacking"    // in a snapshot: it failed, and Target.AllowFailed allowed that
)
