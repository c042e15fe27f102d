package transport_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/transport/auth"
	"github.com/fxfer/fxfer/internal/transport/transporttest"
)

// foreign is the configuration of a crypto/tls peer that follows the rules.
func foreign(t *testing.T) *tls.Config {
	t.Helper()
	cert, err := auth.Certificate(transporttest.NewKey(t))
	require.NoError(t, err)
	return &tls.Config{
		Certificates:       []tls.Certificate{cert},
		NextProtos:         []string{"other", auth.ALPN},
		InsecureSkipVerify: true, //nolint:gosec // there is no CA; keys are compared
		ClientAuth:         tls.RequireAnyClientCert,
	}
}

// TestRefusals: a peer that breaks the rules of the handshake gets no stream.
func TestRefusals(t *testing.T) {
	tests := []struct {
		name   string
		change func(*tls.Config)
		client string // error of a plain client against an own server, or of an own client against a plain server
		server string
	}{
		{"TLS 1.2", func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, "protocol version", "protocol version"},
		{"other protocol", func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }, "no application protocol", "no application protocol"},
		{"no protocol", func(c *tls.Config) { c.NextProtos = nil }, "bad certificate", "does not speak"},
		{"no certificate", func(c *tls.Config) { c.Certificates = nil }, "certificate required", ""},
		{"other key", func(c *tls.Config) { c.Certificates = []tls.Certificate{ecdsaCertificate(t)} }, "", "not Ed25519"}, // a server lets its caller decide
	}
	for _, test := range tests {
		if test.client == "" {
			continue
		}
		t.Run(test.name+"/client", func(t *testing.T) {
			l, err := transport.Listen("127.0.0.1:0", transport.Config{Identity: transporttest.NewKey(t)})
			require.NoError(t, err)
			defer l.Close()
			done := make(chan error, 1)
			go func() {
				c, err := l.Accept()
				if err == nil {
					err = c.Handshake(context.Background())
				}
				done <- err
			}()
			conf := foreign(t)
			test.change(conf)
			c, err := tls.Dial("tcp", l.Addr().String(), conf)
			if err == nil { // a client learns only later what the server thinks of its certificate
				defer c.Close()
				_, err = c.Read(make([]byte, 1))
			}
			require.ErrorContains(t, err, test.client)
			require.Error(t, <-done)
		})
	}
	for _, test := range tests {
		if test.server == "" {
			continue
		}
		t.Run(test.name+"/server", func(t *testing.T) {
			conf := foreign(t)
			test.change(conf)
			l, err := tls.Listen("tcp", "127.0.0.1:0", conf)
			require.NoError(t, err)
			defer l.Close()
			done := make(chan error, 1)
			go func() {
				c, err := l.Accept()
				if err == nil {
					err = c.(*tls.Conn).Handshake()
					c.Close()
				}
				done <- err
			}()
			called := false
			_, err = transport.Dial(t.Context(), l.Addr().String(), transport.Config{Identity: transporttest.NewKey(t)}, func(ed25519.PublicKey) error {
				called = true
				return nil
			})
			require.ErrorContains(t, err, test.server)
			require.Equal(t, test.name != "other key", errors.Is(err, transport.ErrProtocol))
			require.Error(t, <-done)
			require.False(t, called)
		})
	}
}

// TestNoTLS: a service that speaks first, such as ssh, is recognised.
func TestNoTLS(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, _ = c.Write([]byte("SSH-2.0-OpenSSH_9.9\r\n"))
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}
	}()
	_, err = transport.Dial(t.Context(), l.Addr().String(), transport.Config{Identity: transporttest.NewKey(t)}, transporttest.AnyKey)
	require.ErrorIs(t, err, transport.ErrProtocol)
}

func ecdsaCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
