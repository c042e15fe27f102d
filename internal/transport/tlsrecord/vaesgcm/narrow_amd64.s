#include "go_asm.h"
#include "textflag.h"

// The code for vectors of 32 bytes, and what is done block by block with vectors of any size. It works on batches of 16
// blocks in 8 vectors of two; gcm.go does what is less. Hashing and encryption do not depend on each other and are woven
// together, because one of them alone keeps only some of a processor's units busy. A batch is hashed with 16 powers of H,
// and reduced once.
//
// Y0 to Y7 are the states of AES, Y10 to Y12 a sum of products in three overlapping parts, from bit 0, 64 and 128 on.
// Y14 holds the next two counters as little-endian numbers, and digest the hash so far, in its first lane.

#define key AX
#define left CX
#define from SI
#define to DI
#define roundKey Y8
#define data Y9
#define low Y10
#define middle Y11
#define high Y12
#define part Y13
#define next Y14
#define digest Y15

DATA reverse32<>+0(SB)/8, $0x08090a0b0c0d0e0f // the bytes of each lane in reverse
DATA reverse32<>+8(SB)/8, $0x0001020304050607
DATA reverse32<>+16(SB)/8, $0x08090a0b0c0d0e0f
DATA reverse32<>+24(SB)/8, $0x0001020304050607
GLOBL reverse32<>(SB), RODATA|NOPTR, $32

DATA second<>+0(SB)/8, $0
DATA second<>+8(SB)/8, $0
DATA second<>+16(SB)/8, $1
DATA second<>+24(SB)/8, $0
GLOBL second<>(SB), RODATA|NOPTR, $32

DATA two<>+0(SB)/8, $2
DATA two<>+8(SB)/8, $0
DATA two<>+16(SB)/8, $2
DATA two<>+24(SB)/8, $0
GLOBL two<>(SB), RODATA|NOPTR, $32

// The terms x^127, x^126 and x^121 of the modulus, without the 64 lowest bits.
DATA modulus32<>+0(SB)/8, $0xc200000000000000
DATA modulus32<>+8(SB)/8, $0
DATA modulus32<>+16(SB)/8, $0xc200000000000000
DATA modulus32<>+24(SB)/8, $0
GLOBL modulus32<>(SB), RODATA|NOPTR, $32

// The key has H^64 first; a batch begins with H^16.
#define powers (key_batch+48*16)

#define STATE(y) \
	VPSHUFB reverse32<>(SB), next, y; \
	VPADDD  two<>(SB), next, next; \
	VPXOR   roundKey, y, y

// STATES makes Y0 to Y7 the next 16 counters plus the first round key.
#define STATES \
	VBROADCASTI128 key_first(key), roundKey; \
	STATE(Y0); STATE(Y1); STATE(Y2); STATE(Y3); \
	STATE(Y4); STATE(Y5); STATE(Y6); STATE(Y7)

#define ROUND(at) \
	VBROADCASTI128 at(key), roundKey; \
	VAESENC roundKey, Y0, Y0; \
	VAESENC roundKey, Y1, Y1; \
	VAESENC roundKey, Y2, Y2; \
	VAESENC roundKey, Y3, Y3; \
	VAESENC roundKey, Y4, Y4; \
	VAESENC roundKey, Y5, Y5; \
	VAESENC roundKey, Y6, Y6; \
	VAESENC roundKey, Y7, Y7

// EXTRA is the rounds that only AES-256 has.
#define EXTRA \
	ROUND(key_extra+0); ROUND(key_extra+16); ROUND(key_extra+32); ROUND(key_extra+48)

#define LAST(at, y) \
	VPXOR at(from), roundKey, data; \
	VAESENCLAST data, y, y; \
	VMOVDQU y, at(to)

// FINISH does the last round and adds the data.
#define FINISH \
	VBROADCASTI128 key_last(key), roundKey; \
	LAST(0, Y0); LAST(32, Y1); LAST(64, Y2); LAST(96, Y3); \
	LAST(128, Y4); LAST(160, Y5); LAST(192, Y6); LAST(224, Y7)

// MULTIPLY makes the sum the products of data and what is at power.
#define MULTIPLY(power) \
	VPCLMULQDQ $0x00, power, data, low; \
	VPCLMULQDQ $0x01, power, data, middle; \
	VPCLMULQDQ $0x10, power, data, part; \
	VPCLMULQDQ $0x11, power, data, high; \
	VPXOR part, middle, middle

// HASH1 begins the sum of a batch at p with its second vector.
#define HASH1(at, p) \
	VMOVDQU at(p), data; \
	VPSHUFB reverse32<>(SB), data, data; \
	MULTIPLY(powers+32(key))

// HASH adds another vector.
#define HASH(at, p, power) \
	VMOVDQU at(p), data; \
	VPSHUFB reverse32<>(SB), data, data; \
	PRODUCTS(power)

// HASH0 adds the first vector and the hash so far, last of all, since that is known late.
#define HASH0(at, p) \
	VMOVDQU at(p), data; \
	VPSHUFB reverse32<>(SB), data, data; \
	VPXOR digest, data, data; \
	PRODUCTS(powers)

// PRODUCTS adds the products of data and a power.
#define PRODUCTS(power) \
	VPCLMULQDQ $0x00, power(key), data, part; \
	VPXOR part, low, low; \
	VPCLMULQDQ $0x01, power(key), data, part; \
	VPXOR part, middle, middle; \
	VPCLMULQDQ $0x10, power(key), data, part; \
	VPXOR part, middle, middle; \
	VPCLMULQDQ $0x11, power(key), data, part; \
	VPXOR part, high, high

