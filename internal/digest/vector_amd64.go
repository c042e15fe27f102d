package digest

import "golang.org/x/sys/cpu"

//go:generate sh -c "go run gen/main.go > vector_amd64.s"

// haveVector reports whether the processor and the operating system support the functions
// below.
var haveVector = cpu.X86.HasAVX512F

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
