// Package client sends files to servers, gets files from them, and verifies and lists what they
// hold. A call of Send or Get is a job, which may take several sessions; everything else is one
// session.
package client

import (
	"crypto/ed25519"
	"crypto/tls"
	"sync/atomic"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
)

// Client sends to servers and gets from them. Its methods are safe for concurrent use.
type Client struct {
	opt   Options
	store *identity.Store
	key   ed25519.PrivateKey
	own   tls.Certificate // that presents key
	pin   identity.Pin    // that any server must have, or ""

	route atomic.Int64 // number of the way that is tried first; see Options.Via

	authorities *identity.Authorities // vouch for servers; nil where servers are known by keys
	pair        *identity.KeyPair     // certificate that replaces key, or nil
}

// New makes a Client with this host's identity, which is created if it does not exist. It
// runs the self-test of the ciphers.
func New(opt Options) (*Client, error) {
	if err := opt.fill(); err != nil {
		return nil, err
	}
	if err := session.TestCrypto(opt.StandardCrypto); err != nil {
		return nil, err
	}
	c := &Client{opt: opt}
	if opt.Pin != "" {
		pin, err := identity.ParsePin(opt.Pin)
		if err != nil {
			return nil, &session.Error{Kind: session.KindUsage, Err: err}
		}
		c.pin = pin
	}
	if err := c.openTLS(); err != nil {
		return nil, err
	}
	var err error
	c.store, c.key, err = session.OpenIdentity(opt.Home)
	if opt.Key != nil {
		c.key = opt.Key
	}
	if err != nil {
		return nil, err
	}
	c.own, err = transport.Certificate(c.key)
	return c, err
}

// serverOf is the host and port of a URL.
func serverOf(u session.URL) string { return session.URL{Host: u.Host, Port: u.Port}.Address() }
