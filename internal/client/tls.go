package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
)

// TLS lets certificates that CAs vouch for take the place of keys. It names files, PEM, which are read again when they have changed. The zero TLS is
// keys.
type TLS struct {
	CA   string // of the CAs that vouch for servers, or SystemCA; "": servers are known by their keys. Then none is known by its key
	Cert string // of this client's certificate, with those of intermediate CAs behind it; "" is none: the server knows the client by its key
	Key  string // of its private key
}

// openTLS reads what the options name.
func (c *Client) openTLS() (err error) {
	t := &c.opt.TLS
	if err := session.BothOrNone(t.Cert, t.Key); err != nil {
		return err
	}
	if t.CA != "" && c.pin != "" {
		return session.Usage("leave one of the two out", "a server is known by its key, or by a certificate of a CA, but not by both")
	}
	tell := func(err error) {
		if err != nil && c.opt.Notice != nil {
			c.opt.Notice(fmt.Sprintf("going on with the certificates as they were: %v", err))
		}
	}
	if t.CA != "" {
		if c.authorities, err = identity.OpenAuthorities(t.CA, "", tell); err != nil {
			return session.CertificateError(err)
		}
	}
	if t.Cert != "" {
		if c.pair, err = identity.OpenKeyPair(t.Cert, t.Key, tell); err != nil {
			return session.CertificateError(err)
		}
	}
	return nil
}

// transportTo is what every connection to a server has.
func (c *Client) transportTo(u session.URL) transport.Config {
	cfg := transport.Config{Identity: c.key}
	if c.pair != nil {
		cfg.Certificate = c.pair.Certificate
	}
	if c.authorities != nil {
		cfg.Verify = func(chain []*x509.Certificate) error {
			_, err := c.authorities.Now().Check(chain, x509.ExtKeyUsageServerAuth, u.Host, time.Now())
			if bad := (*identity.CertificateError)(nil); errors.As(err, &bad) {
				return &session.Error{Kind: session.KindTrust, Err: fmt.Errorf("the certificate of %s %s", serverOf(u), bad.Problem), Remedy: bad.Remedy}
			}
			return err
		}
	}
	return cfg
}

// knows tells whether there is something to hold what a server presents against, so that nobody has to be asked.
func (c *Client) knows(u session.URL) (bool, error) {
	if c.authorities != nil {
		return true, nil
	}
	_, known, err := c.store.KnownServer(u.Address())
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
