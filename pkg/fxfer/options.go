// Package fxfer sends and receives files over long fat pipes: the public face of the engine behind the fxfer command.
//
// A Client sends to, gets from and lists the shares of a Server. Both know each other by Ed25519 keys. Everything
// is encrypted, checked against BLAKE3 digests down to the disk, and resumed by itself after an interruption.
//
// # Compatibility
//
// Versions are semantic. Within a major version a program that compiles goes on to compile and to mean the same, as of Go itself
// (https://go.dev/doc/go1compat), with these freedoms: structs get further fields, so name those of a literal; further kinds of errors, outcomes and
// limiters may come, so give a switch a default; texts, such as those of errors and limits, change. Zero values of options keep meaning automatic, and what is
// automatic may become better. Before version 1.0 a minor version may break this, and its notes say how.
//
// The protocol has a version of its own: a client and a server of different versions of this package work together as long as that is the same.
// Folders and their files, such as Options.Home, are read by all later versions.
package fxfer

import (
	"context"
	"iter"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/internal/wire"
)

// DefaultMaxStreams bounds the data streams that are opened when their number is automatic.
const DefaultMaxStreams = 32

// Bounds of a server, for a host with 1 GB of memory. Over them a client is told to come again, or its connection is closed before it
// began, which it takes for the same.
const (
	DefaultMaxSessions              = 128
	DefaultMaxSessionsPerClient     = 32
	DefaultMaxConnections           = 2048
	DefaultMaxConnectionsPerAddress = 512
	DefaultMaxHandshakes            = 400
	DefaultMaxHandshakesPerAddress  = 200
	DefaultMaxMemory                = 640 << 20
)

// Options of a Client. Zero is automatic for each.
type Options struct {
	Home       string        // folder of identity, known servers and history; "" is the user's
	Streams    int           // data streams; 0 is what the path needs
	MaxStreams int           // bound for that, DefaultMaxStreams if 0
	Transport  Transport     // "" is TransportAuto
	QLog       string        // folder for a log of each QUIC connection; "" is none
	SockBuf    int           // bytes; a fixed window on both ends, of TCP
	Congestion string        // congestion control on both ends, such as "bbr"
	RateLimit  int64         // of payload, bit/s
	Throttle   *Throttle     // takes the place of RateLimit for what is sent, and may change meanwhile; nil is RateLimit
	RetryFor   time.Duration // how long a lost connection is tried again; 0 is not at all
	Pin        string        // the server's key; "" is what is known of it
	TLS        TLS           // certificates in the place of keys
	Compress   string        // "auto" where the path is the limiter, "zstd" always, or "none", which "" is
	Manifest   string        // file for the digest and path of each file in place, as b3sum prints them; "" is none

	Source Source // what of the source is sent
	Target Target // what becomes of it

	// Confirm is asked about a server of which nothing is known. nil refuses it.
	Confirm func(ctx context.Context, server, pin string) (bool, error)
	// Progress is called a few times a second and once at the end, from one goroutine at a time.
	Progress func(Progress)
	// File is called for each entry whose outcome is known, from one goroutine at a time: once, but after a lost connection those
	// of the session before come again.
	File func(FileResult)
	// Notice is called with one-line messages about what goes on, such as a lost connection.
	Notice func(string)
}

// Transport carries the streams of a session.
type Transport string

// The transports.
const (
	TransportTCP  Transport = "tcp"
	TransportQUIC Transport = "quic"
	TransportAuto Transport = "auto" // what the path shows; of a server, both
)

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

	Sync       Sync   // when files are durable; "" is SyncBatch
	Readback   bool   // read each file back from the disk before it gets its name
	NumericIDs bool   // owners by number instead of by name
	Strict     bool   // what the target cannot hold is a failure, not a warning
	Delete     bool   // remove what the source does not have, once all else has succeeded
	MaxDelete  int64  // but nothing if that were more entries; 0 is any number
	BackupDir  string // below the target's share or folder: what is removed or replaced goes there; "" is nowhere
	DryRun     bool   // compare only, and report what would be done

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

