package digest

import (
	"encoding/binary"
	"math/bits"

	"lukechampine.com/blake3/guts"
)

// Node is a node of a BLAKE3 tree.
type Node = guts.Node

// ChainingValue returns the node's chaining value in the byte order that BLAKE3 prints.
func ChainingValue(n *Node) (cv [32]byte) {
	for i, w := range guts.ChainingValue(*n) {
		binary.LittleEndian.PutUint32(cv[4*i:], w)
	}
	return cv
}

// Root returns the digest of a file whose top node is n.
func Root(n Node) [32]byte {
	n.Flags |= guts.FlagRoot
	return ChainingValue(&n)
}

// Empty returns the digest of an empty file.
func Empty() [32]byte {
	return Root(guts.CompressChunk(nil, &guts.IV, 0, 0))
}

// Tree combines the nodes of a file's blocks into the digest of the whole file. The blocks may come
// in any order. Its memory follows the number of gaps between the blocks, not the size of the file.
// The zero value is empty. A Tree is not safe for concurrent use.
type Tree struct {
	nodes map[position]Node
	count int64 // blocks added
}

// position names the subtree above the blocks [at<<level, (at+1)<<level).
type position struct {
	level uint8
	at    int64
}

// Count is the number of blocks that were added.
func (t *Tree) Count() int64 { return t.count }

// Has reports whether a block was added.
func (t *Tree) Has(block int64) bool {
	for level := uint8(0); level < 63; level++ {
		if _, ok := t.nodes[position{level, block >> level}]; ok {
			return true
		}
		if block>>level == 0 && int64(1)<<level > t.count {
			return false
		}
	}
	return false
}

// Add takes a block's node. It ignores a block that was added before, and then returns false.
func (t *Tree) Add(block int64, n Node) bool {
	if t.Has(block) {
		return false
	}
	t.count++
	t.put(position{0, block}, n)
	return true
}

// put takes the node of a subtree, and joins it with its sibling as long as that is there.
func (t *Tree) put(p position, n Node) {
	if t.nodes == nil {
		t.nodes = make(map[position]Node)
	}
	for {
		sibling, ok := t.nodes[position{p.level, p.at ^ 1}]
		if !ok {
			t.nodes[p] = n
			return
		}
		delete(t.nodes, position{p.level, p.at ^ 1})
		if p.at&1 == 0 {
			n = parent(n, sibling)
		} else {
			n = parent(sibling, n)
		}
		p = position{p.level + 1, p.at >> 1}
	}
}

// AddRun adds count blocks from start on that all have node n. None of them may be in the tree.
func (t *Tree) AddRun(start, count int64, n Node) {
	same := []Node{n} // the top nodes of complete subtrees of such blocks, by level
	for count > 0 {
		level := min(bits.TrailingZeros64(uint64(start)), bits.Len64(uint64(count))-1)
		for len(same) <= level {
			last := same[len(same)-1]
			same = append(same, parent(last, last))
		}
		t.put(position{uint8(level), start >> level}, same[level])
		t.count += 1 << level
		start += 1 << level
		count -= 1 << level
	}
}

// Root returns the digest of a file of that many blocks, and false unless exactly those were added.
func (t *Tree) Root(blocks int64) ([32]byte, bool) {
	if t.count != blocks {
		return [32]byte{}, false
	}
	if blocks == 0 {
		return Empty(), true
	}
	n, ok := t.top(0, blocks)
	return Root(n), ok
}

// Subtree returns the chaining value above count blocks from start on, and false if some of them were
// not added. They are those of a subtree of the file: start is a multiple of a power of two that is at
// least count, and count is that power, or the blocks are the last ones of the file.
func (t *Tree) Subtree(start, count int64) ([32]byte, bool) {
	n, ok := t.top(start, count)
	if !ok {
		return [32]byte{}, false
	}
	return ChainingValue(&n), true
}

// top returns the top node of a subtree, see Subtree.
func (t *Tree) top(start, blocks int64) (n Node, ok bool) {
	// The largest complete subtree is on the left, then the largest one of the rest, and so on
	// (section 2.1): one subtree for each binary digit of the number of blocks. Fold them from the
	// right.
	for rest := blocks; rest > 0; rest &= rest - 1 {
		level := bits.TrailingZeros64(uint64(rest))
		left, ok := t.nodes[position{uint8(level), (start+rest)>>level - 1}]
		switch {
		case !ok:
			return n, false
		case rest == blocks:
			n = left
		default:
			n = parent(left, n)
		}
	}
	return n, blocks > 0
}
