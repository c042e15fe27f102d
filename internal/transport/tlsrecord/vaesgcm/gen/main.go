//go:build ignore

// Command gen writes the assembly of package vaesgcm to standard output.
//
// What bounds this code is the number of instructions: an Intel processor does two operations on 64 bytes a cycle, and
// only one of its two units has AES, only the other multiplies and shuffles. AES-128 is 10 operations on 64 bytes and
// GHASH 4 multiplications, a shuffle and two additions, so the rest is kept small: batches begin where the counter
// is a multiple of 64, which makes a counter block from another with one addition that never carries, and a sum is
// reduced once in 1 KiB. Hashing and encryption do not depend on each other and are woven together.
//
// So two blocks stand before every message: that of counter 0, which nothing needs, and that of counter 1, which masks
// the tag. The additional data is hashed in the place of the second. Masks could keep reads and writes from what
// stands there instead, but where that is a page that cannot be read or written at once, they cost some 200 ns.
package main

import (
	"fmt"
	"os"
	"strings"
)

var out strings.Builder

// emit writes an instruction.
func emit(format string, args ...any) { fmt.Fprintf(&out, "\t"+format+"\n", args...) }

// line writes what starts at the margin.
func line(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }

// emitAll writes finished instructions.
func emitAll(code []string) {
	for _, s := range code {
		emit("%s", s)
	}
}

// width is how many vectors a batch has; their AES states are in Z0 to Z15.
const width = 16

const (
	roundKey = "Z16"
	low      = "Z17" // a sum of products in three overlapping parts: from bit 0, 64 and 128 on
	middle   = "Z18"
	high     = "Z19"
	low0     = "Z20" // the products of an odd vector
	high0    = "Z21"
	low1     = "Z22" // the products of an even vector
	high1    = "Z23"
	middle0  = "Z24"
	middle1  = "Z25"
	data     = "Z26"
	power    = "Z27"
	reverse  = "Z28" // reverses the bytes of each lane
	modulus  = "Z29"
	counter  = "Z30" // nonces, and the next counters as little-endian numbers
	hash     = "Z31" // GHASH so far, to be added to the next vector

	key     = "AX"
	msg     = "BX"
	rest    = "CX" // bytes behind the batches
	batches = "DX" // to come
	src     = "SI"
	dst     = "DI"
	powers  = "R8"  // of the next data
	skip    = "R9"  // bytes of the next vector that stand before the message: 32 in its first one, then 0
	bytes   = "R10" // a bit for each byte of a vector that belongs to the message
	scratch = "R11"
	within  = "K1" // a bit for each 64-bit word in the first half of the next batch that belongs to the message
	some    = "K2" // as bytes
	late    = "K3" // as bytes, in the second half of the message's first vector
)

// start makes Z0 to Z15 the states of the next 64 counters with all but the nine rounds of every key and the last
// one. label is one of the function's own.
func start(label string) {
	emit("VPSHUFB swap<>(SB), %s, %s", counter, data)
	emit("VPADDD batch<>(SB), %s, %s", counter, counter)
	emit("VBROADCASTI32X4 key_first(%s), %s", key, roundKey)
	emit("VPXORD %s, %s, Z0", roundKey, data)
	for bit := range 4 {
		for i := range 1 << bit {
			emit("VPXORD bits<>+%d(SB), Z%d, Z%d", 64*bit, i, 1<<bit+i)
		}
	}
	emit("CMPQ key_large(%s), $0", key)
	emit("JEQ %s", label)
	emitAll(rounds("key_extra", 4, width))
	line("%s:", label)
}

// rounds returns n rounds of the first states, with keys from the given field on.
func rounds(field string, n, states int) (code []string) {
	for r := range n {
		code = append(code, fmt.Sprintf("VBROADCASTI32X4 %s+%d(%s), %s", field, 16*r, key, roundKey))
		for i := range states {
			code = append(code, fmt.Sprintf("VAESENC %s, Z%d, Z%d", roundKey, i, i))
		}
	}
	return code
}

// half returns the name of a vector's first 32 bytes.
func half(z string) string { return "Y" + z[1:] }

// loadFirst returns the code that reads the first vector of a batch, with zeros for what stands before the message.
func loadFirst(off int, p, to string) []string {
	return []string{
		fmt.Sprintf("VMOVDQU64.Z %d(%s)(%s*1), %s, %s", off, p, skip, within, half(to)),
		fmt.Sprintf("VINSERTI64X4 $1, %d(%s), %s, %s", off+32, p, to, to),
	}
}

// passStart goes on from the first batch.
func passStart() {
	emit("XORQ %s, %s", skip, skip)
	emit("KXNORW %s, %s, %s", within, within, within)
}

