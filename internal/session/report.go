package session

import (
	"fmt"
	"time"

	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/wire"
)

// Failure names what failed, where that is known, and why.
func (r *FileResult) Failure() error {
	if r.Path == "" {
		return r.Err
	}
	return fmt.Errorf("%s: %w", wire.Printable(r.Path), r.Err)
}

// MaxAllowFailed is the most that Target.AllowFailed can be.
const MaxAllowFailed = wire.MaxAllowFailed

// Sync says when files are durable.
type Sync string

// The policies.
const (
	SyncBatch Sync = "batch" // data before its name, many files at a time; all of it when the transfer ends
	SyncFile  Sync = "file"  // each file with its name
	SyncNone  Sync = "none"  // when the system likes
)

// Progress is a look at a running transfer.
type Progress struct {
	Elapsed     time.Duration
	Walking     bool    // more entries may be found
	Files       int64   // regular files found
	FilesDone   int64   // of these, done with: committed, unchanged, or skipped
	FilesFailed int64   //
	Bytes       int64   // of the files found
	BytesDone   int64   // of these, written at the receiver, or there before
	Written     int64   // payload written at the receiver in this run
	Goodput     float64 // bit/s over the last seconds
	Streams     int     // data streams
	RTT         time.Duration
	Limiter     string         // what holds it back now, "" if unknown
	Active      []FileProgress // files under way, oldest first, at most 8
}

// FileProgress is a file under way.
type FileProgress struct {
	Path  string
	Bytes int64 // size, -1 if unknown
	Done  int64
}

// Outcome of an entry.
type Outcome string

// The outcomes.
const (
	Committed Outcome = "committed" // sent, checked and, unless Sync is SyncNone, durable by the end
	Unchanged Outcome = "unchanged" // the same as at the target
	Made      Outcome = "made"      // folder, link or special file
	Skipped   Outcome = "skipped"   // not wanted, by Target
	Removed   Outcome = "removed"   // from the target, by Delete
	Failed    Outcome = "failed"

	// Of a dry run.
	WouldCreate Outcome = "would create"
	WouldUpdate Outcome = "would update"
	WouldSet    Outcome = "would set metadata"
	WouldRemove Outcome = "would remove"
)

// FileResult is what became of one entry.
type FileResult struct {
	Path    string
	Kind    string // such as "file", "folder" or "symlink"
	Bytes   int64
	Outcome Outcome
	Digest  string // of a committed file: BLAKE3, as b3sum prints it; "" of one that has holes
	Err     error  // of a failed one
}

// Report sums a transfer up.
type Report struct {
	Server   string        // host and port
	Duration time.Duration // of the whole, connecting included
	Files    int64         // regular files found
	Sent     int64         // of these, committed
	Same     int64         // of these, unchanged
	Skipped  int64         // of these, not wanted, by Target
	Failed   int64         // entries that failed
	Removed  int64         // entries that Delete removed, or in a dry run would
	Bytes    int64         // of all files found
	Written  int64         // payload written at the receiver in this run
	Copied   int64         // of the files sent: what the target had in older versions of them, bytes; not in Written
	Resumed  int64         // payload that was there from an interrupted run
	Resent   int64         // payload sent more than once
	Goodput  float64       // Written over Duration, bit/s
	Digest   string        // of the file, if it was exactly one
	Snapshot string        // that is visible now; "" if none is
	Failures []FileResult  // the first 100
	Warnings []Warning     // what the target could not hold
	Plan     *Plan         // of a dry run; nil otherwise
	Raw      int64         // payload that was compressed, bytes, and what became of it; 0 if none was
	Coded    int64         //

	Streams         int           // most data streams at a time
	Transport       Transport     // that carried the data, "" if there was none
	TransportReason string        // why it was chosen, where that was automatic
	Connections     int           // of QUIC that the data streams shared at the end; 0 of TCP, where each has its own
	Congestion      string        // of the data streams
	RTT             time.Duration // the least seen
	Peak            float64       // highest goodput over a second, bit/s
	BDP             int64         // Peak × RTT, bytes
	SendBuffer      int64         // socket buffers obtained, bytes as the kernel counts: the sending side's
	RecvBuffer      int64         // and the receiving side's
	Retransmits     int64         // segments
	Reconnects      int           // sessions after the first

	Limits   []Limit  // what held it back, the limiter of most of the time first; empty where nothing was measured
	Timeline []Moment // the same, moment by moment
}

// Limit is something that held a transfer back, with the evidence.
type Limit = diagnose.Verdict

// Fact is one piece of evidence for a Limit.
type Fact = diagnose.Fact

// Remedy is something that can be done about a Limit.
type Remedy = diagnose.Remedy

// Moment is a short time of a transfer, with what held it back.
type Moment = diagnose.Cell

// Plan sums a dry run up.
type Plan struct {
	Create, Update, Set int64 // entries to be made, to be replaced, and to be given other metadata
	Bytes               int64 // of the files among the first two
}

// Warning tells what the target could not hold of some entries.
type Warning struct {
	What  string // "owner", "mode", "xattr", "acl", "device", "time" or "holes"
	Count int64  // entries
	Path  string // of the first
	Text  string // the cause there
}

var SyncPolicies = map[Sync]wire.Sync{"": wire.SyncBatch, SyncBatch: wire.SyncBatch, SyncFile: wire.SyncFile, SyncNone: wire.SyncNone}

const (
	ReportEvery = 200 * time.Millisecond
	// LimiterEvery is how many reports tell the same limiter.
	LimiterEvery = 5
)

// Finding is what a verification found of an entry.
type Finding string

// The findings.
const (
	Missing    Finding = "missing"    // the server does not have it
	Extra      Finding = "extra"      // only the server has it
	Different  Finding = "different"  // its content or kind
	Unreadable Finding = "unreadable" // so nothing is known
	Lacking    Finding = "lacking"    // of a snapshot: it failed when that was made, as Target.AllowFailed lets it
)
