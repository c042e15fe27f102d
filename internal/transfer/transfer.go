// Package transfer is the engine: it moves a manifest's entries as blocks over the streams it is handed, from a
// Source on one side to a folder on the other, checked by BLAKE3, resumable, in bounded memory.
//
// The engine knows streams only as io.ReadWriteCloser. Where a stream has deadlines it uses them. One control stream
// carries messages; any number of data streams carry blocks, from the sender to the receiver. SPEC.md in
// internal/wire describes both.
package transfer

import (
	"io"

	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// maxBlockLog is the binary logarithm of the block size of files of 64 MiB and more, and of streams.
	maxBlockLog = wire.MaxBlockLog
	// smallBlocksLog is the same of how many blocks a small file is cut into, so that it can use several streams in slow start.
	smallBlocksLog = 6
	// piece is read and digested at once: large enough for few system calls, small enough for the L2 cache.
	piece = 128 << 10

	// maxEntries bounds the entries that are announced and not yet resolved, and with them the memory of both sides.
	maxEntries = 16384
	// maxHeld bounds the bytes of their names and attributes.
	maxHeld = 32 << 20
	// maxHoles bounds the runs of blocks without data that are not sent; further ones are sent as blocks without ranges of data.
	maxHoles = 8192
	// maxRuns bounds the runs of blocks that a file under way has.
	maxRuns = 1 << 16
	// maxOpen bounds the files among them that have more than one block, each with its weight: each holds a partial file at the receiver,
	// and large ones a checkpoint as well.
	maxOpen     = 512
	largeWeight = 16
	largeFrom   = 4 << 20 // bytes
	// speculate bounds, in bytes, what is offered before the receiver has said what it needs.
	speculate = 16 << 20
)

// blockLog returns the binary logarithm of the block size for a file.
func blockLog(size int64) uint8 {
	if size < 0 {
		return maxBlockLog
	}
	for log := uint8(wire.MinBlockLog); log < maxBlockLog; log++ {
		if size <= 1<<(log+smallBlocksLog) {
			return log
		}
	}
	return maxBlockLog
}

// blocksOf returns the number of blocks of a file.
func blocksOf(size int64, blockLog uint8) int64 {
	return (size + 1<<blockLog - 1) >> blockLog
}

// lengthOf returns the length in bytes of a block of a file of known size.
func lengthOf(size int64, blockLog uint8, block int64) int {
	return int(min(1<<blockLog, size-block<<blockLog))
}

// EventKind tells what happened to an entry.
type EventKind uint8

// The events of an entry, in this order; each entry ends with exactly one of Committed, Same, Done, Failed, Again, Skipped, WouldSend and
// WouldSet.
const (
	Found     EventKind = iota + 1 // part of the manifest
	Started                        // the receiver needs it; Bytes are there from an earlier run
	Written                        // Bytes more are written at the receiver
	Committed                      // under its final name, durable; Digest
	Same                           // unchanged, skipped
	Done                           // folder or symlink in place
	Failed                         // Err
	Listed                         // the manifest is complete; no entry
	Again                          // changed while it was sent, found anew under another Index
	Skipped                        // not wanted, by Target.Compare
	WouldSend                      // in a dry run; New tells that the target has nothing of that name
	WouldSet                       // in a dry run: only metadata
	Removed                        // at the target, where the source has nothing; Entry has Kind and Path only
	Warned                         // Warning
)

// Event reports progress. Events of one session come from one goroutine at a time.
type Event struct {
	Kind   EventKind
	Index  uint64
	Entry  *wire.Entry // not to be changed; nil of Listed
	At     string      // of an entry's last event at the receiver: its path in the target's tree
	Bytes  int64
	Copied int64    // of Written: bytes that were not sent, but taken from an old version
	Digest [32]byte // zero for a file with holes, which are not digested
	Err    error
	New    bool
	Reused bool // of Same: from the previous snapshot

	Warning *wire.Warning // what the target could not hold
}

// Stats counts one session's work. Byte counts are of payload.
type Stats struct {
	Read     int64 // bytes read from the source, or from the network at the receiver
	Written  int64 // bytes the receiver has written in this session
	Copied   int64 // bytes it has taken from old versions of files
	Resumed  int64 // bytes found from earlier runs
	Resent   int64 // bytes sent more than once
	Rejected int64 // blocks whose digest was wrong
	Raw      int64 // payload before it was compressed, and
	Coded    int64 // after that
}

// Stream is a data stream.
type Stream = io.ReadWriteCloser

// bytesOf returns the bytes in a set of blocks of a file of known size.
func bytesOf(x extents, size int64, blockLog uint8) (n int64) {
	for _, run := range x {
		n += min(size, (run.Start+run.Count)<<blockLog) - run.Start<<blockLog
	}
	return n
}

// heldBy returns about how many bytes an entry holds beside its fixed size.
func heldBy(x *wire.Entry) int {
	n := len(x.Path) + len(x.Link) + len(x.User) + len(x.Group)
	for _, a := range x.Xattrs {
		n += len(a.Name) + len(a.Value) + 64
	}
	return n
}

// weightOf is what an entry counts towards maxOpen.
func weightOf(x *wire.Entry) int {
	switch {
	case x.Kind != wire.File:
		return 0
	case x.Size < 0 || x.Size > largeFrom:
		return largeWeight
	case blocksOf(x.Size, x.BlockLog) > 1:
		return 1
	}
	return 0
}
