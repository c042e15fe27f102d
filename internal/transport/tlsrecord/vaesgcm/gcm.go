// Package vaesgcm is AES-GCM at the full speed of a core. On processors that have AES and
// carry-less multiplication on vectors of 64 or 32 bytes it uses code of its own, made for records of
// about 16 KiB. Elsewhere, and where FIPS 140 binds the program, it uses crypto/cipher.
//
// Sections refer to NIST SP 800-38D unless they name FIPS 197. The arithmetic follows Intel's white
// paper "Carry-Less Multiplication Instruction and its Usage for Computing the GCM Mode".
package vaesgcm

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/fips140"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"
	"unsafe"
)

const (
	blockSize = aes.BlockSize
	nonceSize = 12
	tagSize   = 16

	// maxPlain is the longest plaintext in bytes (section 5.2.1.1). The counter has 32 bits, and
	// its values 0 and 1 are not used for data.
	maxPlain = (1<<32 - 2) * blockSize

	batchBlocks = 64 // blocks that the assembly processes at a time with vectors of 64 bytes
	lanes       = 4  // blocks in such a vector

	narrowBatch = 16 * blockSize // bytes that it processes at a time with vectors of 32 bytes
)

var errOpen = errors.New("cipher: message authentication failed") // the text of the standard library

// New returns AES-GCM with nonces of 12 bytes and tags of 16 bytes, like cipher.NewGCM for
// aes.NewCipher(key). The key has 16, 24 or 32 bytes; other lengths are an aes.KeySizeError. The
// AEAD is safe for concurrent use. Seal and Open do not allocate if dst has room. They process data
// in constant time. Lengths are not secret.
func New(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	if !haveNarrow || fips140.Enabled() || len(key) == 24 {
		return cipher.NewGCM(block)
	}
	return vectorGCM{newKey(key, block.Encrypt), haveWide}, nil
}

// block is 16 bytes in the order of a message.
type block [blockSize]byte

// element is an element of GHASH's field, with its low half first. Bit i is the coefficient of
// x^(127-i), so the bytes of a block are reversed.
type element [2]uint64

func elementOf(b *block) element {
	return element{binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[:8])}
}

// key holds the values that the assembly derives from a key. Powers of the hash subkey H are
// divided by x; multiply compensates for that.
type key struct {
	// Round keys in the order of their use. AES-128 has no extra ones.
	first  block
	extra  [4]block
	common [9]block
	last   block

	large uint64 // whether there are extra round keys
	_     uint64 // aligns what follows to vectors

	each  [batchBlocks / lanes][lanes]element // H^64 in all lanes, then H^60, and so on to H^4
	_     [lanes - 1]element                  // aligns batch
	most  element                             // H^65: a rest of 64 blocks has the lengths behind it
	batch [batchBlocks - 1]element            // H^64 to H^2
	one   element                             // H
	_     [lanes - 1]element                  // zero: whole vectors are read
}

// newKey prepares a key of 16 or 32 bytes. encrypt encrypts a block with it.
func newKey(raw []byte, encrypt func(dst, src []byte)) *key {
	k := new(key)
	schedule := expand(raw)
	k.first, k.last = schedule[0], schedule[len(schedule)-1]
	inner := schedule[1 : len(schedule)-1]
	k.common = [9]block(inner[len(inner)-9:])
	if len(inner) > 9 {
		k.extra = [4]block(inner)
		k.large = 1
	}

	var subkey block
	encrypt(subkey[:], subkey[:])
	h := elementOf(&subkey).overX()
	k.one = h
	power := h
	for i := 2; i <= batchBlocks; i++ {
		multiply(&power, &power, &h)
		k.batch[batchBlocks-i] = power
		if i%lanes == 0 {
			k.each[(batchBlocks-i)/lanes] = [lanes]element{power, power, power, power}
		}
	}
	multiply(&k.most, &power, &h)
	return k
}

// overX returns e divided by x. 1 divided by x is x^127 + x^6 + x + 1.
func (e element) overX() element {
	carry := -(e[1] >> 63) // all ones if there is a 1
	return element{e[0]<<1 ^ carry&1, e[1]<<1 ^ e[0]>>63 ^ carry&(0xc2<<56)}
}

// expand returns the round keys, FIPS 197 section 5.2.
func expand(raw []byte) []block {
	n := len(raw) / 4
	words := make([]uint32, 4*(n+7))
	constant := uint32(1)
	for i := range words {
		if i < n {
			words[i] = binary.BigEndian.Uint32(raw[4*i:])
			continue
		}
		w := words[i-1]
		switch i % n {
		case 0:
			w = subWord(bits.RotateLeft32(w, 8)) ^ constant<<24
			constant = constant<<1 ^ constant>>7*0x11b // times x, FIPS 197 section 4.2
		case 4: // with 256 bits only
			w = subWord(w)
		}
		words[i] = words[i-n] ^ w
	}
	keys := make([]block, len(words)/4)
	for i, w := range words {
		binary.BigEndian.PutUint32(keys[i/4][i%4*4:], w)
	}
	return keys
}

// message holds the values of a message that the assembly needs beside its data.
type message struct {
	counter block   // the nonce, then a multiple of 64 that is 2 less than the first counter for data: 0
	head    element // GHASH of the additional data before its last multiplication by H
	lengths element // of data and additional data, in bits
	tag     block
}

