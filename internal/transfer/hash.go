package transfer

import (
	"encoding/binary"
	"math/bits"

	"lukechampine.com/blake3/guts"
)

// parent is the node above two subtrees (BLAKE3 paper, section 2.5).
func parent(left, right *guts.Node) guts.Node {
	return guts.ParentNode(guts.ChainingValue(*left), guts.ChainingValue(*right), &guts.IV, 0)
}

// chaining returns the node's chaining value in the byte order that BLAKE3 prints.
func chaining(n *guts.Node) (cv [32]byte) {
	for i, w := range guts.ChainingValue(*n) {
		binary.LittleEndian.PutUint32(cv[4*i:], w)
	}
	return cv
}

// rootDigest returns the digest of a file whose topmost node is n.
func rootDigest(n guts.Node) [32]byte {
	n.Flags |= guts.FlagRoot
	return chaining(&n)
}

// emptyDigest is the digest of no bytes.
func emptyDigest() [32]byte {
	return rootDigest(guts.CompressChunk(nil, &guts.IV, 0, 0))
}

// hashTree combines the nodes of a file's blocks, given in any order, into the digest of the whole file. Its
// memory follows the number of gaps between the blocks it has, not the size of the file.
type hashTree struct {
	nodes map[treePos]guts.Node
	count int64 // blocks added
}

// treePos names the subtree over blocks [at<<level, (at+1)<<level).
type treePos struct {
	level uint8
	at    int64
}

// has tells whether a block was added.
func (t *hashTree) has(block int64) bool {
	for level := uint8(0); level < 63; level++ {
		if _, ok := t.nodes[treePos{level, block >> level}]; ok {
			return true
		}
		if block>>level == 0 && int64(1)<<level > t.count {
			return false
		}
	}
	return false
}

// add takes a block's node. Adding a block twice is ignored and reported as false.
func (t *hashTree) add(block int64, n guts.Node) bool {
	if t.has(block) {
		return false
	}
	t.count++
	t.put(treePos{0, block}, n)
	return true
}

// put takes the node of a subtree, and joins it with its siblings as long as they are there.
func (t *hashTree) put(p treePos, n guts.Node) {
	if t.nodes == nil {
		t.nodes = make(map[treePos]guts.Node)
	}
	for {
		sibling, ok := t.nodes[treePos{p.level, p.at ^ 1}]
		if !ok {
			t.nodes[p] = n
			return
		}
		delete(t.nodes, treePos{p.level, p.at ^ 1})
		if p.at&1 == 0 {
			n = parent(&n, &sibling)
		} else {
			n = parent(&sibling, &n)
		}
		p = treePos{p.level + 1, p.at >> 1}
	}
}

// addRun adds count blocks that were not added before, all with node n.
func (t *hashTree) addRun(start, count int64, n guts.Node) {
	same := []guts.Node{n} // of complete subtrees, by level
	for count > 0 {
		level := min(bits.TrailingZeros64(uint64(start)), bits.Len64(uint64(count))-1)
		for len(same) <= level {
			last := same[len(same)-1]
			same = append(same, parent(&last, &last))
		}
		t.put(treePos{uint8(level), start >> level}, same[level])
		t.count += 1 << level
		start += 1 << level
		count -= 1 << level
	}
}

// root returns the digest of a file of the given number of blocks, and false unless exactly those were added.
func (t *hashTree) root(blocks int64) ([32]byte, bool) {
	if t.count != blocks {
		return [32]byte{}, false
	}
	if blocks == 0 {
		return emptyDigest(), true
	}
	// A tree of n leaves has its largest complete subtree on the left, and so on: the binary digits of n. Fold from the right.
	var n guts.Node
	first := true
	for rest := blocks; rest > 0; rest &= rest - 1 {
		level := bits.TrailingZeros64(uint64(rest))
		left, ok := t.nodes[treePos{uint8(level), rest>>level - 1}]
		if !ok {
			return [32]byte{}, false
		}
		if first {
			n, first = left, false
		} else {
			n = parent(&left, &n)
		}
	}
	return rootDigest(n), true
}
