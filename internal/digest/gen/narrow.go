//go:build ignore

package main

import "fmt"

// The code for vectors of 32 bytes. All 16 of their registers hold the state of 8 compressions, and a rotation by a
// number of bits that is no multiple of 8 needs one more. So word 8 of the state lies in memory while Y8 is free: it is
// added from there. The words of 8 chunks are transposed before they are compressed.

// mixings are the words of the state that each of the four mixings of a half round takes: columns, then diagonals.
var mixings = [2][4][4]int{
	{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}},
	{{0, 5, 10, 15}, {1, 6, 11, 12}, {2, 7, 8, 13}, {3, 4, 9, 14}},
}

// The memory of a compression, from R8 on, in bytes.
const (
	narrowWord8 = 512 // behind the 16 words of the message
	narrowRest  = narrowWord8 + 32
)

// narrowRounds returns the seven rounds over the state in Y0 to Y15 and narrowWord8.
func narrowRounds() (code []string) {
	add := func(format string, args ...any) { code = append(code, fmt.Sprintf(format, args...)) }
	for _, schedule := range schedules() {
		for half, quads := range mixings {
			for k, shift := range [2]int{12, 7} {
				for i, q := range quads {
					add("VPADDD %d(R8), Y%d, Y%d", 32*schedule[8*half+2*i+k], q[0], q[0])
				}
				for _, q := range quads {
					add("VPADDD Y%d, Y%d, Y%d", q[1], q[0], q[0])
				}
				for _, q := range quads {
					add("VPXOR Y%d, Y%d, Y%d", q[0], q[3], q[3])
				}
				for _, q := range quads {
					add("VPSHUFB right%d<>(SB), Y%d, Y%d", [2]int{16, 8}[k], q[3], q[3])
				}
				for _, q := range quads {
					if q[2] == 8 {
						add("VPADDD %d(R8), Y%d, Y8", narrowWord8, q[3])
						add("VMOVDQU Y8, %d(R8)", narrowWord8)
					} else {
						add("VPADDD Y%d, Y%d, Y%d", q[3], q[2], q[2])
					}
				}
				for _, q := range quads {
					add("VPXOR Y%d, Y%d, Y%d", q[2], q[1], q[1])
				}
				for _, q := range quads {
					add("VPSRLD $%d, Y%d, Y8", shift, q[1])
					add("VPSLLD $%d, Y%d, Y%d", 32-shift, q[1], q[1])
					add("VPOR Y8, Y%d, Y%d", q[1], q[1])
				}
			}
		}
	}
	return code
}

// narrowTransposition reads 64 bytes of each of 8 chunks, those of the first one at (SI), and stores 16 vectors at
// (R8): word i of each chunk, for i from 0 to 15. It uses only Y8 to Y12.
//
// A vector is two lanes of four words, of chunks s and s+4. Words are transposed within lanes.
func narrowTransposition() {
	for q := range 4 {
		for s := range 4 {
			emit("VMOVDQU %d(SI), X%d", 1024*s+16*q, 8+s)
			emit("VINSERTI128 $1, %d(SI), Y%d, Y%d", 1024*(s+4)+16*q, 8+s, 8+s)
		}
		emit("VPUNPCKLDQ Y9, Y8, Y12")
		emit("VPUNPCKHDQ Y9, Y8, Y8")
		emit("VPUNPCKLDQ Y11, Y10, Y9")
		emit("VPUNPCKHDQ Y11, Y10, Y10")
		emit("VPUNPCKLQDQ Y9, Y12, Y11")
		emit("VPUNPCKHQDQ Y9, Y12, Y12")
		emit("VPUNPCKLQDQ Y10, Y8, Y9")
		emit("VPUNPCKHQDQ Y10, Y8, Y8")
		for i, y := range []int{11, 12, 9, 8} {
			emit("VMOVDQU Y%d, %d(R8)", y, 32*(4*q+i))
		}
	}
}

// narrowInitial sets the first 8 words of the state to the initial chaining value.
func narrowInitial() {
	for i := range 8 {
		emit("VPBROADCASTD %d(R11), Y%d", 4*i, i)
	}
}

// narrowMiddle sets words 8 to 11 of the state to the first words of the initial chaining value.
func narrowMiddle() {
	emit("VPBROADCASTD (R11), Y8")
	emit("VMOVDQU Y8, %d(R8)", narrowWord8)
	for i := range 3 {
		emit("VPBROADCASTD %d(R11), Y%d", 4*(i+1), 9+i)
	}
}

// narrowFinish ends a compression: Y0 to Y7 become its chaining values.
func narrowFinish() {
	emit("VPXOR %d(R8), Y0, Y0", narrowWord8)
	for i := 1; i < 8; i++ {
		emit("VPXOR Y%d, Y%d, Y%d", 8+i, i, i)
	}
}

// narrowStore returns Y0 to Y7 as the result: 8 lanes of each vector.
func narrowStore() {
	line("")
	for i := range 8 {
		emit("VMOVDQU Y%d, %d(DI)", i, 64*i)
	}
	emit("VZEROUPPER")
	emit("RET")
}

// narrowText begins a function with so many bytes of memory at R8, aligned to 32.
func narrowText(name, parameters string, size, arguments int) {
	line("")
	line("// func %s(%s)", name, parameters)
	line("TEXT ·%s(SB), 0, $%d-%d", name, (size+31+7)&^7, arguments)
	emit("LEAQ 31(SP), R8")
	emit("ANDQ $~31, R8")
	emit("LEAQ iv<>(SB), R11")
}

