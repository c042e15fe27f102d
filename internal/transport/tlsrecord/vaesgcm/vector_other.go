//go:build !amd64

package vaesgcm

const haveVector = false

func seal(*key, *message, *byte, *byte, int) { panic("no vector code") }

func open(*key, *message, *byte, *byte, int) { panic("no vector code") }

func multiply(_, _, _ *element) { panic("no vector code") }

func subWord(uint32) uint32 { panic("no vector code") }
