package transport

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"slices"
	"time"
)

const (
	alpn = "fxfer/1"
	// alpnX509 is what a client offers that expects the server to present a certificate that a CA vouches for. The rest is the same.
	alpnX509 = "fxfer/1-x509"

	// maxHandshake bounds what a peer may send before it is known. An honest one sends about 3 KiB, and as much again a certificate behind the
	// first. quic-go takes 16 KiB of each of two levels, of which Hello needs 2.
	maxHandshake = 20 << 10
)

// ErrNoCertificate says that a server presents no certificate that a CA may vouch for.
var ErrNoCertificate = errors.New("the server presents no certificate of a CA")

// errHandshakeTooLong means that a peer sent more than any honest handshake takes.
var errHandshakeTooLong = errors.New("handshake is too long")

// errNoHandshake is returned by the methods that need a finished handshake.
var errNoHandshake = errors.New("handshake is not done")

// certificate wraps an identity for TLS. Nothing in it but the key means anything: peers compare keys, so names, dates and the serial
// number are constants, and an Ed25519 signature is deterministic, so the same identity always gives the same bytes.
func certificate(identity ed25519.PrivateKey) (tls.Certificate, error) {
	if len(identity) != ed25519.PrivateKeySize {
		return tls.Certificate{}, fmt.Errorf("identity has %d bytes, not %d", len(identity), ed25519.PrivateKeySize)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // "no expiry", RFC 5280 section 4.1.2.5
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, identity.Public(), identity)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: identity}, nil
}

// tlsConfig is for both roles. check sees what the peer presents as soon as it is read, which on the client is before anything but
// the ClientHello was sent. That the peer owns its key is only proven when the handshake succeeds.
func tlsConfig(cert tls.Certificate, check func(tls.ConnectionState) error) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{alpn},
		Certificates:           []tls.Certificate{cert},
		InsecureSkipVerify:     true, //nolint:gosec // there is no CA: check compares the key itself
		ClientAuth:             tls.RequireAnyClientCert,
		SessionTicketsDisabled: true,
		VerifyConnection:       check,
	}
}

// clientTLS is for a client of the server at addr.
func clientTLS(cfg *Config, addr string, expect func(ed25519.PublicKey) error) (*tls.Config, error) {
	cert, err := certificate(cfg.Identity)
	if err != nil {
		return nil, err
	}
	conf := tlsConfig(cert, func(state tls.ConnectionState) error {
		key, err := peerKey(state)
		if err != nil {
			return err
		}
		return expect(key)
	})
	if cfg.Certificate != nil {
		conf.Certificates = nil
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cfg.Certificate(), nil }
	}
	if cfg.Verify == nil {
		return conf, nil
	}
	if conf.ServerName, _, err = net.SplitHostPort(addr); err != nil { // of an address, crypto/tls sends nothing
		return nil, err
	}
	conf.NextProtos = []string{alpnX509}
	conf.VerifyConnection = func(state tls.ConnectionState) error {
		if state.NegotiatedProtocol != alpnX509 {
			return fmt.Errorf("peer does not speak %s", alpnX509)
		}
		return cfg.Verify(state.PeerCertificates)
	}
	return conf, nil
}

// serverTLS is for a listener.
func serverTLS(cfg *Config) (*tls.Config, error) {
	cert, err := certificate(cfg.Identity)
	if err != nil {
		return nil, err
	}
	conf := tlsConfig(cert, presented)
	if cfg.Certificate != nil {
		conf.NextProtos = append(conf.NextProtos, alpnX509)
		conf.Certificates = nil // or else clients that name no host would not get to the following
		conf.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if slices.Contains(hello.SupportedProtos, alpn) || !slices.Contains(hello.SupportedProtos, alpnX509) {
				return &cert, nil
			}
			return cfg.Certificate(), nil
		}
	}
	return conf, nil
}

// presented checks that a peer speaks fxfer and presents a certificate, whatever that is worth.
func presented(state tls.ConnectionState) error {
	if p := state.NegotiatedProtocol; p != alpn && p != alpnX509 {
		return fmt.Errorf("peer does not speak %s", alpn)
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
		return nil, fmt.Errorf("peer has a certificate for a %s key, not Ed25519 and signed by itself", state.PeerCertificates[0].PublicKeyAlgorithm)
	}
	return key, nil
}

