package digest

import "golang.org/x/sys/cpu"

//go:generate sh -c "go run gen/main.go gen/narrow.go > vector_amd64.s"
//go:generate sh -c "go run gen/main.go gen/narrow.go narrow > narrow_amd64.s"

// haveWide and haveNarrow report whether the processor and the operating system support the
// functions below with vectors of 64 bytes, whose names end with 16, and those with vectors of 32
// bytes, which do the same.
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

// chunks8 digests 8 chunks for each half, like chunks16 otherwise.
//
//go:noescape
func chunks8(cvs *vector, p *[GroupSize]byte, counter, halves uint64)

// ragged8 digests 8 chunks for each half, like ragged16 otherwise.
//
//go:noescape
func ragged8(cvs *vector, p *[GroupSize]byte, about *lanes, blocks, halves uint64)

// parents8 is parents16 with vectors of 32 bytes.
//
//go:noescape
func parents8(cvs, left, right *vector)
