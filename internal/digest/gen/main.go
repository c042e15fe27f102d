//go:build ignore

// Command gen writes the assembly of package digest to standard output: for vectors of 64 bytes, or with the argument
// "narrow" for vectors of 32 bytes. What follows is about the first.
//
// The number of instructions bounds this code. An Intel processor does two operations on 64 bytes
// per cycle; one of them may be a rotation, the other a shuffle. A compression takes 784 operations
// for the rounds, 8 at the end and 64 to transpose the words of 16 chunks. Loads and stores use
// other ports, so words are read from memory where they are added. That leaves half the registers
// to transpose the next 64 bytes while these are compressed, and the processor always finds work
// for both units.
package main

import (
	"fmt"
	"os"
	"strings"
)

var out strings.Builder

// emit writes an instruction.
func emit(format string, args ...any) { fmt.Fprintf(&out, "\t"+format+"\n", args...) }

// line writes a line that begins at the margin.
func line(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }

// emitAll writes finished instructions.
func emitAll(code []string) {
	for _, s := range code {
		emit("%s", s)
	}
}

// permutation is the reordering of the message words between rounds (BLAKE3 paper, table 2).
var permutation = [16]int{2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8}

// schedules are the words of the message in the order in which each round takes them.
func schedules() (all [7][16]int) {
	for i := range all[0] {
		all[0][i] = i
	}
	for r := 1; r < len(all); r++ {
		for i, p := range permutation {
			all[r][i] = all[r-1][p]
		}
	}
	return all
}

// rounds returns the seven rounds (section 2.2 of the paper) over the state in Z0 to Z15. The four
// mixings of a half round do not depend on each other, so they go in step. word returns the operand
// that holds message word i.
func rounds(word func(i int) string) (code []string) {
	for _, schedule := range schedules() {
		for half, quads := range mixings {
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
	}
	return code
}

// transposition returns the code that reads 64 bytes of each of 16 chunks, those of the first chunk
// at (src), and stores 16 vectors at (dst): word i of each chunk, for i from 0 to 15. It uses only
// Z16 to Z31.
//
// A vector is four lanes of four words. The first half collects, for each quarter q of the 64 bytes
// and each s < 4, the lanes q of chunks s, s+4, s+8 and s+12. The second half transposes words
// within lanes.
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

// chunks writes chunks16.
func chunks() {
	const (
		ahead    = 3               // prefetching runs this many times 64 bytes ahead
		counters = 2 * 1024        // two sets of 16 transposed words, in turn read and written; then the
		size     = counters + 2*64 // low and the high halves of the chunk counters
		frame    = size + 63       // aligned to 64
	)
	line("// func chunks16(cvs *vector, p *[GroupSize]byte, counter uint64)")
	line("TEXT ·chunks16(SB), 0, $%d-24", (frame+7)&^7)
	emit("MOVQ cvs+0(FP), DI")
	emit("MOVQ p+8(FP), SI")
	emit("MOVQ counter+16(FP), AX")
	emit("LEAQ 63(SP), R8")
	emit("ANDQ $~63, R8 // words of this compression")
	emit("LEAQ 1024(R8), R9 // words of the next one")
	emit("LEAQ %d(R8), R10", counters)
	emit("LEAQ iv<>(SB), R11")
	emit("LEAQ flags<>(SB), R12")
	emit("LEAQ %d(SI), R13 // to prefetch", 64*ahead)
	emit("XORQ CX, CX // compression of 16")
	line("")
	// The counter is a multiple of 16: no carry.
	emit("VPBROADCASTD AX, Z0")
	emit("SHRQ $32, AX")
	emit("VPBROADCASTD AX, Z1")
	emit("VPORD lanes<>(SB), Z0, Z0")
	emit("VMOVDQU32 Z0, 0(R10)")
	emit("VMOVDQU32 Z1, 64(R10)")
	initial(0, 8)
	line("")
	emitAll(transposition("SI", "R8"))
	line("")
	line("compress:")
	// At the end this transposes the same bytes once more. That is cheaper than a second copy of
	// this loop without transposition.
	emit("CMPQ CX, $15")
	emit("SBBQ AX, AX")
	emit("ANDQ $64, AX")
	emit("ADDQ AX, SI")
	initial(8, 4)
	emit("VMOVDQU32 0(R10), Z12")
	emit("VMOVDQU32 64(R10), Z13")
	emit("VPBROADCASTD 32(R11), Z14")
	emit("VPBROADCASTD (R12)(CX*4), Z15")
	var prefetch []string
	for i := range 16 {
		prefetch = append(prefetch, fmt.Sprintf("PREFETCHT0 %d(R13)", 1024*i))
	}
	word := func(i int) string { return fmt.Sprintf("%d(R8)", 64*i) }
	emitAll(weave(rounds(word), weave(transposition("SI", "R9"), prefetch)))
	finish()
	emit("XCHGQ R8, R9")
	emit("ADDQ $64, R13")
	emit("CMPQ CX, $%d", 15-ahead)
	emit("JNE same")
	emit("ADDQ $15*1024, R13 // on to the next group")
	line("same:")
	emit("INCQ CX")
	emit("CMPQ CX, $16")
	emit("JNE compress")
	store()
}

// ragged writes ragged16. Chunks of different lengths go in step: one that has ended keeps its chaining
// value.
func ragged() {
	const (
		left   = 2 * 1024  // two sets of 16 transposed words, in turn read and written; then the bytes left
		values = left + 64 // of each chunk, and the chaining values before a compression
		size   = values + 512
		frame  = size + 63 // aligned to 64
	)
	line("")
	line("// func ragged16(cvs *vector, p *[GroupSize]byte, about *lanes, blocks uint64)")
	line("TEXT ·ragged16(SB), 0, $%d-32", (frame+7)&^7)
	emit("MOVQ cvs+0(FP), DI")
	emit("MOVQ p+8(FP), SI")
	emit("MOVQ about+16(FP), DX // lengths, counters and flags of the end")
	emit("MOVQ blocks+24(FP), BX")
	emit("LEAQ 63(SP), R8")
	emit("ANDQ $~63, R8 // words of this compression")
	emit("LEAQ 1024(R8), R9 // words of the next one")
	emit("LEAQ %d(R8), R10", left)
	emit("LEAQ iv<>(SB), R11")
	emit("LEAQ flags<>(SB), R12")
	emit("XORQ CX, CX // compression")
	emit("DECQ BX // the last one")
	line("")
	emit("VMOVDQU32 (DX), Z0")
	emit("VMOVDQU32 Z0, (R10)")
	initial(0, 8)
	emit("KXNORW K2, K2, K2 // an empty chunk has one compression, too")
	line("")
	emitAll(transposition("SI", "R8"))
	line("")
	line("step:")
	emit("CMPQ CX, BX")
	emit("SBBQ AX, AX")
	emit("ANDQ $64, AX")
	emit("ADDQ AX, SI")
	for i := range 8 {
		emit("VMOVDQU32 Z%d, %d(R10)", i, values-left+64*i)
	}
	emit("VMOVDQU32 (R10), Z12")
	emit("VPMINUD.BCST 32(R11), Z12, Z14")
	emit("VPCMPUD.BCST $2, 32(R11), Z12, K1 // at most 64 bytes are left: the end")
	emit("VPSUBD Z14, Z12, Z12")
	emit("VMOVDQU32 Z12, (R10)")
	emit("XORQ AX, AX")
	emit("CMPQ CX, $1")
	emit("ADCQ $0, AX // the start")
	emit("VPBROADCASTD AX, Z15")
	emit("VPORD 128(DX), Z15, K1, Z15")
	initial(8, 4)
	emit("VMOVDQU32 64(DX), Z12")
	emit("VPXORD Z13, Z13, Z13")
	word := func(i int) string { return fmt.Sprintf("%d(R8)", 64*i) }
	emitAll(weave(rounds(word), transposition("SI", "R9")))
	finish()
	emit("KNOTW K2, K3")
	for i := range 8 {
		emit("VMOVDQU32 %d(R10), K3, Z%d", values-left+64*i, i)
	}
	emit("VMOVDQU32 (R10), Z12")
	emit("VPTESTMD Z12, Z12, K2 // whose next 64 bytes follow")
	emit("XCHGQ R8, R9")
	emit("INCQ CX")
	emit("CMPQ CX, BX")
	emit("JLS step")
	store()
}

// parents writes parents16.
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
	initial(0, 8)
	initial(8, 4)
	emit("VPXORD Z12, Z12, Z12")
	emit("VPXORD Z13, Z13, Z13")
	emit("VPBROADCASTD 32(R11), Z14")
	emit("VPBROADCASTD 36(R11), Z15")
	emitAll(rounds(func(i int) string { return fmt.Sprintf("Z%d", 16+i) }))
	finish()
	store()
}

