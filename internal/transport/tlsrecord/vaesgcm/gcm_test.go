//nolint:gosec // keys and nonces here protect nothing
package vaesgcm

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/fips140"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// random returns a source of random numbers and bytes whose seed the test prints.
func random(t *testing.T) (*rand.Rand, *rand.ChaCha8) {
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], rand.Uint64())
	t.Logf("seed %x", seed)
	source := rand.NewChaCha8(seed)
	return rand.New(source), source
}

// bytesFrom returns n random bytes.
func bytesFrom(source *rand.ChaCha8, n int) []byte {
	p := make([]byte, n)
	_, _ = source.Read(p)
	return p
}

// each runs a test with vectors of 64 and of 32 bytes, where this processor has them.
func each[T interface {
	testing.TB
	Run(string, func(T)) bool
}](t T, test func(t T, wide bool)) {
	for _, wide := range []bool{true, false} {
		t.Run(map[bool]string{true: "wide", false: "narrow"}[wide], func(t T) {
			if !haveNarrow || wide && !haveWide {
				t.Skip("no such vectors with AES")
			}
			test(t, wide)
		})
	}
}

// both returns a vector implementation, whatever mode the program is in, and the standard library's.
func both(t testing.TB, wide bool, key []byte) (vector, standard cipher.AEAD) {
	block, err := aes.NewCipher(key)
	require.NoError(t, err)
	standard, err = cipher.NewGCM(block)
	require.NoError(t, err)
	return vectorGCM{newKey(key, block.Encrypt), wide}, standard
}

func unhex(t *testing.T, s string) []byte {
	p, err := hex.DecodeString(s)
	require.NoError(t, err)
	return p
}

func TestNew(t *testing.T) {
	for _, n := range []int{0, 15, 17, 31, 33, 64} {
		_, err := New(make([]byte, n))
		require.ErrorIs(t, err, aes.KeySizeError(n))
	}
	for _, n := range []int{16, 24, 32} {
		aead, err := New(make([]byte, n))
		require.NoError(t, err)
		require.Equal(t, 12, aead.NonceSize())
		require.Equal(t, 16, aead.Overhead())
		_, vector := aead.(vectorGCM)
		require.Equal(t, haveNarrow && !fips140.Enabled() && n != 24, vector)
	}
}

