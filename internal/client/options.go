package client

import (
	"context"
	"iter"
	"time"

	"github.com/fxfer/fxfer/internal/session"
)

// DefaultMaxStreams bounds the data streams that are opened when their number is automatic.
const DefaultMaxStreams = 32

// Options of a Client. Zero is automatic for each.
type Options struct {
	Home       string            // folder of identity, known servers and history; "" is the user's
	Streams    int               // data streams; 0 is what the path needs
	MaxStreams int               // bound for that, DefaultMaxStreams if 0
	Transport  session.Transport // "" is TransportAuto
	QLog       string            // folder for a log of each QUIC connection; "" is none
	SockBuf    int               // bytes; a fixed window on both ends, of TCP
	Congestion string            // congestion control on both ends, such as "bbr"
	RateLimit  int64             // of payload, bit/s
	Throttle   *Throttle         // takes the place of RateLimit for what is sent, and may change meanwhile; nil is RateLimit
	RetryFor   time.Duration     // how long a lost connection is tried again; 0 is not at all
	Pin        string            // the server's key; "" is what is known of it
	TLS        TLS               // certificates in the place of keys
	Compress   string            // "auto" where the path is the limiter, "zstd" always, or "none", which "" is
	Manifest   string            // file for the digest and path of each file in place, as b3sum prints them; "" is none

	Source Source // what of the source is sent
	Target Target // what becomes of it

	// Confirm is asked about a server of which nothing is known. nil refuses it.
	Confirm func(ctx context.Context, server, pin string) (bool, error)
	// Progress is called a few times a second and once at the end, from one goroutine at a time.
	Progress func(session.Progress)
	// File is called for each entry whose outcome is known, from one goroutine at a time: once, but after a lost connection those
	// of the session before come again.
	File func(session.FileResult)
	// Notice is called with one-line messages about what goes on, such as a lost connection.
	Notice func(string)
}

// Source selects what is sent.
type Source struct {
	Rules         []string                 // of gitignore, in order: what they match is left out, the last one that matches counts
	MaxSize       int64                    // of a file, bytes; 0 is any
	NewerThan     time.Time                // what was not changed after it is left out, but for folders; the zero Time is any
	OneFileSystem bool                     // do not enter what is mounted below
	Files         iter.Seq2[string, error] // only these paths below the one source folder, read anew by each session; nil is all. Not of Get
}

// Target says how the receiver compares and writes.
type Target struct {
	Checksum       bool // compare content instead of modification times
	Update         bool // leave files that are newer at the target
	Existing       bool // leave what the target does not have
	IgnoreExisting bool // leave what the target has

	Sync       session.Sync // when files are durable; "" is SyncBatch
	Readback   bool         // read each file back from the disk before it gets its name
	NumericIDs bool         // owners by number instead of by name
	Strict     bool         // what the target cannot hold is a failure, not a warning
	Delete     bool         // remove what the source does not have, once all else has succeeded
	MaxDelete  int64        // but nothing if that were more entries; 0 is any number
	BackupDir  string       // below the target's share or folder: what is removed or replaced goes there; "" is nowhere
	DryRun     bool         // compare only, and report what would be done

	// Delta says how the target's older version of a file spares sending what the two have in common. "" is DeltaAuto.
	Delta Delta

	// Snapshot sends into a new folder of this name, a time such as 2026-11-20T020000Z (see SnapshotName) or SnapshotAuto, below that of the
	// URL. Unchanged files are shared with the newest snapshot there. It is visible when it is complete; until then, the same name goes on
	// with it. "" is none. Not of Get.
	Snapshot string
	// AllowFailed is how many entries may fail, at most MaxAllowFailed, and the snapshot becomes visible without them. That counts for what can't be read,
	// or changes all the time, at the source, and for names and kinds that the target can't hold. Send then still returns an error of
	// KindPartial, with a Report that names the snapshot. Without Snapshot it means nothing.
	AllowFailed int64
}

// Delta is a way to find what two versions of a file have in common.
type Delta string

// The ways.
const (
	DeltaAuto   Delta = "auto"   // one of the others, by a sample of each file
	DeltaFixed  Delta = "fixed"  // blocks in their places: images, databases
	DeltaChunks Delta = "chunks" // chunks that their content delimits, wherever they are: dumps, archives
	DeltaNone   Delta = "none"   // send all
)

// Entry is a line of a listing.
type Entry struct {
	Path    string
	Kind    string // "file", "folder", "symlink" or "share"
	Bytes   int64
	ModTime time.Time
	Mode    uint32
	Link    string
	Rights  string // of a share, such as "rw", "ro" or "list"
}
