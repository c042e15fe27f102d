package tlsrecord

import (
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"hash"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/fxfer/fxfer/internal/transport/tlsrecord/vaesgcm"
)

// suite is the part of a cipher suite that the record protocol uses.
type suite struct {
	keyLen int
	hash   func() hash.Hash
	aead   func(key []byte) (cipher.AEAD, error)
}

func suiteOf(id uint16) (suite, error) {
	switch id {
	case tls.TLS_AES_128_GCM_SHA256:
		return suite{16, sha256.New, vaesgcm.New}, nil
	case tls.TLS_AES_256_GCM_SHA384:
		return suite{32, sha512.New384, vaesgcm.New}, nil
	case tls.TLS_CHACHA20_POLY1305_SHA256:
		return suite{chacha20poly1305.KeySize, sha256.New, chacha20poly1305.New}, nil
	}
	return suite{}, fmt.Errorf("cipher suite %s is not supported", tls.CipherSuiteName(id))
}

// expandLabel is HKDF-Expand-Label with an empty context (RFC 8446, section 7.1).
func expandLabel(s suite, secret []byte, label string, length int) ([]byte, error) {
	info := binary.BigEndian.AppendUint16(nil, uint16(length))
	info = append(info, byte(len("tls13 ")+len(label)))
	info = append(info, "tls13 "+label...)
	info = append(info, 0)
	return hkdf.Expand(s.hash, secret, string(info), length)
}

// half holds the keys of one direction (RFC 8446, sections 5.3 and 7.3).
type half struct {
	suite  suite
	secret []byte
	aead   cipher.AEAD
	iv     [12]byte
	nonce  [12]byte // scratch: a local variable would be allocated for each record
	seq    uint64   // records under the present key
}

// setSecret starts a new key with sequence number 0.
func (h *half) setSecret(s suite, secret []byte) error {
	key, err := expandLabel(s, secret, "key", s.keyLen)
	if err != nil {
		return fmt.Errorf("derive traffic key: %w", err)
	}
	iv, err := expandLabel(s, secret, "iv", len(h.iv))
	if err != nil {
		return fmt.Errorf("derive traffic iv: %w", err)
	}
	aead, err := s.aead(key)
	if err != nil {
		return fmt.Errorf("make traffic cipher: %w", err)
	}
	h.suite, h.secret, h.aead, h.seq = s, secret, aead, 0
	copy(h.iv[:], iv)
	return nil
}

// update moves on to the next generation of keys (RFC 8446, section 7.2).
func (h *half) update() error {
	secret, err := expandLabel(h.suite, h.secret, "traffic upd", h.suite.hash().Size())
	if err != nil {
		return fmt.Errorf("derive next traffic secret: %w", err)
	}
	return h.setSecret(h.suite, secret)
}

// next returns the nonce of the next record; it is valid until the next call.
func (h *half) next() []byte {
	h.nonce = h.iv
	tail := h.nonce[4:]
	binary.BigEndian.PutUint64(tail, binary.BigEndian.Uint64(tail)^h.seq)
	h.seq++
	return h.nonce[:]
}
