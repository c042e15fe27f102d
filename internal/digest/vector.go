package digest

import "lukechampine.com/blake3/guts"

// haveVector reports whether this processor can digest several nodes side by side.
var haveVector = haveWide || haveNarrow

// wideVectors says that vectors have 64 bytes, not 32. Only tests change it.
var wideVectors = haveWide

// halfGroup is how many chunks or parents vectors of 32 bytes digest side by side.
const halfGroup = groupChunks / 2

// chunks digests the first n chunks of a group, and maybe what follows them. The first one has the
// given counter, which is a multiple of 16.
func chunks(cvs *vector, p *[GroupSize]byte, counter uint64, n int) {
	if wideVectors {
		chunks16(cvs, p, counter)
		return
	}
	for i := 0; i < n; i += halfGroup {
		chunks8(&cvs[0][i], &p[i*guts.ChunkSize], counter+uint64(i))
	}
}

// ragged digests the first n of 16 chunks of different lengths, as ragged16 does.
func ragged(cvs *vector, p *[GroupSize]byte, about *lanes, n int) {
	if wideVectors {
		ragged16(cvs, p, about, about.blocks(0, n))
		return
	}
	for i := 0; i < n; i += halfGroup {
		ragged8(&cvs[0][i], &p[i*guts.ChunkSize], &about.lengths[i], about.blocks(i, n))
	}
}

// parents digests the 16 parents of the nodes of left and then of right. All three may be the same.
func parents(cvs, left, right *vector) {
	if wideVectors {
		parents16(cvs, left, right)
		return
	}
	var v vector
	parents8(&v[0][0], left)
	parents8(&v[0][halfGroup], right)
	*cvs = v
}

// blocks is the number of 64-byte blocks of the longest chunk that is digested together with that in lane i, in lanes
// below n. It is at least 1.
func (l *lanes) blocks(i, n int) uint64 {
	longest := uint32(1)
	if !wideVectors {
		n = min(n, i+halfGroup)
	}
	for _, length := range l.lengths[i:n] {
		longest = max(longest, length)
	}
	return uint64(longest+63) / 64
}

// pays reports whether the chunks of the first n lanes take less time side by side than one after the other. With
// vectors of 64 bytes they always do. With those of 32 bytes, 8 blocks of 64 bytes take as long as 1.1 alone.
func (l *lanes) pays(n int) bool {
	if wideVectors {
		return true
	}
	var together, alone uint64
	for i := 0; i < n; i += halfGroup {
		together += l.blocks(i, n)
	}
	for _, length := range l.lengths[:n] {
		alone += uint64(max(1, length)+63) / 64
	}
	return 8*together < 7*alone
}
