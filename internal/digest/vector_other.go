//go:build !amd64

package digest

const (
	haveWide   = false
	haveNarrow = false
)

func chunks16(*vector, *[GroupSize]byte, uint64) { panic("no vector code") }

func ragged16(*vector, *[GroupSize]byte, *lanes, uint64) { panic("no vector code") }

func parents16(_, _, _ *vector) { panic("no vector code") }

func chunks8(*uint32, *byte, uint64) { panic("no vector code") }

func ragged8(*uint32, *byte, *uint32, uint64) { panic("no vector code") }

func parents8(*uint32, *vector) { panic("no vector code") }
