package digest

import "golang.org/x/sys/cpu"

//go:generate sh -c "go run gen/main.go gen/narrow.go > vector_amd64.s"
//go:generate sh -c "go run gen/main.go gen/narrow.go narrow > narrow_amd64.s"

// haveWide and haveNarrow report whether the processor and the operating system support the
// functions below with vectors of 64 bytes, whose names end with 16, and those with vectors of 32
// bytes, whose names end with 8.
var (
	haveWide   = cpu.X86.HasAVX512F
	haveNarrow = cpu.X86.HasAVX2
)

// chunks16 digests 16 chunks. The first one has the given counter, which is a multiple of 16. It
// reads nothing outside p.
//
//go:noescape
func chunks16(cvs *vector, p *[GroupSize]byte, counter uint64)

// ragged16 digests 16 chunks that begin at multiples of 1 KiB of p. Zeros follow each of them up to the next
// multiple of 64 bytes, from 64 on. blocks is how many times 64 bytes the longest one has, begun ones included,
// and at least 1. It reads nothing outside p.
//
//go:noescape
func ragged16(cvs *vector, p *[GroupSize]byte, about *lanes, blocks uint64)

// parents16 digests the 16 parents of 32 nodes: those of left, then those of right. All three
// vectors may be the same.
//
//go:noescape
func parents16(cvs, left, right *vector)

// chunks8 digests the 8 chunks at p. The first one has the given counter, which is a multiple of 8. Lane i of a
// vector is i words behind cvs. It reads nothing outside the chunks.
//
//go:noescape
func chunks8(cvs *uint32, p *byte, counter uint64)

// ragged8 is ragged16 for 8 chunks. about is the first of their lengths among all lanes.
//
//go:noescape
func ragged8(cvs *uint32, p *byte, about *uint32, blocks uint64)

// parents8 digests the 8 parents of 16 nodes.
//
//go:noescape
func parents8(cvs *uint32, nodes *vector)
