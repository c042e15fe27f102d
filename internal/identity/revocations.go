package identity

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"sync"
	"time"
)

// revocations is one revocation list of a CA.
type revocations struct {
	x509.RevocationList
	since map[string]time.Time // time of revocation by the bytes of a serial number

	mu     sync.Mutex        // guards what follows
	issuer map[[32]byte]bool // whether a CA's certificate, by its digest, signed the list; only CAs on a way to a trusted one
}

// parseRevocations reads PEM blocks X509 CRL, or one list in DER. If the CA of a list is known, it
// must have signed the list.
func parseRevocations(path string, text []byte, known []*x509.Certificate) (all []*revocations, err error) {
	var ders [][]byte
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type == "X509 CRL" {
			ders = append(ders, block.Bytes)
		}
	}
	if len(ders) == 0 {
		ders = [][]byte{text}
	}
	for i, der := range ders {
		list, err := x509.ParseRevocationList(der)
		if err == nil {
			err = whole(list)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: revocation list %d: %w", path, i+1, err)
		}
		r := &revocations{since: make(map[string]time.Time, len(list.RevokedCertificateEntries)), issuer: make(map[[32]byte]bool)}
		r.RevocationList = x509.RevocationList{ // without its entries: there may be many
			RawTBSRevocationList: list.RawTBSRevocationList, RawIssuer: list.RawIssuer, Issuer: list.Issuer, Signature: list.Signature,
			SignatureAlgorithm: list.SignatureAlgorithm, ThisUpdate: list.ThisUpdate, NextUpdate: list.NextUpdate,
		}
		named, signed := false, false
		for _, c := range known {
			named = named || bytes.Equal(c.RawSubject, list.RawIssuer)
			signed = signed || r.signedBy(c)
		}
		if named && !signed {
			return nil, fmt.Errorf("%s: revocation list %d: %q has not signed it", path, i+1, list.Issuer)
		}
		for _, x := range list.RevokedCertificateEntries {
			r.since[string(x.SerialNumber.Bytes())] = x.RevocationTime
		}
		all = append(all, r)
	}
	return all, nil
}

// Extensions of revocation lists that may be critical.
var (
	distributionID = asn1.ObjectIdentifier{2, 5, 29, 28}
	authorityKeyID = asn1.ObjectIdentifier{2, 5, 29, 35}
	numberID       = asn1.ObjectIdentifier{2, 5, 29, 20}
)

// whole refuses a list that does not cover all clients' certificates of its issuer, and a list with
// unknown critical extensions (RFC 5280, section 5.2).
func whole(list *x509.RevocationList) error {
	for _, e := range list.Extensions {
		switch {
		case !e.Critical || e.Id.Equal(authorityKeyID) || e.Id.Equal(numberID):
		case e.Id.Equal(distributionID):
			var d struct { // section 5.2.5
				Point      asn1.RawValue  `asn1:"optional,tag:0"`
				Users      bool           `asn1:"optional,tag:1"`
				CAs        bool           `asn1:"optional,tag:2"`
				Reasons    asn1.BitString `asn1:"optional,tag:3"`
				Indirect   bool           `asn1:"optional,tag:4"`
				Attributes bool           `asn1:"optional,tag:5"`
			}
			if rest, err := asn1.Unmarshal(e.Value, &d); err != nil || len(rest) > 0 {
				return errors.New("its distribution point is damaged")
			}
			if d.CAs || d.Reasons.BitLength > 0 || d.Indirect || d.Attributes {
				return errors.New("it covers a part of the certificates only: expected a complete list")
			}
		default:
			return fmt.Errorf("it has the critical extension %v: expected a complete list without", e.Id)
		}
	}
	for _, x := range list.RevokedCertificateEntries {
		for _, e := range x.Extensions {
			if e.Critical {
				return fmt.Errorf("an entry has the critical extension %v, which is not understood", e.Id)
			}
		}
	}
	return nil
}

// signedBy reports whether a CA has signed the list. It remembers the answer.
func (r *revocations) signedBy(ca *x509.Certificate) bool {
	if !bytes.Equal(ca.RawSubject, r.RawIssuer) {
		return false
	}
	key := sha256.Sum256(ca.Raw)
	r.mu.Lock()
	defer r.mu.Unlock()
	signed, ok := r.issuer[key]
	if !ok {
		signed = r.CheckSignatureFrom(ca) == nil
		r.issuer[key] = signed
	}
	return signed
}

// revoked refuses a path if a CA has revoked one of its certificates, or if the leaf's CA has no
// valid list.
func (v *Vouchers) revoked(path []*x509.Certificate, at time.Time) error {
	if !v.revokes {
		return nil
	}
	for i, c := range path[:len(path)-1] {
		found, current := false, false
		var next time.Time
		for _, r := range v.lists {
			if !r.signedBy(path[i+1]) {
				continue
			}
			found = true
			if since, ok := r.since[string(c.SerialNumber.Bytes())]; ok {
				whose := ""
				if i > 0 {
					whose = fmt.Sprintf("is signed by %q, whose certificate ", c.Subject)
				}
				return &CertificateError{whose + "was revoked on " + since.UTC().Format(when), "ask the CA for another one"}
			}
			current = current || r.NextUpdate.IsZero() || at.Before(r.NextUpdate)
			if r.NextUpdate.After(next) {
				next = r.NextUpdate
			}
		}
		issuer := path[i+1].Subject
		switch {
		case found && !current:
			return &CertificateError{fmt.Sprintf("may be revoked: the revocation list of %q ended on %s", issuer, next.UTC().Format(when)), "renew the revocation list"}
		case !found && i == 0:
			return &CertificateError{fmt.Sprintf("may be revoked: there is no revocation list of %q", issuer), "add the list of this CA to the file"}
		}
	}
	return nil
}

// ListExpiry returns when the revocation list that ends first becomes valid and when it ends, zero
// if no list ends.
func (v *Vouchers) ListExpiry() (from, until time.Time) {
	for _, r := range v.lists {
		if !r.NextUpdate.IsZero() && (until.IsZero() || r.NextUpdate.Before(until)) {
			from, until = r.ThisUpdate, r.NextUpdate
		}
	}
	return from, until
}
