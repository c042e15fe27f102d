package blake3tree

import "golang.org/x/sys/cpu"

//go:generate sh -c "go run gen/main.go > tree_amd64.s"

var haveWide = cpu.X86.HasAVX512F

//go:noescape
func chunks16(cvs *vector, p *[groupSize]byte, counter uint64)

//go:noescape
func parents16(cvs, left, right *vector)
