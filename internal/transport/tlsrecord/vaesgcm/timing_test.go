package vaesgcm

import (
	"bytes"
	"crypto/subtle"
	"flag"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

var timings = flag.Int("timings", 0, "measurements in each timing test; 0 leaves them out, and 1000000 are enough")

// mostT is where dudect begins to see a leak. A t beyond it happens by chance once in 150,000 times.
const mostT = 4.5

// TestTiming looks for secrets in how long sealing and opening take, as dudect does: "Dude, is my
// code constant time?", Reparaz, Balasch and Verbauwhede, 2017. It measures two classes of inputs in
// random order, and compares their means by Welch's t-test, for all measurements and for those below
// percentiles of them. What other programs do to this machine hits both classes alike.
func TestTiming(t *testing.T) {
	if *timings == 0 {
		t.Skip("no -timings")
	}
	each(t, func(t *testing.T, wide bool) {
		for _, size := range []int{16, 32} {
			for _, n := range []int{48, 1500, 16385} {
				for _, c := range classes(t, wide, size, n) {
					t.Run(fmt.Sprintf("AES-%d/%d bytes/%s", 8*size, n, c.name), func(t *testing.T) {
						checkTiming(t, c, max(*timings*100/(n+100), *timings/10))
					})
				}
			}
		}
	})
}

// class is two classes of inputs. prepare makes the next input of class 0 or 1, and run is measured.
type class struct {
	name    string
	prepare func(class int)
	run     func()
}

// classes compares what is fixed with what is random.
//
// Between two measurements the class of an input decides about nothing but its bytes: both classes
// are read, and one is taken without a branch. Otherwise caches would tell the classes apart.
func classes(t *testing.T, wide bool, keySize, n int) []class {
	_, source := random(t)
	const inputs = 64
	type input struct{ key, plain, sealed []byte }
	nonce, additional := make([]byte, nonceSize), make([]byte, 5)
	made := func(raw, plain []byte) input {
		aead, _ := both(t, wide, raw)
		k := aead.(vectorGCM).key
		return input{bytes.Clone(bytesOf(k)), plain, aead.Seal(nil, nonce, plain, additional)}
	}
	var fixedKey, anyKey, fixedPlain, anyPlain []input
	raw := make([]byte, keySize)
	for range inputs {
		some := bytesFrom(source, n)
		fixedKey = append(fixedKey, made(raw, some))
		anyKey = append(anyKey, made(bytesFrom(source, keySize), some))
		fixedPlain = append(fixedPlain, made(raw, make([]byte, n)))
		anyPlain = append(anyPlain, made(raw, bytesFrom(source, n)))
	}
	now, dst, in := vectorGCM{new(key), wide}, make([]byte, n+tagSize), make([]byte, n+tagSize)
	pick := func(class int, to, fixed, other []byte) {
		copy(to, fixed)
		subtle.ConstantTimeCopy(class, to[:len(fixed)], other)
	}
	plain := func(fixed, others []input) func(int) {
		return func(class int) {
			i := source.Uint64() % inputs
			pick(class, bytesOf(now.key), fixed[i].key, others[i].key)
			pick(class, in, fixed[i].plain, others[i].plain)
		}
	}
	sealed := func(fixed, others []input) func(int) {
		return func(class int) {
			i := source.Uint64() % inputs
			pick(class, bytesOf(now.key), fixed[i].key, others[i].key)
			pick(class, in, fixed[i].sealed, others[i].sealed)
		}
	}
	// A wrong tag differs in its first byte or in its last one.
	rightKey := sealed(fixedKey, fixedKey)
	wrongTag := func(class int) {
		rightKey(class)
		in[n] ^= byte(1 - class)
		in[n+tagSize-1] ^= byte(class)
	}
	// And it differs in one bit or in all of them.
	wrongTags := func(class int) {
		rightKey(class)
		in[n] ^= 1
		for i := range tagSize {
			in[n+i] ^= byte(0xa5 * class)
		}
	}
	seal := func() { now.Seal(dst[:0], nonce, in[:n], additional) }
	open := func() { _, _ = now.Open(dst[:0], nonce, in, additional) }
	return []class{
		{"seal/keys", plain(fixedKey, anyKey), seal},
		{"seal/plaintexts", plain(fixedPlain, anyPlain), seal},
		{"open/keys", sealed(fixedKey, anyKey), open},
		{"open/plaintexts", sealed(fixedPlain, anyPlain), open},
		{"open/place of wrong bit in tag", wrongTag, open},
		{"open/wrong bits in tag", wrongTags, open},
	}
}

// bytesOf is the memory of a key.
func bytesOf(k *key) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(k)), unsafe.Sizeof(*k)) }

