package identity

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

const (
	// maxPath bounds the certificates that a peer presents. What it costs to look for a way from the first to a CA grows with their factorial.
	maxPath = 4
	// maxPathBytes bounds them, too: quic-go takes 16 KiB of a handshake at each level (MaxCryptoStreamOffset), which leaves room for a signature and extensions.
	maxPathBytes = 14 << 10

	minRSA = 2048 // bits
)

// KeyPair is a certificate with its private key, in files that are read again when they have changed. Its methods may be called concurrently.
type KeyPair struct{ files *watched[*tls.Certificate] }

// OpenKeyPair reads a certificate and those of intermediate CAs behind it, and its private key, Ed25519, ECDSA or RSA; both PEM. tell is called later
// with nil when they have been renewed, and with an error when what they hold now can't be used, so that the ones before remain.
func OpenKeyPair(cert, key string, tell func(error)) (*KeyPair, error) {
	files, err := watch([]string{cert, key}, func(texts [][]byte) (*tls.Certificate, error) {
		return parseKeyPair(cert, texts[0], key, texts[1])
	}, tell)
	if err != nil {
		return nil, err
	}
	return &KeyPair{files}, nil
}

// Certificate returns the pair, with Leaf. It must not be changed.
func (k *KeyPair) Certificate() *tls.Certificate { return k.files.get() }

// Renew reads the files now, if they have changed.
func (k *KeyPair) Renew() { k.files.look() }

func parseKeyPair(certPath string, cert []byte, keyPath string, key []byte) (*tls.Certificate, error) {
	chain, err := parseCertificates(certPath, cert)
	if err != nil {
		return nil, err
	}
	size := 0
	for _, c := range chain {
		size += len(c.Raw)
	}
	if len(chain) > maxPath || size > maxPathBytes {
		return nil, fmt.Errorf("%s has %d certificates of %d bytes: a handshake has room for %d of %d bytes; the root's can be left out", certPath, len(chain), size, maxPath, maxPathBytes)
	}
	if bytes.Contains(key, []byte("ENCRYPTED")) {
		return nil, fmt.Errorf("%s is encrypted: nobody is there to ask for its password", keyPath)
	}
	if block, _ := pem.Decode(key); block == nil {
		return nil, fmt.Errorf("%s has no PEM block", keyPath)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", certPath, keyPath, err)
	}
	switch k := pair.PrivateKey.(type) {
	case ed25519.PrivateKey:
	case *ecdsa.PrivateKey:
		if k.Curve == elliptic.P224() {
			return nil, fmt.Errorf("%s has a key on the curve P-224, which TLS 1.3 does not know", keyPath)
		}
	case *rsa.PrivateKey:
		if n := k.N.BitLen(); n < minRSA {
			return nil, fmt.Errorf("%s has an RSA key of %d bits: expected %d or more", keyPath, n, minRSA)
		}
	}
	pair.Leaf = chain[0]
	return &pair, nil
}

// parseCertificates reads one PEM block CERTIFICATE or more; others are left out.
func parseCertificates(path string, text []byte) (all []*x509.Certificate, err error) {
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: certificate %d: %w", path, len(all)+1, err)
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no PEM block CERTIFICATE", path)
	}
	return all, nil
}

// SystemCA in the place of a file is the CAs that the system trusts.
const SystemCA = "system"

// Authorities are CAs that are trusted, and what they have revoked, in files that are read again when they have changed. Their methods may be
// called concurrently.
type Authorities struct{ files *watched[*Vouchers] }

// Vouchers are Authorities at a moment.
type Vouchers struct {
	roots   *x509.CertPool
	lists   []*revocations
	revokes bool // lists count
}

// OpenAuthorities reads certificates of CAs, PEM, or takes those of the system, and the revocation lists in crl, PEM or DER, unless that is "". tell is
// as of OpenKeyPair.
func OpenAuthorities(ca, crl string, tell func(error)) (*Authorities, error) {
	var paths []string
	if ca != SystemCA {
		paths = append(paths, ca)
	}
	if crl != "" {
		paths = append(paths, crl)
	}
	files, err := watch(paths, func(texts [][]byte) (*Vouchers, error) { return parseAuthorities(ca, crl, texts) }, tell)
	if err != nil {
		return nil, err
	}
	return &Authorities{files}, nil
}

// Now returns the present ones: another pointer when they have changed.
func (a *Authorities) Now() *Vouchers { return a.files.get() }

// Renew reads the files now, if they have changed.
func (a *Authorities) Renew() { a.files.look() }

