// Package auth lets two hosts prove their identities in a TLS 1.3 handshake.
//
// By default both ends present a self-signed certificate made from their Ed25519 key. There is no
// CA, and names mean nothing: the client compares the server's key. Either end may present, and a
// client may ask for, a certificate issued by a CA instead. The caller decides what that is worth.
package auth

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

const (
	// ALPN is the application protocol of both ends.
	ALPN = "fxfer/1"
	// alpnX509 is what a client offers that wants the server to present a certificate of a CA.
	// Everything after the handshake is the same.
	alpnX509 = "fxfer/1-x509"
)

const (
	// alertNoProtocol says that the peer does not speak the requested protocol (RFC 7301, section 3.2).
	alertNoProtocol = tls.AlertError(120)
	// alertVersion says that the peer does not speak TLS 1.3 (RFC 8446, section 6.2).
	alertVersion = tls.AlertError(70)
)

// ErrNoCertificate says that a server presents no certificate of a CA.
var ErrNoCertificate = errors.New("the server presents no certificate of a CA")

// ErrProtocol says that a peer speaks another protocol, or another version of this one.
var ErrProtocol = errors.New("peer does not speak " + ALPN)

// Expect decides whether a client wants to talk to the server that has this key.
type Expect func(server ed25519.PublicKey) error

// Config says how a host presents itself, and what it asks of the other one.
type Config struct {
	// Identity is this host's key. A client with a Certificate needs none.
	Identity ed25519.PrivateKey
	// Certificate, if not nil, returns what a client presents instead of Identity, and what a
	// server presents to clients that ask for a certificate of a CA. It is called for each
	// handshake, maybe concurrently. Nobody may change what it returns.
	Certificate func() *tls.Certificate
	// Verify, if not nil, makes a client ask for a certificate of a CA. It replaces Expect and
	// decides on the server's chain, leaf first. It also has to check the host name.
	Verify func(chain []*x509.Certificate) error
}

// Client is the TLS configuration for a client of the server at addr ("host:port"). expect is
// called before the client has sent anything but its ClientHello. Only a successful handshake
// proves that the server owns the key.
func (c Config) Client(addr string, expect Expect) (*tls.Config, error) {
	conf := base(func(state tls.ConnectionState) error {
		key, err := peerKey(state)
		if err != nil {
			return err
		}
		return expect(key)
	})
	var err error
	if c.Certificate == nil {
		if conf.Certificates, err = certificates(c.Identity); err != nil {
			return nil, err
		}
	} else {
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return c.Certificate(), nil
		}
	}
	if c.Verify == nil {
		return conf, nil
	}
	// crypto/tls sends a name, and nothing for an IP address.
	if conf.ServerName, _, err = net.SplitHostPort(addr); err != nil {
		return nil, err
	}
	conf.NextProtos = []string{alpnX509}
	conf.VerifyConnection = func(state tls.ConnectionState) error {
		if state.NegotiatedProtocol != alpnX509 {
			return ErrProtocol
		}
		return c.Verify(state.PeerCertificates)
	}
	return conf, nil
}

// Server is the TLS configuration for a listener. It accepts any certificate: whoever accepts the
// connection decides what the client may do.
func (c Config) Server() (*tls.Config, error) {
	certs, err := certificates(c.Identity)
	if err != nil {
		return nil, err
	}
	conf := base(presented)
	if c.Certificate == nil {
		conf.Certificates = certs
		return conf, nil
	}
	conf.NextProtos = append(conf.NextProtos, alpnX509)
	// With conf.Certificates, crypto/tls would not call GetCertificate for clients that send no name.
	conf.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		offered := hello.SupportedProtos
		if slices.Contains(offered, ALPN) || !slices.Contains(offered, alpnX509) {
			return &certs[0], nil
		}
		return c.Certificate(), nil
	}
	return conf, nil
}

// Explain makes the error of a client's handshake match ErrProtocol where the server does not speak TLS or
// this protocol. The alert of a server that has no certificate of a CA becomes ErrNoCertificate.
func (c Config) Explain(err error) error {
	var alert tls.AlertError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &alert) && alert == alertNoProtocol && c.Verify != nil:
		return ErrNoCertificate
	case alert == alertNoProtocol, alert == alertVersion, errors.As(err, &record):
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return err
}

// base is the part of a configuration that both roles share.
func base(verify func(tls.ConnectionState) error) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{ALPN},
		InsecureSkipVerify:     true, //nolint:gosec // there is no CA: verify compares the key itself
		ClientAuth:             tls.RequireAnyClientCert,
		SessionTicketsDisabled: true,
		VerifyConnection:       verify,
	}
}

func certificates(identity ed25519.PrivateKey) ([]tls.Certificate, error) {
	cert, err := Certificate(identity)
	return []tls.Certificate{cert}, err
}

// Certificate wraps an identity for TLS. Peers look at nothing but the key, so names, dates and the
// serial number are constants. Ed25519 signatures are deterministic, so the same identity always
// gives the same bytes. Making it takes 0.15 ms: whoever dials often keeps it for Config.Certificate.
func Certificate(identity ed25519.PrivateKey) (tls.Certificate, error) {
	if len(identity) != ed25519.PrivateKeySize {
		return tls.Certificate{}, fmt.Errorf("identity has %d bytes, not %d", len(identity), ed25519.PrivateKeySize)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
		// This date means "no expiry", RFC 5280 section 4.1.2.5.
		NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, identity.Public(), identity)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: identity}, nil
}

// presented checks that a peer speaks fxfer and presents a certificate. It does not judge that.
func presented(state tls.ConnectionState) error {
	if p := state.NegotiatedProtocol; p != ALPN && p != alpnX509 {
		return ErrProtocol
	}
	if len(state.PeerCertificates) == 0 {
		return errors.New("peer has no certificate")
	}
	return nil
}

// peerKey returns the key of a peer that presents nothing but a key.
func peerKey(state tls.ConnectionState) (ed25519.PublicKey, error) {
	if err := presented(state); err != nil {
		return nil, err
	}
	key := keyOf(state.PeerCertificates)
	if key == nil {
		return nil, fmt.Errorf("peer has a certificate for a %s key, not Ed25519 and signed by itself",
			state.PeerCertificates[0].PublicKeyAlgorithm)
	}
	return key, nil
}

// keyOf returns the key of a chain that stands for nothing but its key: Ed25519 and issued by
// itself. For a certificate that a CA may have issued it returns nil.
func keyOf(chain []*x509.Certificate) ed25519.PublicKey {
	if len(chain) == 0 || !bytes.Equal(chain[0].RawIssuer, chain[0].RawSubject) {
		return nil
	}
	key, _ := chain[0].PublicKey.(ed25519.PublicKey)
	return key
}

// PeerKey returns the key that a peer has proven to own. It is nil if the peer has presented a
// certificate that a CA may have issued, and before the handshake, when state is nil.
func PeerKey(state *tls.ConnectionState) ed25519.PublicKey {
	if state == nil {
		return nil
	}
	return keyOf(state.PeerCertificates)
}

// PeerCertificates returns the chain of a peer that has presented more than a key, leaf first, and
// nil otherwise. A server's chain has passed Verify. Nothing in a client's chain is checked, except
// that it owns the key of the leaf.
func PeerCertificates(state *tls.ConnectionState) []*x509.Certificate {
	if state == nil || keyOf(state.PeerCertificates) != nil {
		return nil
	}
	return state.PeerCertificates
}