// finish does the last round of the batch and adds the data. first reports whether the batch may be a message's first
// one; then Z0 is left to be stored.
func finish(first bool) {
	emit("VBROADCASTI32X4 key_last(%s), %s", key, roundKey)
	temporary := []string{low0, high0, low1, high1, middle0, middle1, data, power}
	for i := range width {
		t := temporary[i%len(temporary)]
		if i == 0 && first {
			emitAll(loadFirst(0, src, t))
			emit("VPXORQ %s, %s, %s", t, roundKey, t)
		} else {
			emit("VPXORQ %d(%s), %s, %s", 64*i, src, roundKey, t)
		}
		emit("VAESENCLAST %s, Z%d, Z%d", t, i, i)
		if i > 0 || !first {
			emit("VMOVDQU64 Z%d, %d(%s)", i, 64*i, dst)
		}
	}
}

// keepMask keeps what masks the tag: the key stream of the second block of a message's first vector, which is Z0.
func keepMask() {
	emit("VEXTRACTI32X4 $1, Y0, X26")
	emit("VMOVDQU64 X26, message_tag(%s)", msg)
}

// multiply returns the code for the products of data and power, four parts of 128 bits in each lane.
func multiply(low, high, middle, middle1 string) (code []string) {
	for _, p := range []struct {
		halves int
		to     string
	}{{0x00, low}, {0x01, middle}, {0x10, middle1}, {0x11, high}} {
		code = append(code, fmt.Sprintf("VPCLMULQDQ $0x%02x, %s, %s, %s", p.halves, power, data, p.to))
	}
	return code
}

// add2 returns the instruction for a += b.
func add2(b, a string) string { return fmt.Sprintf("VPXORQ %s, %s, %s", b, a, a) }

// add3 returns the instruction for a += b + c.
func add3(c, b, a string) string { return fmt.Sprintf("VPTERNLOGQ $0x96, %s, %s, %s", c, b, a) }

// digest returns the code that hashes the batch at an offset of p with 16 vectors of powers.
func digest(off int, p string) (code []string) {
	for i := range width {
		if i == 0 {
			code = append(code, loadFirst(off, p, data)...)
		} else {
			code = append(code, fmt.Sprintf("VMOVDQU64 %d(%s), %s", off+64*i, p, data))
		}
		code = append(code,
			fmt.Sprintf("VMOVDQU64 %d(%s), %s", 64*i, powers, power),
			fmt.Sprintf("VPSHUFB %s, %s, %s", reverse, data, data))
		switch {
		case i == 0:
			code = append(code, add2(hash, data))
			code = append(code, multiply(low, high, middle, middle1)...)
			code = append(code, add2(middle1, middle))
		case i%2 == 1:
			code = append(code, multiply(low0, high0, middle0, middle1)...)
			code = append(code, add3(middle1, middle0, middle))
			if i == width-1 {
				code = append(code, add2(low0, low), add2(high0, high))
			}
		default:
			code = append(code, multiply(low1, high1, middle0, middle1)...)
			code = append(code, add3(middle1, middle0, middle), add3(low1, low0, low), add3(high1, high0, high))
		}
	}
	return append(code, reduce()...)
}

// reduce returns the code that makes hash the sum, lane by lane, as the field's element.
//
// Bits are in reverse, so it is a division by x^128 modulo x^128 + x^127 + x^126 + x^121 + 1, in two steps of 64
// bits. A step adds that multiple of the modulus which clears the 64 lowest bits: the modulus's last term does so by
// its definition, the first one moves them up by 128, which beside the division is a swap of halves, and the others
// are a multiplication.
func reduce() []string {
	return []string{
		fmt.Sprintf("VPCLMULQDQ $0x00, %s, %s, %s", modulus, low, low0),
		fmt.Sprintf("VPSHUFD $0x4e, %s, %s", low, low),
		add3(low0, low, middle),
		fmt.Sprintf("VPCLMULQDQ $0x00, %s, %s, %s", modulus, middle, low0),
		fmt.Sprintf("VPSHUFD $0x4e, %s, %s", middle, hash),
		add3(low0, high, hash),
	}
}

