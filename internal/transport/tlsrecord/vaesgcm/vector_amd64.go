package vaesgcm

import "golang.org/x/sys/cpu"

//go:generate sh -c "go run gen/main.go > vector_amd64.s"

// haveVector reports whether this processor and its system can run the code below.
var haveVector = cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512DQ &&
	cpu.X86.HasAVX512VAES && cpu.X86.HasAVX512VPCLMULQDQ && cpu.X86.HasAES && cpu.X86.HasBMI2

// seal encrypts n bytes from src to dst and sets m.tag to their tag. src and dst are the same or do
// not overlap. seal reads and writes nothing outside them.
//
//go:noescape
func seal(k *key, m *message, dst, src *byte, n int)

// open decrypts n bytes from src to dst and sets m.tag to the tag that they should have. src and
// dst are the same or do not overlap. open reads and writes nothing outside them.
//
//go:noescape
func open(k *key, m *message, dst, src *byte, n int)

// multiply sets product to the product of a, b and x. All three may be the same variable.
//
//go:noescape
func multiply(product, a, b *element)

// subWord is SubWord of FIPS 197 section 5.2, in constant time.
//
//go:noescape
func subWord(w uint32) uint32
