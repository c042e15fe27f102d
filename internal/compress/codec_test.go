package compress

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// noise returns bytes that don't shrink.
func noise(seed uint64, length int) []byte {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	b := make([]byte, length)
	_, _ = rand.NewChaCha8(key).Read(b) // never fails
	return b
}

// prose returns words in random order, which shrink about threefold.
func prose(seed uint64, length int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	words := make([]string, 2000)
	for i := range words {
		letters := make([]byte, 2+r.IntN(9))
		for j := range letters {
			letters[j] = "etaoinshrdlucmfwypvbgkjqxz"[min(r.IntN(26), r.IntN(26))]
		}
		words[i] = string(letters)
	}
	var b strings.Builder
	for b.Len() < length {
		b.WriteString(words[min(r.IntN(len(words)), r.IntN(len(words)))])
		b.WriteByte(" ,.\n      "[r.IntN(10)])
	}
	return []byte(b.String()[:length])
}

// whole returns the encoded form of a block, nil if it is not encoded.
func whole(block []byte) []byte {
	b := bytes.Clone(block)
	n, _ := Encode(b)
	if n == 0 {
		return nil
	}
	return b[:n]
}

// decode decodes in a buffer of its own.
func decode(coded []byte, length int) ([]byte, error) {
	block := make([]byte, max(length, len(coded)))
	copy(block, coded)
	return block[:length], Decode(block[:length], len(coded))
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Stretches of different kinds, as in an archive.
		length := rapid.OneOf(rapid.IntRange(0, 4096), rapid.IntRange(0, MaxBlock)).Draw(t, "length")
		var block []byte
		for len(block) < length {
			stretch := rapid.IntRange(1, length).Draw(t, "stretch")
			seed := rapid.Uint64().Draw(t, "seed")
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				block = append(block, noise(seed, stretch)...)
			case 1:
				block = append(block, prose(seed, stretch)...)
			case 2:
				block = append(block, bytes.Repeat([]byte{byte(seed)}, stretch)...)
			case 3:
				block = append(block, block[:min(stretch, len(block))]...)
			}
		}
		block = block[:length]
		b := bytes.Clone(block)
		n, _ := Encode(b)
		if n == 0 {
			require.True(t, bytes.Equal(block, b), "changed though not coded")
			return
		}
		require.LessOrEqual(t, n, length-length/10)
		clear(b[n:])
		require.NoError(t, Decode(b, n))
		require.True(t, bytes.Equal(block, b))
	})
}

func TestEncodeCodesWhatShrinks(t *testing.T) {
	if testing.Short() {
		t.Skip("computes a lot on one goroutine")
	}
	tests := []struct {
		name string
		data func(length int) []byte
		from int // the least length that is encoded
		most float64
	}{
		{"prose", func(n int) []byte { return prose(1, n) }, 1 << 10, 0.75},
		{"zeros", func(n int) []byte { return make([]byte, n) }, minBlock, 0.2},
		{"base64 of noise", func(n int) []byte {
			return []byte(base64.StdEncoding.EncodeToString(noise(2, n))[:n])
		}, 2 << 10, 0.8},
		{"half noise, half prose", func(n int) []byte { return append(noise(3, n/2), prose(4, n-n/2)...) }, 4 << 10, 0.9},
	}
	for _, test := range tests {
		for length := minBlock; length <= MaxBlock; length *= 2 {
			n := len(whole(test.data(length)))
			if length >= test.from {
				require.Positive(t, n, "%s, %d bytes", test.name, length)
				require.LessOrEqual(t, float64(n), test.most*float64(length), "%s, %d bytes", test.name, length)
			}
		}
	}
	for length := 0; length <= MaxBlock; length = 2*length + 1 {
		require.Nil(t, whole(noise(5, length)), "noise, %d bytes", length)
	}
	require.Nil(t, whole(make([]byte, minBlock-1)))
	require.Nil(t, whole(make([]byte, MaxBlock+1)))
}

// frame makes a frame by hand: a header for one segment of size bytes, and zstd blocks.
func frame(size uint32, blocks ...[]byte) []byte {
	f := binary.LittleEndian.AppendUint32([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0}, size)
	return append(f, bytes.Join(blocks, nil)...)
}

