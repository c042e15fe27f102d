package digest

// haveVector reports whether this processor can digest several nodes side by side.
var haveVector = haveWide || haveNarrow

// wideVectors is whether that is done with vectors of 64 bytes, and not with those of 32.
var wideVectors = haveWide

// halfGroup is how many chunks vectors of 32 bytes digest side by side.
const halfGroup = groupChunks / 2

// chunks digests the first n chunks of a group, and maybe what follows them. The first one has the
// given counter, which is a multiple of 16.
func chunks(cvs *vector, p *[GroupSize]byte, counter uint64, n int) {
	if wideVectors {
		chunks16(cvs, p, counter)
	} else {
		chunks8(cvs, p, counter, halves(n))
	}
}

// ragged digests the first n of 16 chunks of different lengths, as ragged16 does.
func ragged(cvs *vector, p *[GroupSize]byte, about *lanes, blocks uint64, n int) {
	if wideVectors {
		ragged16(cvs, p, about, blocks)
	} else {
		ragged8(cvs, p, about, blocks, halves(n))
	}
}

// halves is how many times 8 chunks n chunks are, at least 1.
func halves(n int) uint64 { return uint64(max(1, (n+halfGroup-1)/halfGroup)) }

// parents digests the 16 parents of the nodes of left and then of right. All three may be the same.
func parents(cvs, left, right *vector) {
	if wideVectors {
		parents16(cvs, left, right)
	} else {
		parents8(cvs, left, right)
	}
}

// paysSmall is from how many chunks on it takes less time to digest them side by side.
func paysSmall(chunks int) bool { return haveWide || haveNarrow && chunks > 2 }
