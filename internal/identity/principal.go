package identity

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Principal says who a client is, as one word of printable ASCII without "#". It is the pin of the
// client's key, or the name in a certificate that a CA vouches for, behind the kind of the name,
// such as "dns:nas.example.org", or the name of a user of a door, such as "user:scanner". A client
// has exactly one, so Principals are compared with ==. Make one from a Pin, or with NameOf,
// ParseName, ParseUser or ParsePrincipal.
type Principal string

// The kinds of names. NameOf looks for them in this order.
const (
	uriKind   = "uri:"
	dnsKind   = "dns:"
	emailKind = "email:"
	cnKind    = "cn:"
)

// maxName is the largest size of a Principal in bytes.
const maxName = 1024

// NameOf returns the client's name in a certificate: its first URI, or else its first DNS name, or
// else its first email address among the subject alternative names (RFC 5280, section 4.2.1.6), or
// else the common name of its subject. It checks nothing else.
func NameOf(cert *x509.Certificate) (Principal, error) {
	switch {
	case len(cert.URIs) > 0:
		return nameFrom(uriKind, cert.URIs[0].String())
	case len(cert.DNSNames) > 0:
		return nameFrom(dnsKind, cert.DNSNames[0])
	case len(cert.EmailAddresses) > 0:
		return nameFrom(emailKind, cert.EmailAddresses[0])
	case cert.Subject.CommonName != "":
		return nameFrom(cnKind, cert.Subject.CommonName)
	}
	return "", errors.New("it has no name: no URI, DNS name or email address, and no common name")
}

// nameFrom makes a Principal from a name in a certificate.
func nameFrom(kind, name string) (Principal, error) {
	text := name
	switch kind {
	case uriKind:
		u, err := url.Parse(name)
		if err != nil || u.Scheme == "" || u.String() != name {
			return "", fmt.Errorf("its name %q is not a plain URI", clip(name))
		}
	case dnsKind:
		text = strings.ToLower(name)
	case cnKind:
		text = escapeName(name)
	}
	if text == "" || len(kind)+len(text) > maxName || strings.ContainsFunc(text, odd) {
		return "", fmt.Errorf("its name %q can't be used: expected printable ASCII without blanks and #, %d characters at most", clip(name), maxName)
	}
	return Principal(kind + text), nil
}

// odd reports whether a character cannot stand in a Principal.
func odd(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' }

// escapeName writes odd characters, and "%", as % and two hexadecimal digits for each byte.
func escapeName(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if odd(rune(c)) || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// ParseName reads a certificate's name with its kind. Any byte of a common name may be written as %
// and two hexadecimal digits. "%" must be.
func ParseName(s string) (Principal, error) {
	kind, name, found := strings.Cut(s, ":")
	kind += ":"
	if !found || kind != uriKind && kind != dnsKind && kind != emailKind && kind != cnKind {
		return "", fmt.Errorf("%q is not the name in a certificate: expected uri:, dns:, email: or cn: and the name, such as dns:nas.example.org", clip(s))
	}
	if kind == uriKind {
		if u, err := url.Parse(name); err == nil {
			name = u.String()
		}
	}
	if kind == cnKind {
		plain, err := url.PathUnescape(name)
		if err != nil {
			return "", fmt.Errorf("%q is not a common name: expected two hexadecimal digits after %%", clip(name))
		}
		name = plain
	}
	p, err := nameFrom(kind, name)
	if err != nil {
		return "", fmt.Errorf("%q is not the name in a certificate: expected printable ASCII without blanks and #, %d characters at most", clip(s), maxName)
	}
	return p, nil
}

// userKind begins the Principals of users of a door, which no certificate can have.
const userKind = "user:"

// maxUser is the largest size of a user's name in bytes.
const maxUser = 64

// ParseUser returns the Principal of a user of a door. A name has 1 to 64 of A-Z a-z 0-9 . _ @ -
// and does not begin with a dot or a dash.
func ParseUser(name string) (Principal, error) {
	bad := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._@-", r)
	}
	if name == "" || len(name) > maxUser || name[0] == '.' || name[0] == '-' || strings.ContainsFunc(name, bad) {
		return "", fmt.Errorf("%q can't be the name of a user: expected 1 to %d of A-Z a-z 0-9 . _ @ -, and no dot or dash first", clip(name), maxUser)
	}
	return Principal(userKind + name), nil
}

// ParsePrincipal reads a certificate's name like ParseName, "user:" and a name like ParseUser, or a
// pin like ParsePin.
func ParsePrincipal(s string) (Principal, error) {
	if name, ok := strings.CutPrefix(s, userKind); ok {
		return ParseUser(name)
	}
	if name, err := ParseName(s); err == nil {
		return name, nil
	}
	if kind, _, found := strings.Cut(s, ":"); found && kind+":" != pinPrefix {
		return ParseName(s)
	}
	pin, err := ParsePin(s)
	return Principal(pin), err
}

// IsName reports whether p is a certificate's name.
func (p Principal) IsName() bool {
	return p != "" && !p.IsUser() && !strings.HasPrefix(string(p), pinPrefix)
}

// IsUser reports whether p is a user of a door.
func (p Principal) IsUser() bool { return strings.HasPrefix(string(p), userKind) }

// Short abbreviates a pin for progress lines and logs. Never compare it to trust a client.
func (p Principal) Short() string {
	if p.IsName() || p.IsUser() {
		return string(p)
	}
	return Pin(p).Short()
}

// check returns an error unless p is what ParsePrincipal returns.
func (p Principal) check() error {
	parsed, err := ParsePrincipal(string(p))
	if err == nil && parsed != p {
		err = fmt.Errorf("%q is not written as %q", clip(string(p)), clip(string(parsed)))
	}
	return err
}
