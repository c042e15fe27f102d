package vaesgcm

import "golang.org/x/sys/cpu"

//go:generate sh -c "go run gen/main.go > vector_amd64.s"

// haveWide reports whether this processor and its system can run the code with vectors of 64 bytes.
var haveWide = cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512DQ &&
	cpu.X86.HasAVX512VAES && cpu.X86.HasAVX512VPCLMULQDQ && cpu.X86.HasBMI2 && haveNarrow

// haveNarrow reports whether they can run that with vectors of 32 bytes.
var haveNarrow = cpu.X86.HasAVX2 && cpu.X86.HasAES && cpu.X86.HasPCLMULQDQ && vectorAES()

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

// sealBatches encrypts batches of 16 blocks from src to dst. counter is that of the first block. The sealed blocks are
// added to hash. src and dst are the same or do not overlap.
//
//go:noescape
func sealBatches(k *key, counter *block, hash *element, dst, src *byte, batches int)

// openBatches decrypts batches of 16 blocks, otherwise like sealBatches.
//
//go:noescape
func openBatches(k *key, counter *block, hash *element, dst, src *byte, batches int)

// encrypt encrypts a block. dst and src may be the same.
//
//go:noescape
func encrypt(k *key, dst, src *block)

// multiply sets product to the product of a, b and x. All three may be the same variable.
//
//go:noescape
func multiply(product, a, b *element)

// subWord is SubWord of FIPS 197 section 5.2, in constant time.
//
//go:noescape
func subWord(w uint32) uint32

// vectorAES reports whether the processor, which has leaf 7 of CPUID as all with AVX2 do, has AES and carry-less
// multiplication on vectors. Package cpu knows that only where there is AVX-512.
func vectorAES() bool