func parseAuthorities(ca, crl string, texts [][]byte) (*Vouchers, error) {
	v := &Vouchers{revokes: crl != ""}
	var all []*x509.Certificate
	var err error
	if ca == SystemCA {
		if v.roots, err = x509.SystemCertPool(); err != nil {
			return nil, fmt.Errorf("the CAs of this system: %w", err)
		}
	} else {
		if all, err = parseCertificates(ca, texts[0]); err != nil {
			return nil, err
		}
		v.roots = x509.NewCertPool()
		for _, c := range all {
			v.roots.AddCert(c)
		}
	}
	if crl != "" {
		v.lists, err = parseRevocations(crl, texts[len(texts)-1], all)
	}
	return v, err
}

// CertificateError says why a certificate is not accepted.
type CertificateError struct {
	Problem string // what the certificate is or does, such as "has expired"
	Remedy  string
}

func (e *CertificateError) Error() string { return "the certificate " + e.Problem }

// Hint says what to do about it.
func (e *CertificateError) Hint() string { return e.Remedy }

// Check looks for a way from a chain that a peer has presented, leaf first, to one of the CAs, and returns it. The leaf must be for use and, unless host
// is "", for that DNS name or address. All must be valid at a time, and nothing may be revoked now. Errors are *CertificateError.
func (v *Vouchers) Check(chain []*x509.Certificate, use x509.ExtKeyUsage, host string, at time.Time) ([]*x509.Certificate, error) {
	if len(chain) == 0 || len(chain) > maxPath {
		return nil, &CertificateError{fmt.Sprintf("comes with %d others, more than %d", len(chain)-1, maxPath-1), "only those of intermediate CAs belong behind it"}
	}
	opt := x509.VerifyOptions{Roots: v.roots, Intermediates: x509.NewCertPool(), CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{use}}
	for _, c := range chain[1:] {
		opt.Intermediates.AddCert(c)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		host = addr.WithZone("").String()
	}
	opt.DNSName = host
	paths, err := chain[0].Verify(opt)
	if err != nil {
		return nil, explain(err, chain, use, at)
	}
	var first error
	for _, path := range paths {
		err := v.revoked(path, at)
		if err == nil {
			return path, nil
		}
		first = cmp.Or(first, err)
	}
	return nil, first
}

// when is how times of certificates are shown.
const when = "2006-01-02 15:04 MST"

// explain says what is wrong with a certificate, in words for people.
func explain(err error, chain []*x509.Certificate, use x509.ExtKeyUsage, at time.Time) *CertificateError {
	leaf := chain[0]
	var invalid x509.CertificateInvalidError
	var host x509.HostnameError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		c := cmp.Or(invalid.Cert, leaf)
		whose := ""
		if !c.Equal(leaf) {
			whose = fmt.Sprintf("is signed by %q, whose own ", c.Subject)
		}
		if at.Before(c.NotBefore) {
			return &CertificateError{whose + "is not valid before " + c.NotBefore.UTC().Format(when), "is a clock wrong?"}
		}
		return &CertificateError{whose + "has expired on " + c.NotAfter.UTC().Format(when), "renew it"}
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		of, name := "clients", "clientAuth"
		if use == x509.ExtKeyUsageServerAuth {
			of, name = "servers", "serverAuth"
		}
		return &CertificateError{"is not for " + of + ": its extended key usage lacks " + name, "have one issued with " + name}
	case errors.As(err, &host):
		names := slices.Clone(leaf.DNSNames)
		for _, ip := range leaf.IPAddresses {
			names = append(names, ip.String())
		}
		for len(names) > 8 {
			names = append(names[:7], "…")
		}
		if len(names) == 0 {
			return &CertificateError{"is for no DNS name and no address, but expected for " + host.Host, "have one issued with subject alternative names"}
		}
		return &CertificateError{"is for " + strings.Join(names, ", ") + ", not for " + host.Host, "use one of these names, or have one issued for this"}
	case errors.As(err, &unknown):
		remedy := "trust the CA that has signed it, or let the certificates of intermediate CAs be sent with it"
		if bytes.Equal(leaf.RawSubject, leaf.RawIssuer) {
			return &CertificateError{"is signed by itself, and not trusted here", "trust the certificate itself, or have a CA sign it"}
		}
		return &CertificateError{fmt.Sprintf("is signed by %q, which leads to no CA that is trusted here", leaf.Issuer), remedy}
	}
	return &CertificateError{"is refused: " + err.Error(), ""}
}
