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
	"time"
)

const (
	alpn = "fxfer/1"

	// maxHandshake bounds what a peer may send before it is known. An honest one sends about 3 KiB.
	maxHandshake = 16 << 10
)

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

// tlsConfig is for both roles. check sees the peer's key as soon as its certificate is read, which on the client is before anything
// but the ClientHello was sent. That the peer owns the key is only proven when the handshake succeeds.
func tlsConfig(cert tls.Certificate, check func(ed25519.PublicKey) error) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{alpn},
		Certificates:           []tls.Certificate{cert},
		InsecureSkipVerify:     true, //nolint:gosec // there is no CA: check compares the key itself
		ClientAuth:             tls.RequireAnyClientCert,
		SessionTicketsDisabled: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			key, err := peerKey(state)
			if err != nil {
				return err
			}
			return check(key)
		},
	}
}

func peerKey(state tls.ConnectionState) (ed25519.PublicKey, error) {
	if state.NegotiatedProtocol != alpn {
		return nil, fmt.Errorf("peer does not speak %s", alpn)
	}
	if len(state.PeerCertificates) == 0 {
		return nil, errors.New("peer has no certificate")
	}
	key, ok := state.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("peer has a %s key, not Ed25519", state.PeerCertificates[0].PublicKeyAlgorithm)
	}
	return key, nil
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
		return err
	}
	state := t.ConnectionState()
	key, err := peerKey(state)
	if err != nil {
		return err
	}
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
	c.state, c.peer = state, key
	return nil
}
