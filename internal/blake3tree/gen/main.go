//go:build ignore

// Command gen writes the AVX-512 code of package blake3tree to standard output.
package main

import (
	"fmt"
	"os"
	"strings"
)

var out strings.Builder

func emit(format string, args ...any) { fmt.Fprintf(&out, "\t"+format+"\n", args...) }
func line(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }

// permutation is the reordering of the message words between rounds (BLAKE3 paper, table 2).
var permutation = [16]int{2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8}

// rounds returns the seven rounds over Z0 to Z15. Each of the four mixings of a half round depends on nothing of
// the other three, so they go in step. word returns the operand that holds message word i.
func rounds(word func(i int) string) (code []string) {
	halves := [2][4][4]int{
		{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}, // columns
		{{0, 5, 10, 15}, {1, 6, 11, 12}, {2, 7, 8, 13}, {3, 4, 9, 14}}, // diagonals
	}
	var schedule [16]int
	for i := range schedule {
		schedule[i] = i
	}
	for range 7 {
		for half, quads := range halves {
			step := func(f func(i int, a, b, c, d int) string) {
				for i, q := range quads {
					code = append(code, f(i, q[0], q[1], q[2], q[3]))
				}
			}
			for k, rotations := range [2][2]int{{16, 12}, {8, 7}} {
				step(func(i, a, _, _, _ int) string {
					return fmt.Sprintf("VPADDD %s, Z%d, Z%d", word(schedule[8*half+2*i+k]), a, a)
				})
				step(func(_, a, b, _, _ int) string { return fmt.Sprintf("VPADDD Z%d, Z%d, Z%d", b, a, a) })
				step(func(_, a, _, _, d int) string { return fmt.Sprintf("VPXORD Z%d, Z%d, Z%d", a, d, d) })
				step(func(_, _, _, _, d int) string { return fmt.Sprintf("VPRORD $%d, Z%d, Z%d", rotations[0], d, d) })
				step(func(_, _, _, c, d int) string { return fmt.Sprintf("VPADDD Z%d, Z%d, Z%d", d, c, c) })
				step(func(_, _, b, c, _ int) string { return fmt.Sprintf("VPXORD Z%d, Z%d, Z%d", c, b, b) })
				step(func(_, _, b, _, _ int) string { return fmt.Sprintf("VPRORD $%d, Z%d, Z%d", rotations[1], b, b) })
			}
		}
		var next [16]int
		for i, p := range permutation {
			next[i] = schedule[p]
		}
		schedule = next
	}
	return code
}