// initial sets n state vectors, from the given one on, to the first n words of the initial chaining
// value.
func initial(from, n int) {
	for i := range n {
		emit("VPBROADCASTD %d(R11), Z%d", 4*i, from+i)
	}
}

// finish ends a compression: Z0 to Z7 become its chaining values.
func finish() {
	for i := range 8 {
		emit("VPXORD Z%d, Z%d, Z%d", 8+i, i, i)
	}
}

// store returns Z0 to Z7 as the result.
func store() {
	line("")
	for i := range 8 {
		emit("VMOVDQU32 Z%d, %d(DI)", i, 64*i)
	}
	emit("VZEROUPPER")
	emit("RET")
}

// table writes read-only words.
func table(name string, words ...uint32) {
	for i, w := range words {
		line("DATA %s<>+%d(SB)/4, $0x%08x", name, 4*i, w)
	}
	line("GLOBL %s<>(SB), RODATA|NOPTR, $%d", name, 4*len(words))
	line("")
}

func main() {
	line("// Code generated by gen. DO NOT EDIT.")
	line("")
	line("#include \"textflag.h\"")
	line("")
	// The initial chaining value; the bytes of a compression; the flag of a parent.
	table("iv", 0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19, 64, 4)
	// The flags of a chunk's compressions: start, and end.
	table("flags", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2)
	var lanes, even, odd []uint32
	for i := range uint32(16) {
		lanes, even, odd = append(lanes, i), append(even, 2*i), append(odd, 2*i+1)
	}
	table("lanes", lanes...)
	if len(os.Args) > 1 {
		narrow()
	} else {
		table("even", even...)
		table("odd", odd...)
		chunks()
		ragged()
		parents()
	}
	os.Stdout.WriteString(out.String())
}
