package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"time"
)

// DoorCertificate returns the certificate by which clients of older protocols know this host if no
// CA has signed another one. The first call makes it for these names, signs it by itself, and writes
// it with its key to the file door_certificate.pem (mode 0600). It is ECDSA on P-256: many such
// clients do not know Ed25519.
func (s *Store) DoorCertificate(names ...string) (*tls.Certificate, error) {
	if s.key != nil {
		return nil, errEphemeral
	}
	pair, err := s.loadDoorCertificate()
	if !errors.Is(err, fs.ErrNotExist) {
		return pair, err
	}
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	pair, err = s.loadDoorCertificate() // another process may have made it
	if !errors.Is(err, fs.ErrNotExist) {
		return pair, err
	}
	text, err := makeCertificate(names, s.now())
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	if err := WriteFile(s.path(doorCertFile), text, 0o600); err != nil {
		return nil, err
	}
	return s.loadDoorCertificate()
}

func (s *Store) loadDoorCertificate() (*tls.Certificate, error) {
	path := s.path(doorCertFile)
	text, _, err := readFile(path, 0o077, "others may read or change this private key", "chmod 600 ")
	if err != nil {
		return nil, err
	}
	return parseKeyPair(path, text, path, text)
}

// makeCertificate returns a certificate that is signed by itself, and its key, as PEM.
func makeCertificate(names []string, now time.Time) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "fxfer"}, DNSNames: names,
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.AddDate(20, 0, 0), // people compare it once, by its fingerprint
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return append(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...), nil
}
