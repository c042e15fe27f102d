// Package fxfer sends and receives files over long fat pipes: the public face of the engine behind the fxfer command.
//
// A Client sends to, gets from and lists the shares of a Server. Both know each other by Ed25519 keys. Everything
// is encrypted, checked against BLAKE3 digests down to the disk, and resumed by itself after an interruption.
package fxfer

import (
	"context"
	"log/slog"
	"time"
)

// DefaultMaxStreams bounds the data streams that are opened when their number is automatic.
const DefaultMaxStreams = 32

// Options of a Client. Zero is automatic for each.
type Options struct {
	Home       string        // folder of identity, known servers and history; "" is the user's
	Streams    int           // data streams; 0 is what the path needs
	MaxStreams int           // bound for that, DefaultMaxStreams if 0
	SockBuf    int           // bytes; a fixed window on both ends
	Congestion string        // congestion control on both ends, such as "bbr"
	RateLimit  int64         // of payload, bit/s
	RetryFor   time.Duration // how long a lost connection is tried again; 0 is not at all
	Readback   bool          // the receiver reads each file back from its disk before it gets its name
	Pin        string        // the server's key; "" is what is known of it

	// Confirm is asked about a server of which nothing is known. nil refuses it.
	Confirm func(ctx context.Context, server, pin string) (bool, error)
	// Progress is called a few times a second and once at the end, from one goroutine at a time.
	Progress func(Progress)
	// File is called once for each entry whose outcome is known, from one goroutine at a time.
	File func(FileResult)
	// Notice is called with one-line messages about what goes on, such as a lost connection.
	Notice func(string)
}

// ServerOptions configure a Server.
type ServerOptions struct {
	Home       string  // folder of identity and authorised clients; "" is the user's
	Listen     string  // address, such as ":7433"
	Shares     []Share // what is offered
	SockBuf    int     // bytes; a fixed window for every client, 0 is automatic
	Congestion string  // congestion control, "" is automatic
	Log        *slog.Logger
}

// Share is a folder that a server offers.
type Share struct {
	Name   string
	Dir    string
	Rights Rights
}

// Progress is a look at a running transfer.
type Progress struct {
	Elapsed     time.Duration
	Walking     bool    // more entries may be found
	Files       int64   // regular files found
	FilesDone   int64   // of these, in place: committed or unchanged
	FilesFailed int64   //
	Bytes       int64   // of the files found
	BytesDone   int64   // of these, written at the receiver, or there before
	Goodput     float64 // bit/s over the last seconds
	Streams     int     // data streams
	RTT         time.Duration
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
	Committed Outcome = "committed" // sent, checked and durable
	Unchanged Outcome = "unchanged" // same size and time as at the target, skipped
	Made      Outcome = "made"      // folder or symlink
	Failed    Outcome = "failed"
)

// FileResult is what became of one entry.
type FileResult struct {
	Path    string
	Kind    string // "file", "folder" or "symlink"
	Bytes   int64
	Outcome Outcome
	Digest  string // of a committed file: BLAKE3, as b3sum prints it
	Err     error  // of a failed one
}

// Report sums a transfer up.
type Report struct {
	Server   string        // host and port
	Duration time.Duration // of the whole, connecting included
	Files    int64         // regular files found
	Sent     int64         // of these, committed
	Same     int64         // unchanged, skipped
	Failed   int64         // entries that failed
	Bytes    int64         // of all files found
	Written  int64         // payload written at the receiver in this run
	Resumed  int64         // payload that was there from an interrupted run
	Resent   int64         // payload sent more than once
	Goodput  float64       // Written over Duration, bit/s
	Digest   string        // of the file, if it was exactly one
	Failures []FileResult  // the first 100

	Streams     int           // most data streams at a time
	Congestion  string        // of the data streams
	RTT         time.Duration // the least seen
	Peak        float64       // highest goodput over a second, bit/s
	BDP         int64         // Peak × RTT, bytes
	SendBuffer  int64         // socket buffers obtained, bytes as the kernel counts: the sending side's
	RecvBuffer  int64         // and the receiving side's
	Retransmits int64         // segments
	Reconnects  int           // sessions after the first
}

// Entry is a line of a listing.
type Entry struct {
	Path    string
	Kind    string // "file", "folder", "symlink" or "share"
	Bytes   int64
	ModTime time.Time
	Mode    uint32
	Link    string
	Rights  string // of a share: "rw", "ro" or "wo"
}
