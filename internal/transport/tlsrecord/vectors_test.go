package tlsrecord

import (
	"bytes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/tls"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/chacha20poly1305"

	"github.com/fxfer/fxfer/internal/transport/tlsrecord/vaesgcm"
)

// vectors is a file of testdata/wycheproof. The fields are those of its schemas for AEADs and HKDF.
type vectors struct {
	NumberOfTests int
	TestGroups    []struct {
		IvSize int // bits
		Tests  []vector
	}
}

type vector struct {
	TcID, Size                                       int
	Comment, Result                                  string
	Key, Iv, Aad, Msg, Ct, Tag, Ikm, Salt, Info, Okm string
}

func readVectors(t *testing.T, name string) vectors {
	text, err := os.ReadFile(filepath.Join("testdata/wycheproof", name))
	require.NoError(t, err)
	var v vectors
	require.NoError(t, json.Unmarshal(text, &v))
	return v
}

// TestWycheproof runs every vector of the primitives that records use, through the functions that
// records call. TLS 1.3 has nonces of 12 bytes only, so vectors with others have to be refused.
func TestWycheproof(t *testing.T) {
	aeads := []struct {
		file string
		make func(key []byte) (cipher.AEAD, error)
		runs int // vectors with nonces of 12 bytes
	}{
		{"aes_gcm_test.json", vaesgcm.New, 197},
		{"chacha20_poly1305_test.json", chacha20poly1305.New, 316},
	}
	for _, test := range aeads {
		t.Run(test.file, func(t *testing.T) {
			file, runs, refused := readVectors(t, test.file), 0, 0
			for _, group := range file.TestGroups {
				for _, v := range group.Tests {
					aead, err := test.make(unhex(t, v.Key))
					require.NoError(t, err)
					if group.IvSize != 8*aead.NonceSize() {
						require.Panics(t, func() { aead.Seal(nil, unhex(t, v.Iv), nil, nil) }, "%d", v.TcID)
						refused++
						continue
					}
					runVector(t, aead, v)
					runs++
				}
			}
			require.Equal(t, test.runs, runs)
			require.Equal(t, file.NumberOfTests, runs+refused)
			t.Logf("%d vectors run, and %d nonces of other lengths refused", runs, refused)
		})
	}
	for name, id := range map[string]uint16{
		"hkdf_sha256_test.json": tls.TLS_AES_128_GCM_SHA256, "hkdf_sha384_test.json": tls.TLS_AES_256_GCM_SHA384,
	} {
		t.Run(name, func(t *testing.T) {
			s, err := suiteOf(id)
			require.NoError(t, err)
			file, runs := readVectors(t, name), 0
			for _, group := range file.TestGroups {
				for _, v := range group.Tests {
					secret, err := hkdf.Extract(s.hash, unhex(t, v.Ikm), unhex(t, v.Salt))
					require.NoError(t, err)
					got, err := hkdf.Expand(s.hash, secret, string(unhex(t, v.Info)), v.Size)
					if v.Result == "valid" {
						require.NoError(t, err, "%d: %s", v.TcID, v.Comment)
						require.Equal(t, unhex(t, v.Okm), got, "%d: %s", v.TcID, v.Comment)
					} else {
						require.Error(t, err, "%d: %s", v.TcID, v.Comment)
					}
					runs++
				}
			}
			require.Equal(t, file.NumberOfTests, runs)
			t.Logf("%d vectors run", runs)
		})
	}
}

// runVector seals and opens a vector, in place and to another place.
func runVector(t *testing.T, aead cipher.AEAD, v vector) {
	t.Helper()
	nonce, additional, plain := unhex(t, v.Iv), unhex(t, v.Aad), unhex(t, v.Msg)
	want := append(unhex(t, v.Ct), unhex(t, v.Tag)...)
	got := aead.Seal(nil, nonce, plain, additional)
	inPlace := append(bytes.Clone(plain), make([]byte, aead.Overhead())...)
	require.Equal(t, got, aead.Seal(inPlace[:0], nonce, inPlace[:len(plain)], additional))
	opened, err := aead.Open(nil, nonce, want, additional)
	same := bytes.Clone(want)
	_, errSame := aead.Open(same[:0], nonce, same, additional)
	if v.Result != "valid" {
		require.NotEqual(t, want, got, "%d: %s", v.TcID, v.Comment)
		require.Error(t, err, "%d: %s", v.TcID, v.Comment)
		require.Error(t, errSame, "%d: %s", v.TcID, v.Comment)
		return
	}
	require.Equal(t, want, got, "%d: %s", v.TcID, v.Comment)
	require.NoError(t, err, "%d: %s", v.TcID, v.Comment)
	require.NoError(t, errSame, "%d: %s", v.TcID, v.Comment)
	require.True(t, bytes.Equal(plain, opened), "%d: %s", v.TcID, v.Comment)
	require.True(t, bytes.Equal(plain, same[:len(plain)]), "%d: %s", v.TcID, v.Comment)
}