// REDUCE makes digest the sum, lane by lane, as the field's element: gen/main.go has the reason.
#define REDUCE \
	VPCLMULQDQ $0x00, modulus32<>(SB), low, part; \
	VPSHUFD $0x4e, low, low; \
	VPXOR part, low, low; \
	VPXOR low, middle, middle; \
	VPCLMULQDQ $0x00, modulus32<>(SB), middle, part; \
	VPSHUFD $0x4e, middle, middle; \
	VPXOR part, high, high; \
	VPXOR middle, high, digest

// JOIN adds the second lane of digest to the first, and clears it.
#define JOIN \
	VEXTRACTI128 $1, digest, X9; \
	VPXOR X9, X15, X15

// WOVEN is the rounds of all keys, and the batch at p is hashed meanwhile.
#define WOVEN(at, p) \
	ROUND(key_common+0); \
	HASH1(at+32, p); \
	ROUND(key_common+16); \
	HASH(at+64, p, powers+64); \
	ROUND(key_common+32); \
	HASH(at+96, p, powers+96); \
	ROUND(key_common+48); \
	HASH(at+128, p, powers+128); \
	ROUND(key_common+64); \
	HASH(at+160, p, powers+160); \
	ROUND(key_common+80); \
	HASH(at+192, p, powers+192); \
	ROUND(key_common+96); \
	HASH(at+224, p, powers+224); \
	ROUND(key_common+112); \
	HASH0(at, p); \
	ROUND(key_common+128)

#define BEGIN \
	MOVQ k+0(FP), key; \
	MOVQ counter+8(FP), BX; \
	MOVQ hash+16(FP), DX; \
	MOVQ dst+24(FP), to; \
	MOVQ src+32(FP), from; \
	MOVQ batches+40(FP), left; \
	VBROADCASTI128 (BX), next; \
	VPSHUFB reverse32<>(SB), next, next; \
	VPADDD second<>(SB), next, next; \
	VMOVDQU (DX), X15

#define END \
	VMOVDQU X15, (DX); \
	VZEROUPPER; \
	RET

// func sealBatches(k *key, counter *block, hash *element, dst, src *byte, batches int)
TEXT ·sealBatches(SB), NOSPLIT, $0-48
	BEGIN
	STATES
	CMPQ key_large(key), $0
	JEQ  first
	EXTRA

first:
	ROUND(key_common+0)
	ROUND(key_common+16)
	ROUND(key_common+32)
	ROUND(key_common+48)
	ROUND(key_common+64)
	ROUND(key_common+80)
	ROUND(key_common+96)
	ROUND(key_common+112)
	ROUND(key_common+128)
	FINISH
	DECQ left
	JEQ  drain

batch:
	ADDQ $256, from
	ADDQ $256, to
	STATES
	CMPQ key_large(key), $0
	JEQ  woven
	EXTRA

woven:
	WOVEN(-256, to)
	FINISH
	REDUCE
	JOIN
	DECQ left
	JNE  batch

drain:
	HASH1(32, to)
	HASH(64, to, powers+64)
	HASH(96, to, powers+96)
	HASH(128, to, powers+128)
	HASH(160, to, powers+160)
	HASH(192, to, powers+192)
	HASH(224, to, powers+224)
	HASH0(0, to)
	REDUCE
	JOIN
	END

// func openBatches(k *key, counter *block, hash *element, dst, src *byte, batches int)
TEXT ·openBatches(SB), NOSPLIT, $0-48
	BEGIN

batch:
	STATES
	CMPQ key_large(key), $0
	JEQ  woven
	EXTRA

woven:
	WOVEN(0, from)
	FINISH
	REDUCE
	JOIN
	ADDQ $256, from
	ADDQ $256, to
	DECQ left
	JNE  batch
	END

#define BLOCK(at) VAESENC at(key), X0, X0

// func encrypt(k *key, dst, src *block)
TEXT ·encrypt(SB), NOSPLIT, $0-24
	MOVQ k+0(FP), key
	MOVQ dst+8(FP), to
	MOVQ src+16(FP), from
	VMOVDQU (from), X0
	VPXOR key_first(key), X0, X0
	CMPQ key_large(key), $0
	JEQ  common
	BLOCK(key_extra+0)
	BLOCK(key_extra+16)
	BLOCK(key_extra+32)
	BLOCK(key_extra+48)

common:
	BLOCK(key_common+0)
	BLOCK(key_common+16)
	BLOCK(key_common+32)
	BLOCK(key_common+48)
	BLOCK(key_common+64)
	BLOCK(key_common+80)
	BLOCK(key_common+96)
	BLOCK(key_common+112)
	BLOCK(key_common+128)
	VAESENCLAST key_last(key), X0, X0
	VMOVDQU X0, (to)
	RET

// func multiply(product, a, b *element)
TEXT ·multiply(SB), NOSPLIT, $0-24
	MOVQ product+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), DX
	VMOVDQU (SI), X9
	VMOVDQU (DX), X8
	MULTIPLY(Y8)
	REDUCE
	VMOVDQU X15, (DI)
	VZEROUPPER
	RET

// func vectorAES() bool
TEXT ·vectorAES(SB), NOSPLIT, $0-1
	MOVL $7, AX
	MOVL $0, CX
	CPUID
	ANDL $0x600, CX // bits 9 and 10
	CMPL CX, $0x600
	SETEQ ret+0(FP)
	RET