// transposition returns the code that reads 64 bytes of each of 16 chunks, the first at (src), and stores the 16
// vectors of their equal words at (dst). It needs Z16 to Z31 only.
//
// A vector is four lanes of four words. The first two steps give, for each quarter q of the 64 bytes and each
// s < 4, the lanes q of chunks s, s+4, s+8 and s+12; the last two transpose words within lanes.
func transposition(src, dst string) (code []string) {
	add := func(format string, args ...any) { code = append(code, fmt.Sprintf(format, args...)) }
	free := []int{16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31}
	take := func() int {
		r := free[0]
		free = free[1:]
		return r
	}
	give := func(r int) { free = append(free, r) }
	at := func(chunk, off int) string { return fmt.Sprintf("%d(%s)", 1024*chunk+off, src) }
	word := func(i int) string { return fmt.Sprintf("%d(%s)", 64*i, dst) }

	var lanes [4][4]int // [q][s]
	for s := range 4 {
		for half := range 2 {
			if s == 3 && half == 1 {
				// One more than there are registers: park one where the last word will go.
				add("VMOVDQU32 Z%d, %s", lanes[3][0], word(15))
				give(lanes[3][0])
			}
			a, b := take(), take()
			add("VBROADCASTI64X4 %s, Z%d", at(s, 32*half), a)
			add("VBROADCASTI64X4 %s, Z%d", at(s+8, 32*half), b)
			add("VINSERTI64X4 $1, %s, Z%d, Z%d", at(s+4, 32*half), a, a)
			add("VINSERTI64X4 $1, %s, Z%d, Z%d", at(s+12, 32*half), b, b)
			c := take()
			add("VSHUFI32X4 $0x88, Z%d, Z%d, Z%d", b, a, c)
			add("VSHUFI32X4 $0xdd, Z%d, Z%d, Z%d", b, a, a)
			give(b)
			lanes[2*half][s], lanes[2*half+1][s] = c, a
		}
	}
	for q := range 4 {
		if q == 3 {
			lanes[3][0] = take()
			add("VMOVDQU32 %s, Z%d", word(15), lanes[3][0])
		}
		a, b, c, d, t := lanes[q][0], lanes[q][1], lanes[q][2], lanes[q][3], take()
		add("VPUNPCKLDQ Z%d, Z%d, Z%d", b, a, t)
		add("VPUNPCKHDQ Z%d, Z%d, Z%d", b, a, a)
		add("VPUNPCKLDQ Z%d, Z%d, Z%d", d, c, b)
		add("VPUNPCKHDQ Z%d, Z%d, Z%d", d, c, c)
		add("VPUNPCKLQDQ Z%d, Z%d, Z%d", b, t, d)
		add("VMOVDQU32 Z%d, %s", d, word(4*q))
		add("VPUNPCKHQDQ Z%d, Z%d, Z%d", b, t, t)
		add("VMOVDQU32 Z%d, %s", t, word(4*q+1))
		add("VPUNPCKLQDQ Z%d, Z%d, Z%d", c, a, b)
		add("VMOVDQU32 Z%d, %s", b, word(4*q+2))
		add("VPUNPCKHQDQ Z%d, Z%d, Z%d", c, a, a)
		add("VMOVDQU32 Z%d, %s", a, word(4*q+3))
		for _, r := range []int{a, b, c, d, t} {
			give(r)
		}
	}
	return code
}

// weave spreads b evenly over a, keeping the order of each.
func weave(a, b []string) (code []string) {
	done := 0
	for i, x := range a {
		for ; done*len(a) <= i*len(b) && done < len(b); done++ {
			code = append(code, b[done])
		}
		code = append(code, x)
	}
	return append(code, b[done:]...)
}

func chunks() {
	line("// func chunks16(cvs *vector, p *[groupSize]byte, counter uint64)")
	// Two sets of transposed words, the vectors of the counter, and what aligns them to 64.
	line("TEXT ·chunks16(SB), 0, $%d-24", 2*1024+128+64)
	emit("MOVQ cvs+0(FP), DI")
	emit("MOVQ p+8(FP), SI")
	emit("MOVQ counter+16(FP), AX")
	emit("LEAQ 63(SP), R8")
	emit("ANDQ $~63, R8")
	emit("LEAQ 1024(R8), R9")
	emit("LEAQ 2048(R8), R10 // counters")
	emit("LEAQ iv<>(SB), R11")
	emit("LEAQ flags<>(SB), R12")
	emit("LEAQ 128(SI), R13 // prefetched next")
	emit("XORQ CX, CX // block")
	line("")
	emit("VPBROADCASTD AX, Z0")
	emit("SHRQ $32, AX")
	emit("VPBROADCASTD AX, Z1")
	emit("VPORD lanes<>(SB), Z0, Z0")
	emit("VMOVDQU32 Z0, 0(R10)")
	emit("VMOVDQU32 Z1, 64(R10)")
	for i := range 8 {
		emit("VPBROADCASTD %d(R11), Z%d", 4*i, i)
	}
	line("")
	for _, s := range transposition("SI", "R8") {
		emit("%s", s)
	}
	line("")
	line("block:")
	// The last block is transposed twice, which costs less than a second copy of this code.
	emit("CMPQ CX, $15")
	emit("SETNE AL")
	emit("MOVBLZX AL, AX")
	emit("SHLQ $6, AX")
	emit("ADDQ AX, SI")
	for i := range 4 {
		emit("VPBROADCASTD %d(R11), Z%d", 4*i, 8+i)
	}
	emit("VMOVDQU32 0(R10), Z12")
	emit("VMOVDQU32 64(R10), Z13")
	emit("VPBROADCASTD 32(R11), Z14")
	emit("VPBROADCASTD (R12)(CX*4), Z15")
	for i := range 16 {
		emit("PREFETCHT0 %d(R13)", 1024*i)
	}
	code := weave(rounds(func(i int) string { return fmt.Sprintf("%d(R8)", 64*i) }), transposition("SI", "R9"))
	for _, s := range code {
		emit("%s", s)
	}
	feed()
	emit("XCHGQ R8, R9")
	emit("ADDQ $64, R13")
	emit("CMPQ CX, $13")
	emit("JNE same")
	emit("ADDQ $15*1024, R13 // on to the next group")
	line("same:")
	emit("INCQ CX")
	emit("CMPQ CX, $16")
	emit("JNE block")
	store()
}