// zstdBlock makes a zstd block of a type with its size field.
func zstdBlock(last bool, kind, size uint32, content ...byte) []byte {
	header := size<<3 | kind<<1
	if last {
		header |= 1
	}
	return append([]byte{byte(header), byte(header >> 8), byte(header >> 16)}, content...)
}

func TestDecodeRefuses(t *testing.T) {
	if testing.Short() {
		t.Skip("computes a lot on one goroutine")
	}
	const length = 256 << 10
	text := prose(6, length)
	good := whole(text)
	stream := func(data []byte, options ...zstd.EOption) []byte {
		z, err := zstd.NewWriter(nil, append([]zstd.EOption{zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true)}, options...)...)
		require.NoError(t, err)
		return z.EncodeAll(data, nil)
	}
	const raw, compressed, reserved = 0, 2, 3
	long := zstdBlock(false, rle, 128<<10, 'x')
	last := zstdBlock(true, rle, 128<<10, 'x')
	got, err := decode(frame(length, long, last), length)
	require.NoError(t, err)
	require.Equal(t, bytes.Repeat([]byte{'x'}, length), got)

	skippable := append(binary.LittleEndian.AppendUint32([]byte{0x50, 0x2a, 0x4d, 0x18}, 4), 1, 2, 3, 4)
	window := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x80, 31 << 3, 0, 0, 4, 0} // 2 TiB for the 256 KiB it promises
	dictionary := []byte{0x28, 0xb5, 0x2f, 0xfd, 0xa1, 7, 0, 0, 4, 0}
	tests := []struct {
		name  string
		coded []byte
	}{
		{"nothing", nil},
		{"one byte", []byte{0x28}},
		{"a header alone", good[:9]},
		{"noise", noise(7, 1000)},
		{"cut off", good[:len(good)-1]},
		{"cut off in the middle", good[:len(good)/2]},
		{"a byte more", append(bytes.Clone(good), 0)},
		{"two frames", append(bytes.Clone(good), good...)},
		{"a skippable frame first", append(bytes.Clone(skippable), good...)},
		{"a skippable frame last", append(bytes.Clone(good), skippable...)},
		{"a skippable frame", skippable},
		{"a shorter block", whole(text[:length-1])},
		{"a longer block", whole(append(bytes.Clone(text), 'x'))},
		{"not shorter than the block", frame(length, zstdBlock(false, raw, 128<<10, text[:128<<10]...), zstdBlock(true, raw, 128<<10, text[128<<10:]...))},
		{"a checksum", stream(text, zstd.WithEncoderCRC(true))},
		{"a window", stream(text, zstd.WithSingleSegment(false))},
		{"a giant window", append(window, bytes.Join([][]byte{long, last}, nil)...)},
		{"a dictionary", append(dictionary, bytes.Join([][]byte{long, last}, nil)...)},
		{"a giant promise", frame(1<<32-1, long, last)},
		{"more than it promises", frame(length, long, long, last)},
		{"far more than it promises", frame(length, append(bytes.Repeat(long, 200), last...))},
		{"less than it promises", frame(length, last)},
		{"a giant zstd block", frame(length, zstdBlock(true, rle, 1<<21-1, 'x'))},
		{"no last zstd block", frame(length, long, long)},
		{"empty zstd blocks without end", frame(length, append(bytes.Repeat(zstdBlock(false, raw, 0), 1000), append(long, last...)...))},
		{"a reserved zstd block", frame(length, long, zstdBlock(true, reserved, 1, 'x'))},
		{"an empty compressed zstd block", frame(length, long, zstdBlock(false, compressed, 0), last)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := decode(test.coded, length)
			require.Error(t, err)
			t.Log(err)
		})
	}
	_, err = decode(good, 0)
	require.Error(t, err)
	_, err = decode(good, MaxBlock+1)
	require.Error(t, err)

	// A peer gains nothing by sending more of it: the decoder still works, and no garbage piles up.
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	block := make([]byte, length)
	const rounds = 20
	for range rounds {
		for _, test := range tests {
			if len(test.coded) < length {
				require.Error(t, Decode(block, copy(block, test.coded)), test.name)
			}
		}
		require.NoError(t, Decode(block, copy(block, good)))
		require.True(t, bytes.Equal(text, block))
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(rounds*len(tests)*2*length))
}