// narrowChunks writes chunks8.
func narrowChunks() {
	const (
		low  = narrowRest // halves of the chunk counters
		high = low + 32
	)
	narrowText("chunks8", "cvs *uint32, p *byte, counter uint64", high+32, 24)
	emit("MOVQ cvs+0(FP), DI")
	emit("MOVQ p+8(FP), SI")
	emit("MOVQ counter+16(FP), AX")
	emit("LEAQ flags<>(SB), R12")
	emit("XORQ CX, CX // compression of 16")
	line("")
	// The counter is a multiple of 8: no carry.
	emit("VMOVQ AX, X0")
	emit("VPBROADCASTD X0, Y0")
	emit("SHRQ $32, AX")
	emit("VMOVQ AX, X1")
	emit("VPBROADCASTD X1, Y1")
	emit("VPOR lanes<>(SB), Y0, Y0")
	emit("VMOVDQU Y0, %d(R8)", low)
	emit("VMOVDQU Y1, %d(R8)", high)
	narrowInitial()
	line("")
	line("compress:")
	narrowTransposition()
	emit("ADDQ $64, SI")
	narrowMiddle()
	emit("VMOVDQU %d(R8), Y12", low)
	emit("VMOVDQU %d(R8), Y13", high)
	emit("VPBROADCASTD 32(R11), Y14")
	emit("VPBROADCASTD (R12)(CX*4), Y15")
	emitAll(narrowRounds())
	narrowFinish()
	emit("INCQ CX")
	emit("CMPQ CX, $16")
	emit("JNE compress")
	narrowStore()
}

// narrowRagged writes ragged8. Chunks of different lengths go in step: one that has ended keeps its chaining value.
func narrowRagged() {
	const (
		left   = narrowRest // bytes left of each chunk
		ended  = left + 32  // all bits of a lane whose chunk has ended
		values = ended + 32 // the chaining values before a compression
	)
	narrowText("ragged8", "cvs *uint32, p *byte, about *uint32, blocks uint64", values+256, 32)
	emit("MOVQ cvs+0(FP), DI")
	emit("MOVQ p+8(FP), SI")
	emit("MOVQ about+16(FP), DX // lengths, counters and flags of the end")
	emit("MOVQ blocks+24(FP), BX")
	emit("XORQ CX, CX // compression")
	line("")
	emit("VMOVDQU (DX), Y0")
	emit("VMOVDQU Y0, %d(R8)", left)
	emit("VPXOR Y0, Y0, Y0 // an empty chunk has one compression, too")
	emit("VMOVDQU Y0, %d(R8)", ended)
	narrowInitial()
	line("")
	line("step:")
	for i := range 8 {
		emit("VMOVDQU Y%d, %d(R8)", i, values+32*i)
	}
	narrowTransposition()
	emit("ADDQ $64, SI")
	emit("VMOVDQU %d(R8), Y12", left)
	emit("VPBROADCASTD 32(R11), Y14")
	emit("VPMINUD Y14, Y12, Y14")
	emit("VPCMPEQD Y14, Y12, Y13 // at most 64 bytes are left: the end")
	emit("VPSUBD Y14, Y12, Y12")
	emit("VMOVDQU Y12, %d(R8)", left)
	emit("VPAND 128(DX), Y13, Y13")
	emit("XORQ AX, AX")
	emit("CMPQ CX, $1")
	emit("ADCQ $0, AX // the start")
	emit("VMOVQ AX, X15")
	emit("VPBROADCASTD X15, Y15")
	emit("VPOR Y13, Y15, Y15")
	narrowMiddle()
	emit("VMOVDQU 64(DX), Y12")
	emit("VPXOR Y13, Y13, Y13")
	emitAll(narrowRounds())
	narrowFinish()
	emit("VMOVDQU %d(R8), Y15", ended)
	for i := range 8 {
		emit("VPBLENDVB Y15, %d(R8), Y%d, Y%d", values+32*i, i, i)
	}
	emit("VPXOR Y14, Y14, Y14")
	emit("VPCMPEQD %d(R8), Y14, Y14", left)
	emit("VMOVDQU Y14, %d(R8)", ended)
	emit("INCQ CX")
	emit("CMPQ CX, BX")
	emit("JNE step")
	narrowStore()
}

// narrowParents writes parents8.
func narrowParents() {
	narrowText("parents8", "cvs *uint32, nodes *vector", narrowRest, 16)
	emit("MOVQ cvs+0(FP), DI")
	emit("MOVQ nodes+8(FP), SI")
	line("")
	for i := range 8 {
		emit("VMOVDQU %d(SI), Y0", 64*i)
		emit("VMOVDQU %d(SI), Y1", 64*i+32)
		emit("VSHUFPS $0x88, Y1, Y0, Y2")
		emit("VSHUFPS $0xdd, Y1, Y0, Y3")
		emit("VPERMQ $0xd8, Y2, Y2")
		emit("VPERMQ $0xd8, Y3, Y3")
		emit("VMOVDQU Y2, %d(R8)", 32*i)
		emit("VMOVDQU Y3, %d(R8)", 32*(8+i))
	}
	narrowInitial()
	narrowMiddle()
	emit("VPXOR Y12, Y12, Y12")
	emit("VPXOR Y13, Y13, Y13")
	emit("VPBROADCASTD 32(R11), Y14")
	emit("VPBROADCASTD 36(R11), Y15")
	emitAll(narrowRounds())
	narrowFinish()
	narrowStore()
}

// narrow writes the code for vectors of 32 bytes.
func narrow() {
	for _, r := range []uint32{16, 8} {
		var words []uint32
		for i := range uint32(8) {
			w := uint32(0)
			for b := range uint32(4) {
				w |= (4*(i%4) + (b+r/8)%4) << (8 * b)
			}
			words = append(words, w)
		}
		table(fmt.Sprintf("right%d", r), words...)
	}
	narrowChunks()
	narrowRagged()
	narrowParents()
}
