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
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

const (
	// maxPath bounds the certificates that a peer presents. The cost of finding a way from the
	// first one to a CA grows with their factorial.
	maxPath = 4
	// maxPathBytes bounds their size. quic-go takes 16 KiB of a handshake at each level
	// (MaxCryptoStreamOffset). The rest is for a signature and extensions.
	maxPathBytes = 14 << 10

	minRSA = 2048 // bits
)

// KeyPair is a certificate with its private key. It reads the files again when they change. Its
// methods are safe for concurrent use.
type KeyPair struct{ files *watched[*tls.Certificate] }

// OpenKeyPair reads a certificate, those of intermediate CAs behind it, and its private key:
// Ed25519, ECDSA or RSA. Both files are PEM. Later it calls tell with nil when the files were
// renewed, and with an error when their new content cannot be used and the previous pair stays in
// use.
func OpenKeyPair(cert, key string, tell func(error)) (*KeyPair, error) {
	files, err := watch([]string{cert, key}, func(texts [][]byte) (*tls.Certificate, error) {
		return parseKeyPair(cert, texts[0], key, texts[1])
	}, tell)
	if err != nil {
		return nil, err
	}
	return &KeyPair{files}, nil
}

// Certificate returns the pair, with Leaf. The caller must not change it.
func (k *KeyPair) Certificate() *tls.Certificate { return k.files.get() }

// Renew reads the files now, if they changed.
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
		return nil, fmt.Errorf("%s has %d certificates of %d bytes: a handshake has room for %d of %d bytes; leave out the root's", certPath, len(chain), size, maxPath, maxPathBytes)
	}
	if bytes.Contains(key, []byte("ENCRYPTED")) {
		return nil, fmt.Errorf("%s is encrypted, and fxfer cannot ask for its password", keyPath)
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

// parseCertificates reads one or more PEM blocks CERTIFICATE, and skips other blocks.
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

// SystemCA means the CAs that the system trusts. It stands in place of a file name.
const SystemCA = "system"

// Authorities are trusted CAs and their revocation lists. They read the files again when they
// change. Their methods are safe for concurrent use.
type Authorities struct{ files *watched[*Vouchers] }

// Vouchers are Authorities as they were at one moment.
type Vouchers struct {
	roots   *x509.CertPool
	lists   []*revocations
	revokes bool // revocation lists are required
}

// OpenAuthorities reads certificates of CAs (PEM), or uses those of the system. It reads the
// revocation lists in crl (PEM or DER), unless that is "". It calls tell like OpenKeyPair.
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

// Now returns the present CAs and lists. The pointer is another one after they changed.
func (a *Authorities) Now() *Vouchers { return a.files.get() }

// Renew reads the files now, if they changed.
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

// CertificateError says why a certificate is rejected.
type CertificateError struct {
	Problem string // what the certificate is or does, such as "has expired"
	Remedy  string
}

func (e *CertificateError) Error() string { return "the certificate " + e.Problem }

// Hint says how to repair it.
func (e *CertificateError) Hint() string { return e.Remedy }

// Check finds a way from a chain that a peer presented, leaf first, to one of the CAs, and returns
// that way. The leaf must be for use and, unless host is "", for that DNS name or address. All
// certificates must be valid at the given time, and none may be revoked. A CA with name constraints
// vouches only for kinds of names that they cover. Errors are *CertificateError.
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
		err := covered(path, host)
		if err == nil {
			err = v.revoked(path, at)
		}
		if err == nil {
			return path, nil
		}
		first = cmp.Or(first, err)
	}
	return nil, first
}

// covered returns an error if a CA of a path has name constraints, but none for the kind of the
// name that counts: host, or the client's name if host is "". Constraints restrict only names of
// their own kind (RFC 5280, section 4.2.1.10), so that CA could issue any other name.
func covered(path []*x509.Certificate, host string) error {
	kind := dnsKind
	if host == "" {
		name, err := NameOf(path[0])
		if err != nil {
			return &CertificateError{Problem: "is rejected: " + err.Error()}
		}
		kind, _, _ = strings.Cut(string(name), ":")
		kind += ":"
	} else if _, err := netip.ParseAddr(host); err == nil {
		kind = addressKind
	}
	for _, ca := range path[1:] {
		if constrained(ca) && !constrains(ca, kind) {
			return &CertificateError{
				fmt.Sprintf("has a name of the kind %q, which the name constraints of the CA %q do not cover", strings.TrimSuffix(kind, ":"), ca.Subject),
				"ask the CA for one with a name of a kind that its constraints cover",
			}
		}
	}
	return nil
}

// addressKind is the kind of an IP address, which no Principal has.
const addressKind = "ip:"

// nameConstraints is the extension of RFC 5280, section 4.2.1.10.
var nameConstraints = asn1.ObjectIdentifier{2, 5, 29, 30}

func constrained(ca *x509.Certificate) bool {
	return slices.ContainsFunc(ca.Extensions, func(x pkix.Extension) bool { return x.Id.Equal(nameConstraints) })
}

// constrains reports whether a CA has constraints for names of a kind. Nothing constrains common
// names.
func constrains(ca *x509.Certificate, kind string) bool {
	switch kind {
	case uriKind:
		return len(ca.PermittedURIDomains)+len(ca.ExcludedURIDomains) > 0
	case dnsKind:
		return len(ca.PermittedDNSDomains)+len(ca.ExcludedDNSDomains) > 0
	case emailKind:
		return len(ca.PermittedEmailAddresses)+len(ca.ExcludedEmailAddresses) > 0
	case addressKind:
		return len(ca.PermittedIPRanges)+len(ca.ExcludedIPRanges) > 0
	}
	return false
}

// when is the layout in which errors show times of certificates.
const when = "2006-01-02 15:04 MST"

// explain says in words for people why a certificate is rejected.
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
			whose = fmt.Sprintf("is signed by %q, whose certificate ", c.Subject)
		}
		if at.Before(c.NotBefore) {
			return &CertificateError{whose + "is not valid before " + c.NotBefore.UTC().Format(when), "is a clock wrong?"}
		}
		return &CertificateError{whose + "expired on " + c.NotAfter.UTC().Format(when), "renew it"}
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		of, name := "clients", "clientAuth"
		if use == x509.ExtKeyUsageServerAuth {
			of, name = "servers", "serverAuth"
		}
		return &CertificateError{"is not for " + of + ": its extended key usage lacks " + name, "ask the CA for one with " + name}
	case errors.As(err, &host):
		names := slices.Clone(leaf.DNSNames)
		for _, ip := range leaf.IPAddresses {
			names = append(names, ip.String())
		}
		for len(names) > 8 {
			names = append(names[:7], "…")
		}
		if len(names) == 0 {
			return &CertificateError{"names no DNS name and no address, but has to name " + host.Host, "ask the CA for one with subject alternative names"}
		}
		return &CertificateError{"is for " + strings.Join(names, ", ") + ", not for " + host.Host, "use one of these names, or ask the CA for a certificate with this one"}
	case errors.As(err, &unknown):
		remedy := "trust the CA that signed it, or send the certificates of intermediate CAs with it"
		if bytes.Equal(leaf.RawSubject, leaf.RawIssuer) {
			return &CertificateError{"signed itself and is not trusted here", "trust the certificate itself, or have a CA sign it"}
		}
		return &CertificateError{fmt.Sprintf("is signed by %q, which leads to no CA that is trusted here", leaf.Issuer), remedy}
	}
	return &CertificateError{"is refused: " + err.Error(), ""}
}
