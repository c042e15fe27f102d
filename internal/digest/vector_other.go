//go:build !amd64

package digest

const haveVector = false

func chunks16(*vector, *[GroupSize]byte, uint64) { panic("no vector code") }

func roots16(*vector, *[GroupSize]byte, *[groupChunks]uint32, uint64) { panic("no vector code") }

func parents16(_, _, _ *vector) { panic("no vector code") }
