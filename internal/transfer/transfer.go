// Package transfer is the engine. It moves the entries of a manifest as blocks over the streams it
// is given, from a Source on one side to a folder on the other. Everything is checked by BLAKE3 and
// can be resumed, and memory is bounded.
//
// To the engine a stream is an io.ReadWriteCloser. It uses deadlines where the stream has them. One
// control stream carries messages. Any number of data streams carry blocks from the sender to the
// receiver. SPEC.md in internal/wire describes both.
//
// A Sender and a Receiver each join a few types that own one job and its lock:
//
//	both      pump: messages; side: the end of the session, events, counters
//	Sender    manifest: announced entries; claims: which stream sends which block; carrier: the way of
//	          a block; sourceFile: reading; deltaSend, comparison, pruneAnswers
//	Receiver  table: announced entries; inbox: the way of a block; target: the tree that is written;
//	          committer: names for complete files; comparer, linker, deltaReceive, remover, pruner
package transfer

import (
	"io"

	"github.com/fxfer/fxfer/internal/blockset"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// maxBlockLog is the binary logarithm of the block size of streams and of files above 128 MiB.
	maxBlockLog = wire.MaxBlockLog
	// smallBlocksLog is the binary logarithm of how many blocks a small file is cut into, so that
	// it can use several streams in slow start, and so that an outage costs little of it: a block
	// that has not arrived whole is sent again.
	smallBlocksLog = 8
	// nearLargest is the largest file that is cut into blocks of full size on a near path: those up to
	// it have no checkpoint, in which a later session would look for blocks of another size.
	nearLargest = disk.CheckpointFrom
	// piece is how many bytes are read and digested at once: large enough for few system calls,
	// small enough for the L2 cache.
	piece = 128 << 10

	// maxEntries bounds the entries that are announced and not resolved, and with them the memory
	// of both sides.
	maxEntries = 16384
	// maxHeld bounds the bytes of their names and attributes.
	maxHeld = 32 << 20
	// maxHoles bounds the runs of blocks that are not sent because they have no data. Further ones
	// are sent as blocks that are all hole.
	maxHoles = 8192
	// maxRuns bounds the runs of blocks in the set that a file under way has.
	maxRuns = 1 << 16
	// maxOpen bounds the sum of weights of announced files, see weightOf. A file of more than one
	// block weighs something, since it has a partial file at the receiver. A file from largeFrom
	// bytes on weighs largeWeight, since it has a checkpoint as well.
	maxOpen     = 512
	largeWeight = 16
	largeFrom   = 4 << 20
	// speculate bounds the bytes that are offered before the receiver has said what it needs.
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

// lengthOf returns the length in bytes of a block of a file whose size is known.
func lengthOf(size int64, blockLog uint8, block int64) int {
	return int(min(1<<blockLog, size-block<<blockLog))
}

// bytesOf returns how many bytes the blocks of a set have in a file whose size is known.
func bytesOf(blocks blockset.Set, size int64, blockLog uint8) (n int64) {
	for run := range blocks.All() {
		n += min(size, run.End()<<blockLog) - run.Start<<blockLog
	}
	return n
}

// Stream is a data stream. If it has Abort() error, the sender discards by that what would leave in vain.
type Stream = io.ReadWriteCloser

// fileID identifies a file on its host.
type fileID struct{ dev, ino uint64 }

// heldBy estimates how many bytes an entry occupies beside its fixed size.
func heldBy(x *wire.Entry) int {
	n := len(x.Path) + len(x.Link) + len(x.Alias) + len(x.User) + len(x.Group)
	for _, a := range x.Xattrs {
		n += len(a.Name) + len(a.Value) + 64
	}
	return n
}

// weightOf returns what an entry counts towards maxOpen.
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

// weightOfAll is the sum of the weights of entries.
func weightOfAll(entries []wire.Entry) (sum int) {
	for i := range entries {
		sum += weightOf(&entries[i])
	}
	return sum
}

// protocolError is the error of a peer that breaks the protocol. It ends the session.
func protocolError(format string, args ...any) error {
	return wire.Errorf(wire.CodeProtocol, format, args...)
}
