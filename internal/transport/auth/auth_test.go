package auth

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/identity/testca"
	"github.com/fxfer/fxfer/internal/transport/transporttest"
)

func TestCertificate(t *testing.T) {
	key := transporttest.NewKey(t)
	a, err := Certificate(key)
	require.NoError(t, err)
	b, err := Certificate(key)
	require.NoError(t, err)
	require.Equal(t, a.Certificate, b.Certificate, "the same identity gives the same bytes")
	cert, err := x509.ParseCertificate(a.Certificate[0])
	require.NoError(t, err)
	require.Equal(t, key.Public(), cert.PublicKey)
	require.True(t, cert.NotBefore.Before(time.Unix(1e9, 0)))
	require.Equal(t, 9999, cert.NotAfter.Year())

	_, err = Config{}.Server()
	require.ErrorContains(t, err, "identity has 0 bytes")
	_, err = Config{Identity: key[:5]}.Client("127.0.0.1:1", transporttest.AnyKey)
	require.ErrorContains(t, err, "identity has 5 bytes")
}

// TestKeyOf: only a certificate that has an Ed25519 key and is issued by itself stands for a key.
func TestKeyOf(t *testing.T) {
	ca := testca.New(t, "CA")
	self := (*testca.CA)(nil).Issue(t, testca.Server(), "ed25519")
	require.True(t, keyOf(self.Chain()).Equal(self.Key.Public()))
	require.Nil(t, keyOf(ca.Issue(t, testca.Server(), "ed25519").Chain()))
	require.Nil(t, keyOf(ca.Chain()))
	require.Nil(t, keyOf((*testca.CA)(nil).Issue(t, testca.Server(), "ecdsa").Chain()), "another kind of key")
	require.Nil(t, keyOf(nil))
	cert, err := Certificate(transporttest.NewKey(t))
	require.NoError(t, err)
	own, err := x509.ParseCertificate(cert.Certificate[0])
	require.NoError(t, err)
	require.NotNil(t, keyOf([]*x509.Certificate{own}))
}