func TestConcurrently(t *testing.T) {
	text, blocks := prose(8, 512<<10), 5
	if testing.Short() {
		blocks = 2
	}
	var streams sync.WaitGroup
	for range 16 {
		streams.Go(func() {
			block := make([]byte, len(text))
			for range blocks {
				copy(block, text)
				n, _ := Encode(block)
				if n == 0 || Decode(block, n) != nil || !bytes.Equal(text, block) {
					t.Error("a block was not what it was")
				}
			}
		})
	}
	streams.Wait()
}

func TestAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("sync.Pool drops at random under the race detector")
	}
	for _, length := range []int{1 << 10, 64 << 10, MaxBlock} {
		text := prose(9, length)
		block := bytes.Clone(text)
		require.Zero(t, testing.AllocsPerRun(20, func() {
			copy(block, text)
			n, _ := Encode(block)
			if n == 0 || Decode(block, n) != nil {
				t.Error("not coded")
			}
		}), "%d bytes", length)
		random := noise(9, length)
		require.Zero(t, testing.AllocsPerRun(20, func() { _, _ = Encode(random) }), "%d random bytes", length)
	}
}

// TestMemory measures the memory of all encoders and decoders after they have been used.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("computes a lot on one goroutine")
	}
	text := prose(10, MaxBlock)
	coded := whole(text)
	random := noise(10, MaxBlock)
	held := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // pools drop their content at the second collection
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	block := make([]byte, MaxBlock)
	before := held()
	var es [maxWorkers]*encoder
	for i := range es {
		es[i] = newEncoder()
		es[i].zstd.EncodeAll(text, es[i].out)
		es[i].zstd.EncodeAll(random, es[i].out)
	}
	encoded := held()
	var ds [maxWorkers]*decoder
	for i := range ds {
		ds[i] = newDecoder()
		_, err := ds[i].zstd.DecodeAll(coded, block[:0])
		require.NoError(t, err)
	}
	decoded := held()
	t.Logf("%d KiB for each block being encoded, %d KiB for each being decoded", (encoded-before)/maxWorkers>>10, (decoded-encoded)/maxWorkers>>10)
	require.Less(t, decoded-before, uint64(30<<20))
	runtime.KeepAlive(es)
	runtime.KeepAlive(ds)
}

// FuzzDecode compares Decode with a decoder without limits: it gives the same bytes, in the
// declared number, or an error.
func FuzzDecode(f *testing.F) {
	for _, block := range [][]byte{prose(11, 1<<10), prose(12, 5<<10), make([]byte, 300)} {
		f.Add(whole(block), len(block))
	}
	f.Add(frame(300, zstdBlock(true, rle, 300, 'x')), 300)
	f.Add(frame(300, zstdBlock(false, 0, 1, 'x'), zstdBlock(true, rle, 299, 'x')), 300)
	reference, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(16<<20))
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, coded []byte, length int) {
		if length < 0 || length > MaxBlock || len(coded) > length {
			return
		}
		got, err := decode(coded, length)
		if err != nil {
			return
		}
		want, err := reference.DecodeAll(coded, nil)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got))
	})
}

func BenchmarkEncode(b *testing.B) {
	for _, length := range []int{64 << 10, MaxBlock} {
		for name, data := range map[string][]byte{"prose": prose(13, length), "random": noise(13, length)} {
			b.Run(fmt.Sprintf("%s/%dKiB", name, length>>10), func(b *testing.B) {
				block := make([]byte, length)
				var all time.Duration
				var n int
				b.SetBytes(int64(length))
				for b.Loop() {
					copy(block, data)
					var spent time.Duration
					n, spent = Encode(block)
					all += spent
				}
				b.ReportMetric(float64(all.Microseconds())/float64(b.N), "spent-µs/op")
				if n > 0 {
					b.ReportMetric(float64(length)/float64(n), "ratio")
				}
			})
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	text := prose(14, MaxBlock)
	coded := whole(text)
	block := make([]byte, MaxBlock)
	b.SetBytes(MaxBlock)
	for b.Loop() {
		if err := Decode(block, copy(block, coded)); err != nil {
			b.Fatal(err)
		}
	}
}
