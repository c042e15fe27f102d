package transport_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/identity/testca"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/transport/transporttest"
	"github.com/stretchr/testify/require"
)

// large makes a certificate of about size bytes.
func large(t *testing.T, ca *testca.CA, size int) *tls.Certificate {
	t.Helper()
	template := testca.Server()
	for n := 0; ; n++ {
		template.DNSNames = append(template.DNSNames, fmt.Sprintf("%0100d.example.org", n))
		if x := ca.Issue(t, template, "ecdsa"); len(x.Cert.Raw) > size-150 {
			return &tls.Certificate{Certificate: [][]byte{x.Cert.Raw}, PrivateKey: x.Key}
		}
	}
}

// TestCertificates: both ends present certificates of the largest size, keys, or one of each, and
// each end sees what the other one presents. A client that asks for a certificate gets one, or no
// stream at all.
func TestCertificates(t *testing.T) {
	ca := testca.New(t, "CA")
	most := large(t, ca, 14<<10)
	for _, p := range []transport.Protocol{transport.TCP, transport.QUIC} {
		for _, test := range []struct{ asks, shows, has bool }{
			{true, true, true}, {true, false, true}, {false, true, true}, {false, false, true}, {true, true, false},
		} {
			t.Run(fmt.Sprintf("%s/%+v", p, test), func(t *testing.T) {
				own, serverKey := transporttest.NewKey(t), transporttest.NewKey(t)
				server, client := transport.Config{Identity: serverKey, Protocol: p}, transport.Config{Identity: own, Protocol: p}
				if test.has {
					server.Certificate = func() *tls.Certificate { return most }
				}
				if test.shows {
					client.Certificate = func() *tls.Certificate { return most }
				}
				var verified []*x509.Certificate
				if test.asks {
					client.Verify = func(chain []*x509.Certificate) error { verified = chain; return nil }
				}
				l, err := transport.Listen("127.0.0.1:0", server)
				require.NoError(t, err)
				defer func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					defer cancel()
					l.Shutdown(ctx)
				}()
				accepted := make(chan transport.Conn, 1)
				go func() {
					c, err := l.Accept()
					if err == nil && c.Handshake(context.Background()) == nil {
						accepted <- c
					}
				}()
				asked := false
				c, err := transport.Dial(t.Context(), l.Addr().String(), client, func(key ed25519.PublicKey) error {
					asked = true
					if !key.Equal(serverKey.Public()) {
						return errors.New("another key")
					}
					return nil
				})
				if !test.has {
					require.ErrorIs(t, err, transport.ErrNoCertificate)
					require.False(t, asked)
					return
				}
				require.NoError(t, err)
				defer c.Close()
				_, err = c.Write([]byte("x"))
				require.NoError(t, err)
				s := <-accepted
				defer s.Close()
				_, err = io.ReadFull(s, make([]byte, 1))
				require.NoError(t, err)
				require.Equal(t, !test.asks, asked)
				if test.asks {
					require.Nil(t, c.PeerKey())
					require.True(t, bytes.Equal(most.Certificate[0], verified[0].Raw))
					require.Equal(t, verified, c.PeerCertificates())
				} else {
					require.True(t, c.PeerKey().Equal(serverKey.Public()))
					require.Nil(t, c.PeerCertificates())
				}
				if test.shows {
					require.Nil(t, s.PeerKey())
					require.True(t, bytes.Equal(most.Certificate[0], s.PeerCertificates()[0].Raw))
				} else {
					require.True(t, s.PeerKey().Equal(own.Public()))
					require.Nil(t, s.PeerCertificates())
				}
				a, err := c.Exporter("label", 32)
				require.NoError(t, err)
				b, err := s.Exporter("label", 32)
				require.NoError(t, err)
				require.Equal(t, a, b)
			})
		}
	}
}
