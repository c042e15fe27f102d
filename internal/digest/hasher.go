// Package digest computes BLAKE3 digests of files block by block. A Hasher digests one block to its
// node of the file's tree; a Tree combines the nodes of all blocks, in any order, into the digest
// that b3sum prints for the file.
//
// Where the processor has AVX-512 or AVX2, a Hasher uses code of its own that digests 16 chunks
// or parents at a time, 8 with AVX2, and a Small digests files side by side, up to 16 chunks together. Elsewhere
// lukechampine.com/blake3/guts does the work.
//
// A chunk is BLAKE3's leaf of 1 KiB, a group is 16 chunks. Sections refer to the BLAKE3 paper.
package digest

import "lukechampine.com/blake3/guts"

const (
	// GroupSize is 16 KiB. All pieces of a block but the last are multiples of it.
	GroupSize = groupChunks * guts.ChunkSize

	// MaxBlock is the size of the largest block, in bytes.
	MaxBlock = GroupSize << (levels - 1)

	groupChunks = 16
	levels      = 7
)

// vector holds the chaining values of 16 neighbouring nodes of the same height. v[i] is word i of
// each.
type vector [8][groupChunks]uint32

// Hasher digests one block piece by piece, so that each piece is digested while it is still in the
// cache. Call Reset before the first use and before each further block. A Hasher does not allocate,
// and is not safe for concurrent use.
type Hasher struct {
	counter uint64 // of the next chunk, within the whole file
	vector  bool   // vectors is in use, otherwise nodes

	// groups counts the groups so far. Subtrees join like the digits of a binary counter carry: two
	// neighbouring subtrees of 2^n groups become one of 2^(n+1). So bit n is set while a subtree of
	// 2^n groups waits for its right neighbour. A subtree in vectors is 16 nodes: the four levels
	// of parents above them come last, so that all levels below are digested 16 parents at a time.
	groups  uint
	vectors [levels]vector
	nodes   [levels]guts.Node

	ragged bool // whether the block ended with tail, less than a group
	tail   guts.Node
	buf    [GroupSize]byte // the bytes of tail, for code that reads whole groups
}

// Reset starts a block whose first byte is at offset off of the file. All blocks of a file but the
// last have the same size: a power of two from GroupSize to MaxBlock. off is a multiple of it.
func (h *Hasher) Reset(off int64) { h.reset(off, haveVector) }

func (h *Hasher) reset(off int64, vector bool) {
	h.counter = uint64(off) / guts.ChunkSize
	h.vector = vector
	h.groups = 0
	h.ragged = false
}

// Write digests the block's next piece, which needs no alignment in memory. The length of all
// pieces but the last is a multiple of GroupSize.
func (h *Hasher) Write(p []byte) {
	for ; len(p) >= GroupSize; p = p[GroupSize:] {
		if h.vector {
			h.addVector((*[GroupSize]byte)(p))
		} else {
			h.addNode((*[GroupSize]byte)(p))
		}
		h.groups++
		h.counter += groupChunks
	}
	if len(p) > 0 {
		h.tail = h.last(p)
		h.ragged = true
	}
}

func (h *Hasher) addVector(p *[GroupSize]byte) {
	var v vector
	chunks(&v, p, h.counter, groupChunks)
	level := 0
	for ; h.groups>>level&1 != 0; level++ {
		parents(&v, &h.vectors[level], &v)
	}
	h.vectors[level] = v
}

func (h *Hasher) addNode(p *[GroupSize]byte) {
	n := guts.CompressBuffer(p, GroupSize, &guts.IV, h.counter, 0)
	level := 0
	for ; h.groups>>level&1 != 0; level++ {
		n = parent(h.nodes[level], n)
	}
	h.nodes[level] = n
}

// last digests the end of a block that is less than a group.
func (h *Hasher) last(p []byte) guts.Node {
	if len(p) <= guts.ChunkSize {
		return guts.CompressChunk(p, &guts.IV, h.counter, 0)
	}
	copy(h.buf[:], p)
	if !h.vector {
		return guts.CompressBuffer(&h.buf, len(p), &guts.IV, h.counter, 0)
	}
	var v vector
	n := len(p) / guts.ChunkSize
	chunks(&v, &h.buf, h.counter, n)
	if rest := p[n*guts.ChunkSize:]; len(rest) > 0 {
		v.set(n, guts.ChainingValue(guts.CompressChunk(rest, &guts.IV, h.counter+uint64(n), 0)))
		n++
	}
	return v.fold(n)
}

// Sum returns the top node of what was written since Reset. If the block is its whole file, Root
// turns the node into the file's digest. Sum changes nothing.
func (h *Hasher) Sum() Node {
	if h.groups == 0 && !h.ragged {
		return guts.CompressChunk(nil, &guts.IV, h.counter, 0)
	}
	// A left subtree is the largest complete one that leaves something for the right one (section
	// 2.1).
	n, some := h.tail, h.ragged
	for level := 0; h.groups>>level != 0; level++ {
		if h.groups>>level&1 == 0 {
			continue
		}
		left := h.nodes[level]
		if h.vector {
			left = h.vectors[level].fold(groupChunks)
		}
		if some {
			n = parent(left, n)
		} else {
			n, some = left, true
		}
	}
	return n
}

// fold returns the node above the first n of the vector's nodes. n is at least 2.
func (v vector) fold(n int) guts.Node {
	for n > 2 {
		odd, last := n&1, v.get(n-1)
		parents(&v, &v, &v)
		n /= 2
		if odd != 0 {
			v.set(n, last)
			n++
		}
	}
	return guts.ParentNode(v.get(0), v.get(1), &guts.IV, 0)
}

// get returns the chaining value of node at.
func (v *vector) get(at int) (cv [8]uint32) {
	for i := range v {
		cv[i] = v[i][at]
	}
	return cv
}

// set replaces the chaining value of node at.
func (v *vector) set(at int, cv [8]uint32) {
	for i := range v {
		v[i][at] = cv[i]
	}
}

// parent returns the node above two subtrees (section 2.5).
func parent(left, right guts.Node) guts.Node {
	return guts.ParentNode(guts.ChainingValue(left), guts.ChainingValue(right), &guts.IV, 0)
}
