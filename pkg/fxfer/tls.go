package fxfer

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/transport"
)

// SystemCA in the place of a file is the CAs that the system trusts.
const SystemCA = identity.SystemCA

// TLS lets certificates that CAs vouch for take the place of keys. It names files, PEM, which are read again when they have changed. The zero TLS is
// keys.
type TLS struct {
	CA   string // of the CAs that vouch for servers, or SystemCA; "": servers are known by their keys. Then none is known by its key
	Cert string // of this client's certificate, with those of intermediate CAs behind it; "" is none: the server knows the client by its key
	Key  string // of its private key
}

// ServerTLS lets a server and clients know each other by certificates, beside those that know each other by keys. It names files, PEM, which are read again
// when they have changed.
type ServerTLS struct {
	Cert string // of the certificate that clients get that ask for one, with those of intermediate CAs behind it; "" is none
	Key  string // of its private key

	ClientCA  string // of the CAs that vouch for clients, or SystemCA; "" is none: clients are known by their keys
	ClientCRL string // what these have revoked, for each CA that has signed a client's certificate, PEM or DER; "" is not asked
}

// files are those that are named.
func (t *ServerTLS) files() (all []string) {
	for _, name := range []string{t.Cert, t.Key, t.ClientCA, t.ClientCRL} {
		if name != "" && name != SystemCA {
			all = append(all, name)
		}
	}
	return all
}

// folders are where the files are, and where they are if they are symlinks.
func (t *ServerTLS) folders() (all []string) {
	for _, name := range t.files() {
		all = append(all, filepath.Dir(name))
		if target, err := filepath.EvalSymlinks(name); err == nil {
			all = append(all, filepath.Dir(target))
		}
	}
	return all
}

// Check reads the files and says what is wrong with them, and in which.
func (t *ServerTLS) Check() (file string, err error) {
	if err := bothOrNone(t.Cert, t.Key); err != nil {
		return t.Cert + t.Key, err
	}
	if t.ClientCRL != "" && t.ClientCA == "" {
		return t.ClientCRL, usage("name them", "revoked certificates are those of clients' CAs, and there are none")
	}
	if t.Cert != "" {
		if _, err := identity.OpenKeyPair(t.Cert, t.Key, nil); err != nil {
			return t.Cert, tlsError(err)
		}
	}
	if t.ClientCA != "" {
		if _, err := identity.OpenAuthorities(t.ClientCA, "", nil); err != nil {
			return t.ClientCA, tlsError(err)
		}
	}
	if t.ClientCRL != "" {
		if _, err := identity.OpenAuthorities(t.ClientCA, t.ClientCRL, nil); err != nil {
			return t.ClientCRL, tlsError(err)
		}
	}
	return "", nil
}

func bothOrNone(cert, key string) error {
	if (cert == "") != (key == "") {
		return usage("name both", "a certificate and its key belong together")
	}
	return nil
}

// tlsError is that of a file of certificates.
func tlsError(err error) error {
	kind := KindUsage
	if errors.As(err, new(*fs.PathError)) {
		kind = KindLocalDisk
	}
	return &Error{Kind: kind, Err: err}
}

// openTLS reads what the options name.
func (c *Client) openTLS() (err error) {
	t := &c.opt.TLS
	if err := bothOrNone(t.Cert, t.Key); err != nil {
		return err
	}
	if t.CA != "" && c.pin != "" {
		return usage("leave one of the two out", "a server is known by its key, or by a certificate of a CA, but not by both")
	}
	tell := func(err error) {
		if err != nil && c.opt.Notice != nil {
			c.opt.Notice(fmt.Sprintf("going on with the certificates as they were: %v", err))
		}
	}
	if t.CA != "" {
		if c.authorities, err = identity.OpenAuthorities(t.CA, "", tell); err != nil {
			return tlsError(err)
		}
	}
	if t.Cert != "" {
		if c.pair, err = identity.OpenKeyPair(t.Cert, t.Key, tell); err != nil {
			return tlsError(err)
		}
	}
	return nil
}

// transportTo is what every connection to a server has.
func (c *Client) transportTo(u URL) transport.Config {
	cfg := transport.Config{Identity: c.key}
	if c.pair != nil {
		cfg.Certificate = c.pair.Certificate
	}
	if c.authorities != nil {
		cfg.Verify = func(chain []*x509.Certificate) error {
			_, err := c.authorities.Now().Check(chain, x509.ExtKeyUsageServerAuth, u.Host, time.Now())
			if bad := (*identity.CertificateError)(nil); errors.As(err, &bad) {
				return &Error{Kind: KindTrust, Err: fmt.Errorf("the certificate of %s %s", serverOf(u), bad.Problem), Remedy: bad.Remedy}
			}
			return err
		}
	}
	return cfg
}

// knows tells whether there is something to hold what a server presents against, so that nobody has to be asked.
func (c *Client) knows(u URL) (bool, error) {
	if c.authorities != nil {
		return true, nil
	}
	_, known, err := c.store.KnownServer(u.address())
	if err != nil {
		return false, trustError(err)
	}
	return known || u.Pin != "" || c.pin != "", nil
}

// refusedCertificate tells whether a server's TLS has ended a connection for the certificate that it was shown (RFC 8446, section 6.2).
func refusedCertificate(err error) bool {
	var alert tls.AlertError
	return errors.As(err, &alert) && (alert >= 42 && alert <= 46 || alert == 48)
}

// endsSoon tells whether it is time to say that what is valid from one time until another ends: in its last 14 days, or in its last quarter if that is
// shorter, as of certificates that are good for a day.
func endsSoon(from, until, now time.Time) bool {
	return !until.IsZero() && until.Sub(now) < min(14*24*time.Hour, until.Sub(from)/4)
}
