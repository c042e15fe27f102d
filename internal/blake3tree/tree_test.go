package blake3tree

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"lukechampine.com/blake3"
	"lukechampine.com/blake3/guts"
)

func TestX(t *testing.T) {
	data := make([]byte, 1<<20)
	rng := rand.NewChaCha8([32]byte{1})
	rng.Read(data)
	for _, size := range []int{1, 16 << 10, 32 << 10, 48 << 10, 1 << 20, 1<<20 - 1, 1<<20 - 5000} {
		var h Hasher
		h.Reset(0)
		h.Write(data[:size])
		n := h.Sum()
		n.Flags |= guts.FlagRoot
		cv := guts.ChainingValue(n)
		want := blake3.Sum256(data[:size])
		require.Equal(t, want[:4], []byte{byte(cv[0]), byte(cv[0] >> 8), byte(cv[0] >> 16), byte(cv[0] >> 24)}, size)
	}
}

func BenchmarkGuts(b *testing.B) { bench(b, false) }
func BenchmarkWide(b *testing.B) { bench(b, true) }

func bench(b *testing.B, wide bool) {
	buf := make([]byte, 128<<10+64)
	b.SetBytes(128 << 10)
	var h Hasher
	for b.Loop() {
		h.Reset(0)
		h.wide = wide
		h.Write(buf[64:])
		_ = h.Sum()
	}
}
