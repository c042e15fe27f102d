package blake3tree

import "lukechampine.com/blake3/guts"

const groupSize = 16 << 10

type vector [8][16]uint32

const levels = 7

// Hasher digests one block.
type Hasher struct {
	counter uint64
	groups  uint
	wide    bool
	vectors [levels]vector
	nodes   [levels]guts.Node
	tail    guts.Node
	ragged  bool
	buf     [groupSize]byte
}

func (h *Hasher) Reset(off int64) {
	h.counter = uint64(off) / guts.ChunkSize
	h.groups = 0
	h.ragged = false
	h.wide = haveWide
}

func (h *Hasher) Write(p []byte) {
	for len(p) >= groupSize {
		if h.wide {
			h.pushVector((*[groupSize]byte)(p))
		} else {
			h.pushNode((*[groupSize]byte)(p))
		}
		h.counter += groupSize / guts.ChunkSize
		p = p[groupSize:]
	}
	if len(p) > 0 {
		copy(h.buf[:], p)
		h.tail = guts.CompressBuffer(&h.buf, len(p), &guts.IV, h.counter, 0)
		h.ragged = true
	}
}

func (h *Hasher) pushVector(p *[groupSize]byte) {
	var v vector
	chunks16(&v, p, h.counter)
	level := 0
	for ; h.groups>>level&1 != 0; level++ {
		parents16(&v, &h.vectors[level], &v)
	}
	h.vectors[level] = v
	h.groups++
}

func (h *Hasher) pushNode(p *[groupSize]byte) {
	n := guts.CompressBuffer(p, groupSize, &guts.IV, h.counter, 0)
	level := 0
	for ; h.groups>>level&1 != 0; level++ {
		n = parent(&h.nodes[level], &n)
	}
	h.nodes[level] = n
	h.groups++
}

func (h *Hasher) Sum() guts.Node {
	n, have := h.tail, h.ragged
	for level := 0; h.groups>>level != 0; level++ {
		if h.groups>>level&1 == 0 {
			continue
		}
		left := h.node(level)
		if have {
			left = parent(&left, &n)
		}
		n, have = left, true
	}
	return n
}

func (h *Hasher) node(level int) guts.Node {
	if !h.wide {
		return h.nodes[level]
	}
	v := h.vectors[level]
	for range 3 {
		parents16(&v, &v, &v)
	}
	var l, r [8]uint32
	for i := range l {
		l[i], r[i] = v[i][0], v[i][1]
	}
	return guts.ParentNode(l, r, &guts.IV, 0)
}

func parent(left, right *guts.Node) guts.Node {
	return guts.ParentNode(guts.ChainingValue(*left), guts.ChainingValue(*right), &guts.IV, 0)
}
