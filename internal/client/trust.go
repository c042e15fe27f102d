package client

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
)

// TLS lets certificates replace keys. It names PEM files, which are read again when they change.
// The zero TLS uses keys.
type TLS struct {
	// CA has the certificates of the CAs that vouch for servers, or is SystemCA. Then no server is
	// known by its key. "" knows servers by their keys.
	CA string
	// Cert has this client's certificate, followed by those of intermediate CAs. "" is none: servers
	// know the client by its key.
	Cert string
	// Key has the private key of Cert.
	Key string
}

// openTLS reads the files that the options name.
func (c *Client) openTLS() (err error) {
	t := &c.opt.TLS
	if err := session.CheckKeyPair(t.Cert, t.Key); err != nil {
		return err
	}
	if t.CA != "" && c.pin != "" {
		return session.Usage("leave one of the two out", "a server is known by its key, or by a certificate of a CA, but not by both")
	}
	failed := func(err error) {
		if err != nil {
			c.notice("going on with the certificates as they were: %v", err)
		}
	}
	if t.CA != "" {
		if c.authorities, err = identity.OpenAuthorities(t.CA, "", failed); err != nil {
			return session.CertificateFileError(err)
		}
	}
	if t.Cert != "" {
		if c.pair, err = identity.OpenKeyPair(t.Cert, t.Key, failed); err != nil {
			return session.CertificateFileError(err)
		}
	}
	return nil
}

func (c *Client) ownCertificate() *tls.Certificate { return &c.own }

// transportTo configures every connection to the server of u: who we are, and how to check who it
// is.
func (c *Client) transportTo(u session.URL) transport.Config {
	cfg := transport.Config{Certificate: c.ownCertificate, Standard: c.opt.StandardCrypto, Connect: c.opt.Connect}
	if c.pair != nil {
		cfg.Certificate = c.pair.Certificate
	}
	if c.authorities != nil {
		cfg.Verify = func(chain []*x509.Certificate) error {
			_, err := c.authorities.Now().Check(chain, x509.ExtKeyUsageServerAuth, u.Host, time.Now())
			if bad := (*identity.CertificateError)(nil); errors.As(err, &bad) {
				return &session.Error{Kind: session.KindTrust, Err: fmt.Errorf("%s: %w", serverOf(u), bad)}
			}
			return err
		}
	}
	return cfg
}

// knows reports whether the key or certificate of a server, and the keys of the relays to it, can be
// checked without asking the user.
func (c *Client) knows(u session.URL) (bool, error) {
	for _, relay := range c.opt.Via {
		if relay == direct || relay.Pin != "" {
			continue
		}
		_, known, err := c.store.KnownServer(serverOf(relay))
		if err != nil {
			return false, trustError(err)
		}
		if !known {
			return false, nil
		}
	}
	if c.authorities != nil {
		return true, nil
	}
	_, known, err := c.store.KnownServer(u.Address())
	if err != nil {
		return false, trustError(err)
	}
	return known || u.Pin != "" || c.pin != "", nil
}

// refusedCertificate reports whether the server ended the TLS connection because of our certificate
// (RFC 8446, section 6.2).
func refusedCertificate(err error) bool {
	var alert tls.AlertError
	return errors.As(err, &alert) && (alert >= 42 && alert <= 46 || alert == 48)
}

// errAskFirst ends a handshake with a server whose key the user has to confirm.
type errAskFirst struct {
	server session.URL
	about  *identity.UnknownServerError
}

func (e *errAskFirst) Error() string { return "the server's key is not confirmed" }

// checkKey decides whether the server may have this key.
type checkKey func(ed25519.PublicKey) error

// expect returns the check of the server's key. With Options.Confirm, an unknown key ends the
// handshake with errAskFirst, so that the server does not wait for a person.
func (c *Client) expect(u session.URL) checkKey { return c.expectPin(u, cmp.Or(c.pin, u.Pin)) }

// expectPin is expect, where the server must have the pin want unless that is "".
func (c *Client) expectPin(u session.URL, want identity.Pin) checkKey {
	server := serverOf(u)
	return func(key ed25519.PublicKey) error {
		offered := identity.PinOf(key)
		if want != "" {
			if offered != want {
				return &session.Error{Kind: session.KindTrust, Err: fmt.Errorf("%s has the key %s, not the pinned %s", server, offered, want),
					Advice: session.AdviceCheckPin}
			}
			return nil
		}
		err := c.store.CheckServer(server, offered)
		if unknown := (*identity.UnknownServerError)(nil); errors.As(err, &unknown) && c.opt.Confirm != nil {
			return &errAskFirst{u, unknown}
		}
		if err != nil {
			return trustError(err)
		}
		return nil
	}
}

func trustError(err error) error {
	return &session.Error{Kind: session.KindTrust, Err: err}
}

// dial connects the control stream. It does not ask the user about an unknown server: the error is
// then an errAskFirst.
func (c *Client) dial(
	ctx context.Context, u session.URL, cfg transport.Config, expect checkKey,
) (transport.Conn, error) {
	if u.Pin != "" && c.authorities != nil {
		return nil, session.Usage("leave the CA out", "the invitation says by which key %s is known, not by which CA", serverOf(u))
	}
	ctx, cancel := context.WithTimeout(ctx, session.DialTimeout)
	defer cancel()
	return transport.Dial(ctx, serverOf(u), cfg, expect)
}

// confirm asks the user whether the server of u has the key that it offers, and stores the key if
// the answer is yes. The user may take any time.
func (c *Client) confirm(ctx context.Context, u session.URL, about *identity.UnknownServerError) error {
	server, key := serverOf(u), about.Offered
	yes, err := c.opt.Confirm(ctx, server, string(key), about.Names)
	switch {
	case err != nil:
		return trustError(err)
	case !yes:
		return trustError(fmt.Errorf("the key of %s was not confirmed", server))
	}
	if err := c.store.AddKnownServer(server, key); err != nil {
		return &session.Error{Kind: session.KindLocalDisk, Err: err}
	}
	return nil
}