// keyOf returns the key of a certificate that means nothing but its key: Ed25519, and issued by itself. It is nil of what a CA may vouch for.
func keyOf(chain []*x509.Certificate) ed25519.PublicKey {
	if len(chain) == 0 || !bytes.Equal(chain[0].RawIssuer, chain[0].RawSubject) {
		return nil
	}
	key, _ := chain[0].PublicKey.(ed25519.PublicKey)
	return key
}

// alertNoProtocol says that the protocol that was asked for is not spoken (RFC 7301, section 3.2).
const alertNoProtocol = tls.AlertError(120)

// alerted makes the alert of a peer known to errors.As as a tls.AlertError, for which crypto/tls has a type of its own.
func alerted(err error) error {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" {
		return err
	}
	for n := range 256 {
		if alert := tls.AlertError(n); op.Err.Error() == alert.Error() {
			return fmt.Errorf("remote error: %w", alert)
		}
	}
	return err
}

// secrets are the first application traffic secrets of a connection, RFC 8446 section 7.1. crypto/tls gives them to its key log only,
// so each connection has a key log of its own that remembers these two and writes nothing anywhere.
type secrets struct {
	client, server []byte
}

// Write takes one line of the key log: label, client random and secret in hexadecimal.
func (s *secrets) Write(line []byte) (int, error) {
	f := bytes.Fields(line)
	if len(f) != 3 {
		return 0, errors.New("key log line is malformed")
	}
	var to *[]byte
	switch string(f[0]) {
	case "CLIENT_TRAFFIC_SECRET_0":
		to = &s.client
	case "SERVER_TRAFFIC_SECRET_0":
		to = &s.server
	default:
		return len(line), nil
	}
	secret, err := hex.AppendDecode(nil, f[2])
	if err != nil {
		return 0, fmt.Errorf("key log secret: %w", err)
	}
	*to = secret
	return len(line), nil
}

// handshakeConn gives crypto/tls exactly the records it asks for. Left alone it reads ahead, and what it had read of the records behind
// the handshake would be lost to the recordReader.
type handshakeConn struct {
	net.Conn
	header [headerLen]byte
	have   int // header bytes read
	body   int // bytes of the present record still to come
	total  int
}

func (h *handshakeConn) Read(p []byte) (int, error) {
	if h.total >= maxHandshake {
		return 0, errHandshakeTooLong
	}
	if h.body == 0 && h.have == headerLen {
		h.have = 0
	}
	inHeader := h.have < headerLen
	want := h.body
	if inHeader {
		want = headerLen - h.have
	}
	n, err := h.Conn.Read(p[:min(len(p), want)])
	h.total += n
	if inHeader {
		h.have += copy(h.header[h.have:], p[:n])
		if h.have == headerLen {
			h.body = int(binary.BigEndian.Uint16(h.header[3:]))
		}
	} else {
		h.body -= n
	}
	return n, err
}

// handshake authenticates both ends over raw, as the client or as the server, and fills c. raw is closed if ctx ends first.
func (c *tcpConn) handshake(ctx context.Context, raw net.Conn, conf *tls.Config, client bool) error {
	var sec secrets
	conf = conf.Clone()
	conf.KeyLogWriter = &sec
	hc := &handshakeConn{Conn: raw}
	var t *tls.Conn
	if client {
		t = tls.Client(hc, conf)
	} else {
		t = tls.Server(hc, conf)
	}
	if err := t.HandshakeContext(ctx); err != nil {
		if ctx.Err() == nil && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return alerted(err)
	}
	state := t.ConnectionState()
	s, err := suiteOf(state.CipherSuite)
	if err != nil {
		return err
	}
	ours, theirs := sec.client, sec.server
	if !client {
		ours, theirs = theirs, ours
	}
	if err := c.out.setSecret(s, ours); err != nil {
		return err
	}
	if err := c.in.setSecret(s, theirs); err != nil {
		return err
	}
	c.state, c.peer = state, keyOf(state.PeerCertificates)
	return nil
}
