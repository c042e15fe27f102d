//go:build !amd64

package blake3tree

const haveWide = false

func chunks16(cvs *vector, p *[groupSize]byte, counter uint64) { panic("unreachable") }

func parents16(cvs, left, right *vector) { panic("unreachable") }
