package identity

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// Key returns this host's private key. The first call makes it and writes it to the file key.pem
// (PEM, PKCS #8, mode 0600). All processes that use the folder get the same key. On Unix, Key
// refuses a file that others than its owner may read or write.
func (s *Store) Key() (ed25519.PrivateKey, error) {
	if s.key != nil {
		return s.key, nil
	}
	return s.keyIn(keyFile)
}

// HostKey is Key for the key by which clients of ssh know this host, in ssh_host_key.pem. It is a
// key of its own: what one protocol signs must mean nothing in another.
func (s *Store) HostKey() (ed25519.PrivateKey, error) { return s.keyIn(hostKeyFile) }

func (s *Store) keyIn(name string) (ed25519.PrivateKey, error) {
	if s.key != nil {
		return nil, errEphemeral
	}
	key, err := s.loadKey(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	// Another process may have made the key while this one waited for the lock.
	key, err = s.loadKey(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	_, key, err = ed25519.GenerateKey(nil)
	if err != nil {
		return nil, fmt.Errorf("make an identity: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("make an identity: %w", err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err := WriteFile(s.path(name), text, 0o600); err != nil {
		return nil, err
	}
	return key, nil
}

func (s *Store) loadKey(name string) (ed25519.PrivateKey, error) {
	path := s.path(name)
	data, _, err := readFile(path, 0o077, "others may read or change this private key", "chmod 600 ")
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, badKey(path, "it has no PEM block PRIVATE KEY")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, badKey(path, "its PKCS #8 block is damaged")
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, badKey(path, "its key is not an Ed25519 key")
	}
	return key, nil
}

func badKey(path, why string) error {
	return &hintError{
		fmt.Errorf("%s is not a key of fxfer: %s", path, why),
		"restore it from a backup, or move it away to get a new key, which every peer has to admit again",
	}
}

const pinPrefix = "ed25519:"

// Pin is a public key as text: "ed25519:" and the 32 bytes in unpadded base64url (43 characters). A
// key has exactly one Pin, so Pins are compared with ==. Make one with PinOf or ParsePin.
type Pin string

// PinOf returns the pin of key, which must be ed25519.PublicKeySize bytes long.
func PinOf(key ed25519.PublicKey) Pin {
	if len(key) != ed25519.PublicKeySize {
		panic(fmt.Sprintf("identity: public key of %d bytes", len(key)))
	}
	return Pin(pinPrefix + base64.RawURLEncoding.EncodeToString(key))
}

// ParsePin reads a pin, with or without its prefix "ed25519:".
func ParsePin(s string) (Pin, error) {
	pin := Pin(pinPrefix + strings.TrimPrefix(s, pinPrefix))
	if _, err := pin.Key(); err != nil {
		return "", notKey(s)
	}
	return pin, nil
}

// Key returns the public key. It fails for a Pin that PinOf and ParsePin did not make.
func (p Pin) Key() (ed25519.PublicKey, error) {
	key, err := base64.RawURLEncoding.DecodeString(p.Bare())
	// Decoding accepts line ends and stray last bits, but a pin must have only one spelling.
	if err != nil || len(key) != ed25519.PublicKeySize || PinOf(key) != p {
		return nil, notKey(string(p))
	}
	return key, nil
}

// notKey is the error of a text, as the user wrote it, that is not a key.
func notKey(s string) error {
	return fmt.Errorf("%q is not a key: expected ed25519: and 43 characters A-Z a-z 0-9 - _", clip(s))
}

// Bare returns the pin without its prefix.
func (p Pin) Bare() string { return strings.TrimPrefix(string(p), pinPrefix) }

// PinOfPrivate returns the pin of the public half of a key.
func PinOfPrivate(key ed25519.PrivateKey) Pin { return PinOf(key.Public().(ed25519.PublicKey)) }

// Short returns an abbreviation for progress lines and logs. Never compare it to trust a key: only
// the whole Pin identifies one.
func (p Pin) Short() string {
	const shown = len(pinPrefix) + 10
	if len(p) <= shown {
		return string(p)
	}
	return string(p[:shown]) + "…"
}

// clip shortens text of unknown origin for a message.
func clip(s string) string {
	const limit = 60
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "…"
}
