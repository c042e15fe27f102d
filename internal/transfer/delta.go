package transfer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"sync"

	chunkers "github.com/PlakarKorp/go-cdc-chunkers"
	_ "github.com/PlakarKorp/go-cdc-chunkers/chunkers/fastcdc" // registers itself
	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/wire"
	"lukechampine.com/blake3"
)

// A delta spares sending what a file has in common with its old version at the receiver. The
// receiver digests the old version piece by piece, and the sender looks for the pieces in the new
// one. Blocks then travel as patches: which parts of the old file they are made of, and the rest. A
// block is checked by its digest as always, so nothing depends on the short digests of pieces being
// right.

const (
	// deltaFrom is the size in bytes from which a delta is worth its round trips. oldFrom is the
	// size of an old file that is worth a look.
	deltaFrom = 256 << 10
	oldFrom   = 64 << 10
	// pieceSize is the granularity of fixed deltas within a block that differs.
	pieceSize = 1 << wire.PieceLog
	// deltaWindow bounds the blocks of a file that are offered, or released, and not written.
	deltaWindow = 512
	// offersAtOnce bounds the files whose old versions the receiver digests at a time.
	offersAtOnce = 8
	// deltaQueue bounds the memory in bytes of digests that wait at the sender.
	deltaQueue = 64 << 20
	// chunkWindow bounds the chunks of one old file that the sender knows at a time.
	chunkWindow = 1 << 18
	// chunkBuffers is what cutting a file into chunks takes in memory, in chunks of the usual size.
	chunkBuffers = 32
	// chunkMemory is what a known chunk takes in memory, and stretchMemory what a stretch of a patch
	// does, bytes.
	chunkMemory   = 64
	stretchMemory = 24
	// chunkAhead is how many bytes of the old file are known beyond the place in the new one that
	// is looked for in it.
	chunkAhead = 32 << 20
	// A delta ends if it finds less than 1/giveUpBelow of the first giveUpAfter bytes.
	giveUpAfter = 32 << 20
	giveUpBelow = 20
	// sampleFixed is the percentage of a sample from which pieces are expected in their places.
	sampleFixed = 30
)

// chunkSize returns the usual size of a chunk: so small that a changed line costs little, and so
// large that all chunks of most files can be known at once.
func chunkSize(size int64) int {
	n := int64(8 << 10)
	for n < 64<<10 && size/n > chunkWindow {
		n *= 2
	}
	return int(n)
}

// chunked cuts what it reads into chunks by FastCDC (Xia et al., USENIX ATC 2016). A chunk is valid
// until the next call.
type chunked struct {
	chunker *chunkers.Chunker
	ended   bool
}

func newChunked(r io.Reader, size int64) (*chunked, error) {
	n := chunkSize(size)
	opt := chunkers.ChunkerOpts{MinSize: n / 4, NormalSize: n, MaxSize: 8 * n}
	c, err := chunkers.NewChunker("fastcdc-v1.0.0", r, &opt)
	return &chunked{chunker: c}, err
}

// next returns the next chunk, and io.EOF after the last.
func (c *chunked) next() ([]byte, error) {
	if c.ended {
		return nil, io.EOF
	}
	chunk, err := c.chunker.Next()
	if errors.Is(err, io.EOF) && len(chunk) > 0 { // the last chunk, if it is short
		c.ended, err = true, nil
	}
	return chunk, err
}

// zeros is a piece of zeros. Disk images have many.
var zeros [pieceSize]byte

// zeroDigest is the digest of a piece of zeros, computed once.
var zeroDigest = sync.OnceValue(func() [32]byte { return blake3.Sum256(zeros[:]) })

// shortDigest is the short digest of a piece or chunk.
func shortDigest(b []byte) (d wire.ShortDigest) {
	var sum [32]byte
	if len(b) == pieceSize && bytes.Equal(b, zeros[:]) {
		sum = zeroDigest()
	} else {
		sum = blake3.Sum256(b)
	}
	copy(d[:], sum[:])
	return d
}

// noData stands for the digest of a block of the old file that has no data.
var noData wire.ShortDigest

// shortNode is the short digest of a block.
func shortNode(n *digest.Node) (d wire.ShortDigest) {
	cv := digest.ChainingValue(n)
	copy(d[:], cv[:])
	return d
}

// stretch is a part of a block: n bytes of the old file, or n new ones.
type stretch struct {
	old int64 // where it is in the old file; noOldStretch if new
	n   int64
}

const (
	patchHead    = 4
	stretchLen   = 12
	patchLeast   = 16 // a patch is used if it is smaller than its block by at least 1/patchLeast of it
	noOldStretch = -1
)

// appendStretch adds a stretch. It extends the last one where the new one continues it.
func appendStretch(all []stretch, old, n int64) []stretch {
	if k := len(all); k > 0 {
		last := &all[k-1]
		if old < 0 && last.old < 0 || old >= 0 && last.old >= 0 && last.old+last.n == old {
			last.n += n
			return all
		}
	}
	return append(all, stretch{old, n})
}

// patchSize returns the length of a patch in bytes, and how many of them are new content.
func patchSize(all []stretch) (size, fresh int64) {
	for _, x := range all {
		if x.old < 0 {
			fresh += x.n
		}
	}
	return patchHead + stretchLen*int64(len(all)) + fresh, fresh
}

// appendPatch appends a block as its stretches: their number (4 bytes), for each its length (4
// bytes) and its place in the old file plus one (8 bytes), where 0 stands for a new one, and then
// the new bytes.
func appendPatch(b, block []byte, all []stretch) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(all)))
	for _, x := range all {
		b = binary.BigEndian.AppendUint32(b, uint32(x.n))
		b = binary.BigEndian.AppendUint64(b, uint64(x.old+1))
	}
	at := int64(0)
	for _, x := range all {
		if x.old < 0 {
			b = append(b, block[at:at+x.n]...)
		}
		at += x.n
	}
	return b
}

// parsePatch undoes appendPatch for a block of length bytes and an old file of oldSize bytes.
func parsePatch(b []byte, length int, oldSize int64) (all []stretch, fresh []byte, err error) {
	bad := errors.New("bad patch")
	if len(b) < patchHead {
		return nil, nil, bad
	}
	n := int(binary.BigEndian.Uint32(b))
	if b = b[patchHead:]; n > len(b)/stretchLen {
		return nil, nil, bad
	}
	table, fresh := b[:stretchLen*n], b[stretchLen*n:]
	all = make([]stretch, 0, n)
	left, need := int64(length), int64(0)
	for ; len(table) > 0; table = table[stretchLen:] {
		x := stretch{n: int64(binary.BigEndian.Uint32(table)), old: int64(binary.BigEndian.Uint64(table[4:])) - 1}
		switch {
		case x.n == 0 || x.n > left, x.old < noOldStretch, x.old >= 0 && x.old > oldSize-x.n:
			return nil, nil, bad
		case x.old < 0:
			need += x.n
		}
		left -= x.n
		all = append(all, x)
	}
	if left != 0 || need != int64(len(fresh)) {
		return nil, nil, bad
	}
	return all, fresh, nil
}
