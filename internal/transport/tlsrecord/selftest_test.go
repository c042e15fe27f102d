package tlsrecord

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSelfTest passes with the code of this processor, and with crypto/cipher.
func TestSelfTest(t *testing.T) {
	require.NoError(t, SelfTest())
	run := exec.Command(os.Args[0], "-test.run=^TestKnownRecords$")
	run.Env = append(os.Environ(), "GODEBUG=fips140=on") // without the vector code
	out, err := run.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// TestKnownRecords makes the records of the self-test by RFC 8446 and the standard library.
func TestKnownRecords(t *testing.T) {
	require.NoError(t, selfTest(suiteOf))
	for _, known := range knownRecords {
		s, err := suiteOf(known.suite)
		require.NoError(t, err)
		if known.suite != tls.TLS_CHACHA20_POLY1305_SHA256 {
			s.aead = standardGCM
		}
		secret := bytes.Repeat([]byte("secret"), 8)[:s.hash().Size()]
		record := func(content []byte, kind byte, secret []byte) []byte {
			key, err := expandLabel(s, secret, "key", s.keyLen)
			require.NoError(t, err)
			iv, err := expandLabel(s, secret, "iv", 12)
			require.NoError(t, err)
			aead, err := s.aead(key)
			require.NoError(t, err)
			n := len(content) + 1 + tagLen
			header := []byte{23, 3, 3, byte(n >> 8), byte(n)}
			if kind == recordHandshake {
				iv[11] ^= 1 // the second record under its key
			}
			return aead.Seal(header, iv, append(bytes.Clone(content), kind), header)
		}
		all := record(selfTestMessage, recordApplication, secret)
		all = append(all, record([]byte{keyUpdateType, 0, 0, 1, 0}, recordHandshake, secret)...)
		next, err := expandLabel(s, secret, "traffic upd", len(secret))
		require.NoError(t, err)
		all = append(all, record(selfTestMessage, recordApplication, next)...)
		sum := sha256.Sum256(all)
		require.Equal(t, hex.EncodeToString(sum[:]), known.digest, "%x", known.suite)
	}
}

func standardGCM(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// faulty is an AEAD with a fault.
type faulty struct {
	cipher.AEAD
	seal, open int  // bit of the result that is flipped, or -1
	trusting   bool // it accepts any tag
}

func (f faulty) Seal(dst, nonce, plain, additional []byte) []byte {
	out := f.AEAD.Seal(dst, nonce, plain, additional)
	flip(out[len(dst):], f.seal)
	return out
}

func (f faulty) Open(dst, nonce, sealed, additional []byte) ([]byte, error) {
	out, err := f.AEAD.Open(dst, nonce, sealed, additional)
	if err != nil && f.trusting {
		return append(append(dst, selfTestMessage...), recordApplication), nil
	}
	if err == nil {
		flip(out[len(dst):], f.open)
	}
	return out, err
}

func flip(p []byte, bit int) {
	if bit >= 0 && bit/8 < len(p) {
		p[bit/8] ^= 1 << (bit % 8)
	}
}

// TestSelfTestTrips: one wrong bit in either direction, or a tag that nobody looks at, is noticed.
func TestSelfTestTrips(t *testing.T) {
	with := func(id uint16, f faulty) error {
		return selfTest(func(asked uint16) (suite, error) {
			s, err := suiteOf(asked)
			if asked != id {
				return s, err
			}
			right := s.aead
			s.aead = func(key []byte) (cipher.AEAD, error) {
				aead, err := right(key)
				f.AEAD = aead
				return f, err
			}
			return s, err
		})
	}
	for _, known := range knownRecords {
		name := tls.CipherSuiteName(known.suite)
		require.NoError(t, with(known.suite, faulty{seal: -1, open: -1}))
		for _, bit := range []int{0, 1, 127, 128, 1023, 8191, 8192, 8*2100 - 1, 8 * 2100, 8 * 2101, 8*(2101+tagLen) - 1} {
			require.ErrorContains(t, with(known.suite, faulty{seal: bit, open: -1}), "self-test of "+name+": sealed records are wrong", "bit %d", bit)
		}
		for _, bit := range []int{0, 1, 127, 128, 1023, 8191, 8192, 8*2100 - 1} {
			require.ErrorContains(t, with(known.suite, faulty{seal: -1, open: bit}), "self-test of "+name+": ", "bit %d", bit)
		}
		err := with(known.suite, faulty{seal: -1, open: -1, trusting: true})
		require.EqualError(t, err, fmt.Sprintf("self-test of %s: an altered record is accepted", name))
	}
}

func BenchmarkSelfTest(b *testing.B) {
	for b.Loop() {
		if err := selfTest(suiteOf); err != nil {
			b.Fatal(err)
		}
	}
}