// crops are the percentiles below which measurements are compared once more.
const crops = 100

func checkTiming(t *testing.T, c class, measurements int) {
	require.Less(t, worstT(t, c, measurements), mostT)
}

// worstT returns the largest |t| of all measurements and of those below percentiles.
func worstT(t *testing.T, c class, measurements int) float64 {
	rng, _ := random(t)
	measure := func() (int, float64) {
		class := int(rng.Uint32() & 1)
		c.prepare(class)
		began := time.Now()
		c.run()
		return class, float64(time.Since(began))
	}
	var first []float64
	for range max(1000, measurements/20) {
		_, took := measure()
		first = append(first, took)
	}
	slices.Sort(first)
	// As dudect does: 1 - 0.5^(10 i/n), so that most percentiles are high.
	var limits [crops]float64
	for i := range limits {
		part := 1 - math.Pow(0.5, 10*float64(i+1)/crops)
		limits[i] = first[int(part*float64(len(first)-1))]
	}
	var all welch
	var below [crops]welch
	for range measurements {
		class, took := measure()
		all.add(class, took)
		for i, limit := range limits {
			if took < limit {
				below[i].add(class, took)
			}
		}
	}
	worst, of := math.Abs(all.t()), measurements
	for _, w := range below {
		if v := math.Abs(w.t()); w.n[0]+w.n[1] > 10_000 && v > worst {
			worst, of = v, int(w.n[0]+w.n[1])
		}
	}
	t.Logf("t %+.2f of all %d; worst |t| %.2f, of the fastest %d", all.t(), measurements, worst, of)
	return worst
}

// TestTimingFindsLeak measures a comparison of tags that ends at the first wrong byte.
func TestTimingFindsLeak(t *testing.T) {
	if *timings == 0 {
		t.Skip("no -timings")
	}
	var a, b [4 * tagSize]byte
	same := 0
	leak := class{"leak", func(class int) {
		b = a
		b[0] ^= byte(1 - class)
		b[len(b)-1] ^= byte(class)
	}, func() {
		for i := range a {
			if a[i] != b[i] {
				same = i
				return
			}
		}
	}}
	require.Greater(t, worstT(t, leak, *timings), mostT)
	require.Contains(t, []int{0, len(a) - 1}, same)
}

// welch is Welch's t-test of two classes, from sums that Welford's algorithm keeps.
type welch struct{ n, mean, squares [2]float64 }

func (w *welch) add(class int, x float64) {
	w.n[class]++
	d := x - w.mean[class]
	w.mean[class] += d / w.n[class]
	w.squares[class] += d * (x - w.mean[class])
}

// t is 0 if there are too few measurements.
func (w *welch) t() float64 {
	var variance float64
	for class := range 2 {
		if w.n[class] < 2 {
			return 0
		}
		variance += w.squares[class] / (w.n[class] - 1) / w.n[class]
	}
	if variance == 0 {
		return 0
	}
	return (w.mean[0] - w.mean[1]) / math.Sqrt(variance)
}

// TestWelch: the t-test finds a difference of 1 % and no difference of nothing.
func TestWelch(t *testing.T) {
	rng, _ := random(t)
	var same, other welch
	for range 100_000 {
		class := rng.IntN(2)
		x := 100 + 5*rng.NormFloat64()
		same.add(class, x)
		other.add(class, x+float64(class))
	}
	require.Less(t, math.Abs(same.t()), 5.5)
	require.Greater(t, math.Abs(other.t()), 20.0)
}
