// Package testca makes certificates for tests: a CA, the certificates that it signs, and its
// revocation lists.
package testca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// CA is a certificate with its key, which may sign others.
type CA struct {
	Cert *x509.Certificate
	Key  crypto.Signer
	up   *CA // nil of a root
}

// serial numbers all certificates and lists.
var serial atomic.Int64

// rsaKey is the only RSA key: making another takes a second under the race detector.
var rsaKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

// Key makes a key: "ecdsa" or "ed25519". For "rsa" it always returns the same key.
func Key(t testing.TB, kind string) crypto.Signer {
	t.Helper()
	var key crypto.Signer
	var err error
	switch kind {
	case "rsa":
		key, err = rsaKey()
	case "ecdsa":
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	default:
		_, key, err = ed25519.GenerateKey(rand.Reader)
	}
	require.NoError(t, err)
	return key
}

// New makes a root CA.
func New(t testing.TB, name string) *CA { return issue(t, nil, Authority(name), "ecdsa") }

// Authority is a template of a CA.
func Authority(name string) *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
}

// Server is a template of a server's certificate for 127.0.0.1 and localhost.
func Server() *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: "server"}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{{127, 0, 0, 1}},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
}

// Client is a template of a client's certificate.
func Client(dns string) *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: "client"}, DNSNames: []string{dns},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

// Issue signs a certificate from a template, for a key of this kind. Zero times become an hour
// before and an hour after now.
func (ca *CA) Issue(t testing.TB, template *x509.Certificate, kind string) *CA {
	return issue(t, ca, template, kind)
}

func issue(t testing.TB, up *CA, template *x509.Certificate, kind string) *CA {
	t.Helper()
	number := big.NewInt(serial.Add(1))
	template.SerialNumber = number
	if template.NotBefore.IsZero() {
		template.NotBefore = time.Now().Add(-time.Hour)
	}
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	x := &CA{Key: Key(t, kind), up: up}
	parent, by := template, x.Key
	if up != nil {
		parent, by = up.Cert, up.Key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, x.Key.Public(), by)
	require.NoError(t, err)
	x.Cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	return x
}

// Chain returns the certificate and those of the CAs above it, without the root.
func (ca *CA) Chain() (all []*x509.Certificate) {
	for x := ca; x != nil && (x.up != nil || x == ca); x = x.up {
		all = append(all, x.Cert)
	}
	return all
}

// PEM encodes certificates as text.
func PEM(certs ...*x509.Certificate) (text []byte) {
	for _, c := range certs {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return text
}

// Write puts the chain into a folder as NAME.crt and the key as NAME.key.
func (ca *CA) Write(t testing.TB, dir, name string) (cert, key string) {
	t.Helper()
	cert, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	der, err := x509.MarshalPKCS8PrivateKey(ca.Key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(cert, PEM(ca.Chain()...), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
	return cert, key
}

// Revoke makes the CA's revocation list in DER, valid for this long.
func (ca *CA) Revoke(t testing.TB, good time.Duration, certs ...*x509.Certificate) []byte {
	t.Helper()
	number := big.NewInt(serial.Add(1))
	list := &x509.RevocationList{Number: number, ThisUpdate: time.Now().Add(-time.Hour), NextUpdate: time.Now().Add(good)}
	for _, c := range certs {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: c.SerialNumber, RevocationTime: time.Now()})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, ca.Cert, ca.Key)
	require.NoError(t, err)
	return der
}