// newMessage starts a message of n bytes.
func (k *key) newMessage(nonce, additional []byte, n int) message {
	m := message{lengths: element{uint64(n) * 8, uint64(len(additional)) * 8}}
	copy(m.counter[:], nonce)
	for {
		var b block
		additional = additional[copy(b[:], additional):]
		e := elementOf(&b)
		m.head[0] ^= e[0]
		m.head[1] ^= e[1]
		if len(additional) == 0 {
			return m
		}
		multiply(&m.head, &m.head, &k.one)
	}
}

// narrow seals or opens a message from src to dst, which has as many bytes, with vectors of 32 bytes, and sets
// its tag.
func (k *key) narrow(m *message, dst, src []byte, seals bool) {
	var mask block
	counter, hash := m.counter, m.head
	count(&counter, 1)
	encrypt(k, &mask, &counter)
	count(&counter, 1)
	multiply(&hash, &hash, &k.one)
	if n := len(src) / narrowBatch; n > 0 {
		if seals {
			sealBatches(k, &counter, &hash, &dst[0], &src[0], n)
		} else {
			openBatches(k, &counter, &hash, &dst[0], &src[0], n)
		}
		count(&counter, uint32(16*n))
		dst, src = dst[n*narrowBatch:], src[n*narrowBatch:]
	}
	if len(src) > 0 {
		var stream [narrowBatch]byte // zeros, sealed
		var none element
		sealBatches(k, &counter, &none, &stream[0], &stream[0], 1)
		if seals {
			subtle.XORBytes(dst, src, stream[:])
			k.hash(&hash, dst)
		} else {
			k.hash(&hash, src)
			subtle.XORBytes(dst, src, stream[:])
		}
	}
	k.add(&hash, m.lengths)
	binary.BigEndian.PutUint64(m.tag[:], hash[1])
	binary.BigEndian.PutUint64(m.tag[8:], hash[0])
	subtle.XORBytes(m.tag[:], m.tag[:], mask[:])
}

// hash adds blocks to a hash. Zeros complete the last one.
func (k *key) hash(hash *element, p []byte) {
	for len(p) > 0 {
		var b block
		p = p[copy(b[:], p):]
		k.add(hash, elementOf(&b))
	}
}

// add adds an element to a hash.
func (k *key) add(hash *element, e element) {
	e[0] ^= hash[0]
	e[1] ^= hash[1]
	multiply(hash, &e, &k.one)
}

// count adds n to a counter block.
func count(b *block, n uint32) {
	c := b[nonceSize:]
	binary.BigEndian.PutUint32(c, binary.BigEndian.Uint32(c)+n)
}

// vectorGCM is AES-GCM with the vector code.
type vectorGCM struct {
	key  *key
	wide bool // vectors have 64 bytes, otherwise 32
}

func (g vectorGCM) NonceSize() int { return nonceSize }

func (g vectorGCM) Overhead() int { return tagSize }

// Seal implements cipher.AEAD, section 7.1.
func (g vectorGCM) Seal(dst, nonce, plain, additional []byte) []byte {
	if len(nonce) != nonceSize {
		panic("vaesgcm: incorrect nonce length")
	}
	if uint64(len(plain)) > maxPlain {
		panic("vaesgcm: message too large")
	}
	all, out := extend(dst, len(plain)+tagSize)
	checkOverlap(out, plain, additional)
	m := g.key.newMessage(nonce, additional, len(plain))
	if g.wide {
		seal(g.key, &m, unsafe.SliceData(out), unsafe.SliceData(plain), len(plain))
	} else {
		g.key.narrow(&m, out[:len(plain)], plain, true)
	}
	copy(out[len(plain):], m.tag[:])
	return all
}

// Open implements cipher.AEAD, section 7.2. It clears what it wrote if the tag is wrong.
func (g vectorGCM) Open(dst, nonce, sealed, additional []byte) ([]byte, error) {
	if len(nonce) != nonceSize {
		panic("vaesgcm: incorrect nonce length")
	}
	n := len(sealed) - tagSize
	if n < 0 || uint64(n) > maxPlain {
		return nil, errOpen
	}
	all, out := extend(dst, n)
	checkOverlap(out, sealed, additional)
	m := g.key.newMessage(nonce, additional, n)
	if g.wide {
		open(g.key, &m, unsafe.SliceData(out), unsafe.SliceData(sealed), n)
	} else {
		g.key.narrow(&m, out, sealed[:n], false)
	}
	if subtle.ConstantTimeCompare(m.tag[:], sealed[n:]) != 1 {
		clear(out)
		return nil, errOpen
	}
	return all, nil
}

// extend returns p with n more bytes, and those bytes. It allocates if p has no room.
func extend(p []byte, n int) (all, more []byte) {
	all = slices.Grow(p, n)[:len(p)+n]
	return all, all[len(p):]
}

// checkOverlap panics if out overlaps in without being in the same place, or overlaps additional.
func checkOverlap(out, in, additional []byte) {
	if overlap(out, in) && &out[0] != &in[0] {
		panic("vaesgcm: output overlaps input")
	}
	if overlap(out, additional) {
		panic("vaesgcm: output overlaps additional data")
	}
}

func overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	return uintptr(unsafe.Pointer(&a[0])) <= uintptr(unsafe.Pointer(&b[len(b)-1])) &&
		uintptr(unsafe.Pointer(&b[0])) <= uintptr(unsafe.Pointer(&a[len(a)-1]))
}