// feed ends a compression: Z0 to Z7 are the chaining values.
func feed() {
	for i := range 8 {
		emit("VPXORD Z%d, Z%d, Z%d", 8+i, i, i)
	}
}

func store() {
	line("")
	for i := range 8 {
		emit("VMOVDQU32 Z%d, %d(DI)", i, 64*i)
	}
	emit("VZEROUPPER")
	emit("RET")
}

func parents() {
	line("")
	line("// func parents16(cvs, left, right *vector)")
	line("TEXT ·parents16(SB), NOSPLIT, $0-24")
	emit("MOVQ cvs+0(FP), DI")
	emit("MOVQ left+8(FP), SI")
	emit("MOVQ right+16(FP), DX")
	emit("LEAQ iv<>(SB), R11")
	emit("VMOVDQU32 even<>(SB), Z0")
	emit("VMOVDQU32 odd<>(SB), Z1")
	for i := range 8 {
		emit("VMOVDQU32 %d(SI), Z2", 64*i)
		emit("VMOVDQU32 %d(DX), Z3", 64*i)
		emit("VMOVDQA32 Z0, Z%d", 16+i)
		emit("VMOVDQA32 Z1, Z%d", 24+i)
		emit("VPERMI2D Z3, Z2, Z%d", 16+i)
		emit("VPERMI2D Z3, Z2, Z%d", 24+i)
	}
	for i := range 8 {
		emit("VPBROADCASTD %d(R11), Z%d", 4*i, i)
	}
	for i := range 4 {
		emit("VPBROADCASTD %d(R11), Z%d", 4*i, 8+i)
	}
	emit("VPXORD Z12, Z12, Z12")
	emit("VPXORD Z13, Z13, Z13")
	emit("VPBROADCASTD 32(R11), Z14")
	emit("VPBROADCASTD 36(R11), Z15")
	for _, s := range rounds(func(i int) string { return fmt.Sprintf("Z%d", 16+i) }) {
		emit("%s", s)
	}
	feed()
	store()
}

func table(name string, words ...uint32) {
	for i, w := range words {
		line("DATA %s<>+%d(SB)/4, $0x%08x", name, 4*i, w)
	}
	line("GLOBL %s<>(SB), RODATA|NOPTR, $%d", name, 4*len(words))
	line("")
}

func main() {
	line("// Code generated by go run gen/main.go. DO NOT EDIT.")
	line("")
	line("#include \"textflag.h\"")
	line("")
	// The initial chaining value, then a block's length and the flag of a parent.
	table("iv", 0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19, 64, 4)
	// Flags by block of a chunk: the first, and the last.
	table("flags", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2)
	var lanes, even, odd []uint32
	for i := range uint32(16) {
		lanes, even, odd = append(lanes, i), append(even, 2*i), append(odd, 2*i+1)
	}
	table("lanes", lanes...)
	table("even", even...)
	table("odd", odd...)
	chunks()
	parents()
	os.Stdout.WriteString(out.String())
}