// TestFIPS runs TestNew where FIPS 140 binds the program.
func TestFIPS(t *testing.T) {
	run := exec.Command(os.Args[0], "-test.run=^TestNew$")
	run.Env = append(os.Environ(), "GODEBUG=fips140=on")
	out, err := run.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// TestKnownAnswers has test cases 1 to 4 and 13 to 16 of the GCM specification that NIST's publication adopts.
func TestKnownAnswers(t *testing.T) {
	each(t, func(t *testing.T, wide bool) {
		const (
			key   = "feffe9928665731c6d6a8f9467308308"
			nonce = "cafebabefacedbaddecaf888"
			plain = "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72" +
				"1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255"
			additional = "feedfacedeadbeeffeedfacedeadbeefabaddad2"
			sealed128  = "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e" +
				"21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091473f5985"
			sealed256 = "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa" +
				"8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662898015ad"
		)
		zero := strings.Repeat("0", 64)
		for i, c := range []struct{ key, nonce, plain, additional, sealed, tag string }{
			{zero[:32], zero[:24], "", "", "", "58e2fccefa7e3061367f1d57a4e7455a"},
			{zero[:32], zero[:24], zero[:32], "", "0388dace60b6a392f328c2b971b2fe78", "ab6e47d42cec13bdf53a67b21257bddf"},
			{key, nonce, plain, "", sealed128, "4d5c2af327cd64a62cf35abd2ba6fab4"},
			{key, nonce, plain[:120], additional, sealed128[:120], "5bc94fbc3221a5db94fae95ae7121a47"},
			{zero, zero[:24], "", "", "", "530f8afbc74536b9a963b4f1c4cb738b"},
			{zero, zero[:24], zero[:32], "", "cea7403d4d606b6e074ec5d3baf39d18", "d0d1c8a799996bf0265b98b5d48ab919"},
			{key + key, nonce, plain, "", sealed256, "b094dac5d93471bdec1a502270e3cc6c"},
			{key + key, nonce, plain[:120], additional, sealed256[:120], "76fc6ece0f4e1768cddf8853bb2d551b"},
		} {
			vector, standard := both(t, wide, unhex(t, c.key))
			for _, aead := range []cipher.AEAD{standard, vector} {
				got := aead.Seal(nil, unhex(t, c.nonce), unhex(t, c.plain), unhex(t, c.additional))
				require.Equal(t, c.sealed+c.tag, hex.EncodeToString(got), "case %d, %T", i, aead)
				opened, err := aead.Open(nil, unhex(t, c.nonce), got, unhex(t, c.additional))
				require.NoError(t, err)
				require.Equal(t, c.plain, hex.EncodeToString(opened))
			}
		}
	})
}

// TestExpand has the last round keys of FIPS 197 appendices A.1 and A.3.
func TestExpand(t *testing.T) {
	if !haveNarrow {
		t.Skip("no vectors with AES")
	}
	for key, want := range map[string]string{
		"2b7e151628aed2a6abf7158809cf4f3c":                                 "d014f9a8c9ee2589e13f0cc8b6630ca6",
		"603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4": "fe4890d1e6188d0b046df344706c631e",
	} {
		keys := expand(unhex(t, key))
		require.Equal(t, want, hex.EncodeToString(keys[len(keys)-1][:]))
	}
}

// compare seals and opens one message of n bytes in place and to another place, all somewhere in larger buffers of
// which nothing else may change, and compares with the standard library.
func compare(t *testing.T, rng *rand.Rand, source *rand.ChaCha8, vector, standard cipher.AEAD, n int) {
	nonce, additional := bytesFrom(source, 12), bytesFrom(source, rng.IntN(101))
	plain := bytesFrom(source, n)
	want := standard.Seal(nil, nonce, plain, additional)
	for _, inPlace := range []bool{false, true} {
		at := rng.IntN(200)
		room := bytesFrom(source, at+n+tagSize+200)
		before := slices.Clone(room)
		src := plain
		if inPlace {
			src = room[at : at+n]
			copy(src, plain)
		}
		got := vector.Seal(room[at:at], nonce, src, additional)
		if !bytes.Equal(want, got) || &got[0] != &room[at] {
			require.Fail(t, "wrong seal", "%d bytes at %d, %d additional, in place: %t", n, at, len(additional), inPlace)
		}
		copy(before[at:], want)
		if !bytes.Equal(before, room) {
			require.Fail(t, "wrote outside", "%d bytes at %d, in place: %t", n, at, inPlace)
		}

		src = want
		if inPlace {
			src = got
		} else {
			_, _ = source.Read(got)
			before = slices.Clone(room)
		}
		opened, err := vector.Open(room[at:at], nonce, src, additional)
		if err != nil || !bytes.Equal(plain, opened) {
			require.Fail(t, "wrong open", "%d bytes at %d, %d additional, in place: %t: %v", n, at, len(additional), inPlace, err)
		}
		copy(before[at:], plain)
		if !bytes.Equal(before, room) {
			require.Fail(t, "wrote outside", "%d bytes at %d, in place: %t", n, at, inPlace)
		}
	}
}

func TestLengths(t *testing.T) {
	each(t, func(t *testing.T, wide bool) {
		rng, source := random(t)
		for _, size := range []int{16, 32} {
			vector, standard := both(t, wide, bytesFrom(source, size))
			for n := range 4201 {
				if n%100 == 0 {
					vector, standard = both(t, wide, bytesFrom(source, size))
				}
				compare(t, rng, source, vector, standard, n)
			}
			for n := 16<<10 - 70; n <= 16<<10+70; n++ {
				compare(t, rng, source, vector, standard, n)
			}
			for range 60 {
				vector, standard = both(t, wide, bytesFrom(source, size))
				compare(t, rng, source, vector, standard, rng.IntN(64<<10))
				compare(t, rng, source, vector, standard, rng.IntN(1<<20))
			}
		}
	})
}

// slowHash is GHASH bit by bit, sections 6.3 and 6.4.
func slowHash(subkey block, p []byte) (y block) {
	for ; len(p) > 0; p = p[blockSize:] {
		var z block
		v := subkey
		for i := range 128 {
			if (y[i/8]^p[i/8])>>(7-i%8)&1 != 0 {
				for j := range z {
					z[j] ^= v[j]
				}
			}
			lowest := v[15] & 1
			for j := 15; j > 0; j-- {
				v[j] = v[j]>>1 | v[j-1]<<7
			}
			v[0] = v[0]>>1 ^ lowest*0xe1
		}
		y = z
	}
	return y
}

// TestCounters checks the assembly against the definitions, at counters too that no message reaches: 32 bits go round.
func TestCounters(t *testing.T) {
	each(t, func(t *testing.T, wide bool) {
		_, source := random(t)
		for _, first := range []uint32{0, 64, 192, 1<<16 - 64, 1<<31 - 128, 1<<32 - 64, 1<<32 - 128, 1<<32 - 256} {
			for _, n := range []int{0, 33, 1000, 3000, 8192} {
				for _, size := range []int{16, 32} {
					raw := bytesFrom(source, size)
					reference, err := aes.NewCipher(raw)
					require.NoError(t, err)
					k := newKey(raw, reference.Encrypt)
					var b, subkey block
					reference.Encrypt(subkey[:], subkey[:])

					m := k.newMessage(bytesFrom(source, nonceSize), bytesFrom(source, blockSize), n)
					binary.BigEndian.PutUint32(m.counter[nonceSize:], first)
					copy(b[:], m.counter[:])
					encrypt := func(i int) (stream block) {
						binary.BigEndian.PutUint32(b[nonceSize:], first+uint32(i))
						reference.Encrypt(stream[:], b[:])
						return stream
					}
					plain := bytesFrom(source, n)
					mask := encrypt(1)
					var hashed []byte
					hashed = binary.BigEndian.AppendUint64(hashed, m.head[1])
					hashed = binary.BigEndian.AppendUint64(hashed, m.head[0])
					for i := 0; i < n; i += blockSize {
						stream := encrypt(2 + i/blockSize)
						for j, x := range plain[i:min(n, i+blockSize)] {
							stream[j] ^= x
						}
						hashed = append(hashed, stream[:min(n-i, blockSize)]...)
					}
					want := slices.Clone(hashed[blockSize:])
					hashed = append(hashed, make([]byte, -n&15)...)
					hashed = binary.BigEndian.AppendUint64(hashed, 8*blockSize)
					hashed = binary.BigEndian.AppendUint64(hashed, uint64(n)*8)
					tag := slowHash(subkey, hashed)
					for i := range tag {
						tag[i] ^= mask[i]
					}

					got := make([]byte, n+1)
					start := m
					if wide {
						seal(k, &m, &got[0], &append(plain, 0)[0], n)
					} else {
						k.narrow(&m, got[:n], plain, true)
					}
					require.Equal(t, want, got[:n], "%d bytes from %#x", n, first)
					require.Equal(t, tag, m.tag, "%d bytes from %#x", n, first)
					if wide {
						open(k, &start, &got[0], &got[0], n)
					} else {
						k.narrow(&start, got[:n], got[:n], false)
					}
					require.Equal(t, plain, got[:n], "%d bytes from %#x", n, first)
					require.Equal(t, m, start)
				}
			}
		}
	})
}

func TestTampering(t *testing.T) {
	each(t, func(t *testing.T, wide bool) {
		_, source := random(t)
		for _, n := range []int{0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 991, 992, 1000, 2100} {
			vector, _ := both(t, wide, bytesFrom(source, 16+n%2*16))
			nonce, additional, plain := bytesFrom(source, 12), bytesFrom(source, 5), bytesFrom(source, n)
			sealed := vector.Seal(nil, nonce, plain, additional)
			for _, part := range [][]byte{sealed, nonce, additional} {
				for i := range part {
					flip := byte(1) << (source.Uint64() % 8)
					part[i] ^= flip
					for _, dst := range [][]byte{bytesFrom(source, n), slices.Clone(sealed)} {
						src := sealed
						if len(dst) == len(sealed) {
							src = dst
						}
						got, err := vector.Open(dst[:0], nonce, src, additional)
						require.EqualError(t, err, "cipher: message authentication failed")
						require.Nil(t, got)
						require.Equal(t, make([]byte, n), dst[:n])
					}
					part[i] ^= flip
				}
			}
			got, err := vector.Open(nil, nonce, sealed, additional)
			require.NoError(t, err)
			require.True(t, bytes.Equal(plain, got))
			for short := range min(len(sealed), 40) {
				_, err := vector.Open(nil, nonce, sealed[:short], additional)
				require.Error(t, err)
			}
		}
	})
}

// TestArguments checks the contract of cipher.AEAD beside the bytes; the standard library takes the same tests.
func TestArguments(t *testing.T) {
	each(t, func(t *testing.T, wide bool) {
		vector, standard := both(t, wide, make([]byte, 16))
		for _, aead := range []cipher.AEAD{standard, vector} {
			nonce, buf := make([]byte, 12), make([]byte, 300)
			sealed := aead.Seal(nil, nonce, buf[:100], nil)
			for _, n := range []int{0, 8, 11, 13, 16} {
				require.Panics(t, func() { aead.Seal(nil, make([]byte, n), buf[:100], nil) })
				require.Panics(t, func() { _, _ = aead.Open(nil, make([]byte, n), sealed, nil) })
			}

			require.Panics(t, func() { aead.Seal(buf[1:1], nonce, buf[:100], nil) })
			require.Panics(t, func() { aead.Seal(buf[:0], nonce, buf[1:100], nil) })
			require.Panics(t, func() { aead.Seal(buf[:0], nonce, buf[115:215], nil) })
			require.Panics(t, func() { aead.Seal(buf[:0], nonce, buf[:100], buf[115:120]) })
			require.Panics(t, func() { aead.Seal(buf[10:10], nonce, buf[10:100], buf[5:11]) })
			require.Panics(t, func() { _, _ = aead.Open(buf[1:1], nonce, buf[:100], nil) })
			require.Panics(t, func() { _, _ = aead.Open(buf[:0], nonce, buf[1:100], nil) })
			require.Panics(t, func() { _, _ = aead.Open(buf[:0], nonce, buf[:100], buf[83:90]) })
			require.NotPanics(t, func() { aead.Seal(buf[:0], nonce, buf[116:216], buf[116:120]) })
			require.NotPanics(t, func() { aead.Seal(buf[10:10], nonce, buf[10:100], buf[5:10]) })
			require.NotPanics(t, func() { _, _ = aead.Open(buf[:0], nonce, buf[:100], buf[84:90]) })

			// Behind what dst has, in it or in a copy.
			plain := []byte("some data")
			sealed = aead.Seal(nil, nonce, plain, nil)
			for _, room := range []int{0, 3, 100} {
				dst := append(make([]byte, 0, 3+room), "abc"...)
				got := aead.Seal(dst, nonce, plain, nil)
				require.Equal(t, "abc"+string(sealed), string(got))
				require.Equal(t, room == 100, &got[0] == &dst[0])
				got, err := aead.Open(dst, nonce, sealed, nil)
				require.NoError(t, err)
				require.Equal(t, "abcsome data", string(got))
				require.Equal(t, room == 100, &got[0] == &dst[0])
			}
			got, err := aead.Open(nil, nonce, aead.Seal(nil, nonce, nil, nil), nil)
			require.NoError(t, err)
			require.Nil(t, got)
		}
	})
}

func TestConcurrent(t *testing.T) {
	each(t, func(t *testing.T, wide bool) {
		_, source := random(t)
		vector, standard := both(t, wide, bytesFrom(source, 16))
		plain := bytesFrom(source, 16385)
		var group sync.WaitGroup
		for g := range 8 {
			group.Go(func() {
				nonce := make([]byte, 12)
				nonce[0] = byte(g)
				for i := range 50 {
					nonce[11] = byte(i)
					n := len(plain) - 100*g - i
					sealed := vector.Seal(nil, nonce, plain[:n], nonce[:5])
					opened, err := standard.Open(nil, nonce, sealed, nonce[:5])
					if err != nil || !bytes.Equal(plain[:n], opened) {
						t.Errorf("goroutine %d, message %d: %v", g, i, err)
					}
					opened, err = vector.Open(sealed[:0], nonce, sealed, nonce[:5])
					if err != nil || !bytes.Equal(plain[:n], opened) {
						t.Errorf("goroutine %d, message %d: %v", g, i, err)
					}
				}
			})
		}
		group.Wait()
	})
}

func TestNoAllocation(t *testing.T) {
	each(t, func(t *testing.T, wide bool) {
		vector, _ := both(t, wide, make([]byte, 16))
		nonce, additional := make([]byte, 12), make([]byte, 40)
		for _, n := range []int{100, 16384, 16385} {
			buf := make([]byte, n+tagSize)
			require.Zero(t, testing.AllocsPerRun(10, func() {
				sealed := vector.Seal(buf[:0], nonce, buf[:n], additional)
				_, err := vector.Open(buf[:0], nonce, sealed, additional)
				if err != nil {
					panic(err)
				}
			}))
		}
	})
}

func FuzzGCM(f *testing.F) {
	f.Add([]byte{1, 2, 3}, uint32(1), uint8(5), uint8(0), false, true)
	f.Add([]byte{}, uint32(16385), uint8(0), uint8(13), true, false)
	f.Add([]byte("seed"), uint32(1<<20), uint8(100), uint8(64), true, true)
	f.Add([]byte("seed"), uint32(1<<20), uint8(100), uint8(64), false, false)
	f.Fuzz(func(t *testing.T, seed []byte, size uint32, additional, align uint8, large, wide bool) {
		if !haveNarrow {
			t.Skip("no vectors with AES")
		}
		wide = wide && haveWide
		var key [32]byte
		copy(key[:], seed)
		source := rand.NewChaCha8(key)
		n := 16
		if large {
			n = 32
		}
		vector, standard := both(t, wide, bytesFrom(source, n))
		nonce, a := bytesFrom(source, 12), bytesFrom(source, int(additional))
		room := bytesFrom(source, int(align)+int(size%(1<<20+1))+tagSize)[align:]
		plain := room[:len(room)-tagSize]
		want := standard.Seal(nil, nonce, plain, a)
		require.True(t, bytes.Equal(want, vector.Seal(room[:0], nonce, plain, a)))

		kept := slices.Clone(plain)
		room[source.Uint64()%uint64(len(room))] ^= 1
		_, err := vector.Open(bytes.Clone(room)[:0], nonce, room, a)
		require.Error(t, err)
		copy(room, kept)
		copy(room[len(kept):], want[len(kept):])
		wantPlain, err := standard.Open(nil, nonce, room, a)
		require.NoError(t, err)
		got, err := vector.Open(room[:0], nonce, room, a)
		require.NoError(t, err)
		require.True(t, bytes.Equal(wantPlain, got))
	})
}

// BenchmarkRecord has TLS 1.3's longest records, where they lie in its stream.
func BenchmarkRecord(b *testing.B) {
	const header, n = 5, 16<<10 + 1
	each(b, func(b *testing.B, wide bool) {
		for _, size := range []int{16, 32} {
			vector, standard := both(b, wide, make([]byte, size))
			nonce := make([]byte, 12)
			record := make([]byte, header+n+tagSize)
			plain, dst := record[header:header+n], record[header:header]
			sealed := standard.Seal(nil, nonce, plain, record[:header])
			run := func(name string, f func(aead cipher.AEAD)) {
				for _, aead := range []cipher.AEAD{standard, vector} {
					b.Run(fmt.Sprintf("AES-%d/%s/%T", 8*size, name, aead), func(b *testing.B) {
						b.SetBytes(n - 1)
						for b.Loop() {
							f(aead)
						}
					})
				}
			}
			run("seal", func(aead cipher.AEAD) { aead.Seal(dst, nonce, plain, record[:header]) })
			clear(plain)
			run("open", func(aead cipher.AEAD) {
				if _, err := aead.Open(dst, nonce, sealed, record[:header]); err != nil {
					panic(err)
				}
			})
			run("seal+open", func(aead cipher.AEAD) {
				aead.Seal(dst, nonce, plain, record[:header])
				if _, err := aead.Open(dst, nonce, record[header:], record[:header]); err != nil {
					panic(err)
				}
			})
		}
	})
}