// join makes the first lane of hash the sum of its lanes, the others zero.
func join() {
	emit("VEXTRACTI64X4 $1, %s, Y26", hash)
	emit("VPXORQ Y26, Y31, Y31")
	emit("VEXTRACTI32X4 $1, Y31, X26")
	emit("VPXORQ X26, X31, X31")
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

// advance goes on by n vectors.
func advance(n int) {
	emit("ADDQ $%d, %s", 64*n, src)
	emit("ADDQ $%d, %s", 64*n, dst)
}

// begin writes the beginning of seal or open.
func begin(name string) {
	line("")
	line("// func %s(k *key, m *message, dst, src *byte, n int)", name)
	line("TEXT ·%s(SB), NOSPLIT, $0-40", name)
	emit("MOVQ k+0(FP), %s", key)
	emit("MOVQ m+8(FP), %s", msg)
	emit("MOVQ dst+16(FP), %s", dst)
	emit("MOVQ src+24(FP), %s", src)
	emit("MOVQ n+32(FP), %s", rest)
	line("")
	emit("VMOVDQU64 reverse<>(SB), %s", reverse)
	emit("VPBROADCASTQ modulus<>(SB), %s", modulus)
	emit("VBROADCASTI32X4 message_counter(%s), %s", msg, counter)
	emit("VPSHUFB swap<>(SB), %s, %s", counter, counter)
	emit("VPADDD lanes<>(SB), %s, %s", counter, counter)
	emit("MOVL $0x0c, %s", scratch)
	emit("KMOVW %s, %s", scratch, within)
	emit("VBROADCASTI64X2.Z message_head(%s), %s, %s", msg, within, hash)
	line("")
	emit("MOVQ $32, %s", skip)
	emit("KXORW %s, %s, %s", within, within, within)
	emit("SUBQ %s, %s", skip, src)
	emit("SUBQ %s, %s", skip, dst)
	emit("ADDQ %s, %s", skip, rest)
	emit("MOVQ %s, %s", rest, batches)
	emit("ANDQ $%d, %s", 64*width-1, rest)
	emit("SHRQ $10, %s", batches)
	emit("JEQ tail")
	emit("LEAQ key_each(%s), %s", key, powers)
	line("")
}

// seal writes seal. It hashes a batch while it encrypts the next one.
func seal() {
	begin("seal")
	start("head")
	emitAll(rounds("key_common", 9, width))
	finish(true)
	emit("VEXTRACTI64X4 $1, Z0, 32(%s)", dst)
	keepMask()
	emit("DECQ %s", batches)
	emit("JEQ drain")
	line("")
	line("batch:")
	advance(width)
	start("stitch")
	emitAll(weave(rounds("key_common", 9, width), digest(-64*width, dst)))
	finish(false)
	passStart()
	emit("DECQ %s", batches)
	emit("JNE batch")
	line("")
	line("drain:")
	advance(width)
	emit("LEAQ key_batch(%s), %s", key, powers)
	emitAll(digest(-64*width, dst))
	passStart()
	join()
	end(true)
}

// open writes open.
func open() {
	begin("open")
	emit("LEAQ key_batch(%s), %s", key, scratch)
	line("batch:")
	emit("CMPQ %s, $1", batches)
	emit("CMOVQEQ %s, %s", scratch, powers)
	start("stitch")
	emitAll(weave(rounds("key_common", 9, width), digest(0, src)))
	finish(true)
	emit("TESTQ %s, %s", skip, skip)
	emit("JEQ inside")
	emit("VEXTRACTI64X4 $1, Z0, 32(%s)", dst)
	keepMask()
	passStart()
	emit("JMP next")
	line("inside:")
	emit("VMOVDQU64 Z0, (%s)", dst)
	line("next:")
	advance(width)
	emit("DECQ %s", batches)
	emit("JNE batch")
	join()
	end(false)
}

// end writes the end of seal or open: what is less than a batch, vector by vector, then the lengths and the tag.
func end(sealing bool) {
	line("")
	line("tail:")
	for _, r := range []string{low, middle, high} {
		emit("VPXORQ %s, %s, %s", r, r, r)
	}
	// The last block of data gets the second power, as the lengths are behind it.
	emit("LEAQ 15(%s), %s", rest, scratch)
	emit("ANDQ $~15, %s", scratch)
	emit("LEAQ key_one(%s), %s", key, powers)
	emit("SUBQ %s, %s", scratch, powers)
	emit("TESTQ %s, %s", rest, rest)
	emit("JEQ lengths")
	line("")
	line("vector:")
	emit("MOVQ $-1, %s", bytes)
	emit("CMPQ %s, $64", rest)
	emit("JCC full")
	emit("BZHIQ %s, %s, %s", rest, bytes, bytes)
	line("full:")
	emit("TESTQ %s, %s", skip, skip)
	emit("JEQ load")
	emit("SHRQ $32, %s", bytes)
	emit("KMOVQ %s, %s", bytes, late)
	emit("SHLQ $32, %s", bytes)
	emit("KMOVQ %s, %s", bytes, some)
	emit("VMOVDQU8.Z 32(%s), %s, %s", src, late, half(data))
	emit("VSHUFI64X2 $0x4e, %s, %s, %s", data, data, data)
	emit("JMP loaded")
	line("load:")
	emit("KMOVQ %s, %s", bytes, some)
	emit("VMOVDQU8.Z (%s), %s, %s", src, some, data)
	line("loaded:")
	emit("VPSHUFB swap<>(SB), %s, Z0", counter)
	emit("VPADDD vector<>(SB), %s, %s", counter, counter)
	emit("VBROADCASTI32X4 key_first(%s), %s", key, roundKey)
	emit("VPXORD %s, Z0, Z0", roundKey)
	emit("CMPQ key_large(%s), $0", key)
	emit("JEQ short")
	emitAll(rounds("key_extra", 4, 1))
	line("short:")
	emitAll(rounds("key_common", 9, 1))
	emit("VBROADCASTI32X4 key_last(%s), %s", key, roundKey)
	emit("VPXORQ %s, %s, %s", data, roundKey, roundKey)
	emit("VAESENCLAST %s, Z0, Z0", roundKey)
	if sealing {
		emit("VMOVDQU8.Z Z0, %s, %s", some, data)
	}
	emit("VPSHUFB %s, %s, %s", reverse, data, data)
	emit("%s", add2(hash, data))
	emit("%s", add2(hash, hash))
	emit("VMOVDQU64 (%s), %s", powers, power)
	products := append(multiply(low0, high0, middle0, middle1),
		add2(low0, low), add3(middle0, middle1, middle), add2(high0, high))
	emitAll(products)
	emit("TESTQ %s, %s", skip, skip)
	emit("JEQ store")
	keepMask()
	emit("XORQ %s, %s", skip, skip)
	emit("VEXTRACTI64X4 $1, Z0, %s", half(power))
	emit("VMOVDQU8 %s, %s, 32(%s)", half(power), late, dst)
	emit("JMP stored")
	line("store:")
	emit("VMOVDQU8 Z0, %s, (%s)", some, dst)
	line("stored:")
	advance(1)
	emit("ADDQ $64, %s", powers)
	emit("SUBQ $64, %s", rest)
	emit("JHI vector")
	line("")
	line("lengths:")
	emit("VMOVDQU64 message_lengths(%s), X26", msg)
	emit("%s", add2(hash, data))
	emit("VMOVDQU64 key_one(%s), X27", key)
	emitAll(products)
	emitAll(reduce())
	join()
	emit("VPSHUFB X28, X31, X31")
	emit("VPXORQ message_tag(%s), X31, X31", msg)
	emit("VMOVDQU64 X31, message_tag(%s)", msg)
	emit("VZEROUPPER")
	emit("RET")
}

// helpers writes what New needs beside multiply.
func helpers() {
	line("")
	line("// func subWord(w uint32) uint32")
	line("TEXT ·subWord(SB), NOSPLIT, $0-12")
	emit("MOVL w+0(FP), AX")
	emit("MOVD AX, X0")
	emit("PSHUFD $0, X0, X0")
	emit("AESKEYGENASSIST $0, X0, X0")
	emit("MOVD X0, AX")
	emit("MOVL AX, ret+8(FP)")
	emit("RET")
}

// table writes a vector whose words are f(lane, word).
func table(name string, rows int, f func(row, lane, word int) uint32) {
	for row := range rows {
		for i := range 16 {
			line("DATA %s<>+%d(SB)/4, $0x%08x", name, 64*row+4*i, f(row, i/4, i%4))
		}
	}
	line("GLOBL %s<>(SB), RODATA|NOPTR, $%d", name, 64*rows)
	line("")
}

// counters writes a vector of numbers to be added to counters.
func counters(name string, rows int, f func(row, lane int) uint32) {
	table(name, rows, func(row, lane, word int) uint32 {
		if word != 3 {
			return 0
		}
		return f(row, lane)
	})
}

func main() {
	line("// Code generated by gen/main.go. DO NOT EDIT.")
	line("")
	line("#include \"go_asm.h\"")
	line("#include \"textflag.h\"")
	line("")
	// The shuffles of a lane: all bytes in reverse, and those of the counter.
	table("reverse", 1, func(_, _, word int) uint32 { return 0x0c0d0e0f - 0x04040404*uint32(word) })
	table("swap", 1, func(_, _, word int) uint32 {
		return []uint32{0x03020100, 0x07060504, 0x0b0a0908, 0x0c0d0e0f}[word]
	})
	counters("lanes", 1, func(_, lane int) uint32 { return uint32(lane) })
	counters("vector", 1, func(_, _ int) uint32 { return 4 })
	counters("batch", 1, func(_, _ int) uint32 { return 4 * width })
	// As swapped: 4, 8, 16 and 32.
	counters("bits", 4, func(row, _ int) uint32 { return 4 << row << 24 })
	// The terms x^127, x^126 and x^121 of the modulus, without the 64 lowest bits.
	line("DATA modulus<>(SB)/8, $0xc200000000000000")
	line("GLOBL modulus<>(SB), RODATA|NOPTR, $8")
	seal()
	open()
	helpers()
	os.Stdout.WriteString(out.String())
}
