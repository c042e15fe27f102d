//go:build !amd64

package vaesgcm

const (
	haveWide   = false
	haveNarrow = false
)

func seal(*key, *message, *byte, *byte, int) { panic("no vector code") }

func open(*key, *message, *byte, *byte, int) { panic("no vector code") }

func sealBatches(*key, *block, *element, *byte, *byte, int) { panic("no vector code") }

func openBatches(*key, *block, *element, *byte, *byte, int) { panic("no vector code") }

func encrypt(*key, *block, *block) { panic("no vector code") }

func multiply(_, _, _ *element) { panic("no vector code") }

func subWord(uint32) uint32 { panic("no vector code") }