// MaxAllowFailed is the most that Target.AllowFailed can be.
const MaxAllowFailed = wire.MaxAllowFailed

// Delta is a way to find what two versions of a file have in common.
type Delta string

// The ways.
const (
	DeltaAuto   Delta = "auto"   // one of the others, by a sample of each file
	DeltaFixed  Delta = "fixed"  // blocks in their places: images, databases
	DeltaChunks Delta = "chunks" // chunks that their content delimits, wherever they are: dumps, archives
	DeltaNone   Delta = "none"   // send all
)

// Sync says when files are durable.
type Sync string

// The policies.
const (
	SyncBatch Sync = "batch" // data before its name, many files at a time; all of it when the transfer ends
	SyncFile  Sync = "file"  // each file with its name
	SyncNone  Sync = "none"  // when the system likes
)

// ServerOptions configure a Server. Reload can change those of the second group while it runs.
type ServerOptions struct {
	Home       string           // folder of identity, authorised clients and invitations; "" is the user's
	Listen     string           // address, such as ":7433"
	Socket     *net.TCPListener // listened on already, as by systemd, in place of Listen; Serve closes it
	Datagrams  *net.UDPConn     // the same for QUIC
	Transport  Transport        // what clients may use; "" is TransportAuto
	SockBuf    int              // bytes; a fixed window for every client, 0 is automatic
	Congestion string           // congestion control, "" is automatic
	Log        *slog.Logger
	Audit      *slog.Logger // who did what to which entry, with its digest and outcome; nil is nowhere
	TLS        ServerTLS    // certificates beside keys; of the second group but for Cert and Key

	Shares               []Share        // what is offered
	Clients              []Admission    // who is admitted beside those in authorized_clients
	Allow                []netip.Prefix // addresses that may use the server; nil is any
	RateLimit            int64          // of all sessions, bit/s in each direction, which they share fairly; 0 is none, as below
	ClientRateLimit      int64          // of each client that has none of its own
	MaxSessions          int            // at a time, DefaultMaxSessions if 0
	MaxSessionsPerClient int            // of one key, DefaultMaxSessionsPerClient if 0

	// Of an IPv6 address, its /64 counts. A quarter of the connections may be such that are not admitted yet.
	MaxConnections           int   // at a time; 0 is DefaultMaxConnections, or what the limit of open files allows
	MaxConnectionsPerAddress int   // DefaultMaxConnectionsPerAddress if 0
	MaxHandshakes            int   // a second, DefaultMaxHandshakes if 0; others wait
	MaxHandshakesPerAddress  int   // DefaultMaxHandshakesPerAddress if 0
	MaxMemory                int64 // bytes, of the buffers of all data streams, DefaultMaxMemory if 0
}

// Share is a folder that a server offers.
type Share struct {
	Name      string
	Dir       string
	Rights    Rights         // the most that any client has
	Allow     []netip.Prefix // addresses that may use it; nil is any
	RateLimit int64          // of all sessions on it, bit/s in each direction; 0 is none
	Keep      snapshot.Keep  // which of a series of snapshots stay when another is complete; the zero one is all

	Quota      int64 // bytes that files in it may have; 0 is any number, as below
	QuotaFiles int64 // entries in it, folders included
}

// Admission is what a server grants one client.
type Admission struct {
	Key         string            // the client's key, or
	Certificate string            // the name in its certificate with the kind, such as "dns:nas.example.org"; "*" is any that is not named. It needs ServerTLS.ClientCA
	Name        string            // for people
	Rights      map[string]Rights // by share; "*" stands for those not named. They add to what authorized_clients says; nil admits nobody
	Allow       []netip.Prefix    // addresses that it may come from; nil is any
	RateLimit   int64             // of all its sessions, bit/s in each direction; 0 is ClientRateLimit
	MaxSessions int               // at a time; 0 is MaxSessionsPerClient
}

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
