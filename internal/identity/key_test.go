package identity

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

func TestKeyIsMadeOnceAndKept(t *testing.T) {
	s := openTemp(t)
	keys := make([]ed25519.PrivateKey, 16)
	var g errgroup.Group
	for i := range keys {
		g.Go(func() error {
			other, err := OpenStore(s.dir)
			if err != nil {
				return err
			}
			keys[i], err = other.Key()
			return err
		})
	}
	require.NoError(t, g.Wait())
	for _, k := range keys {
		require.Equal(t, keys[0], k)
	}
	requireMode(t, s.dir, 0o700)
	requireMode(t, s.path(keyFile), 0o600)
	requireOnly(t, s, keyFile, lockFile)
	require.True(t, strings.HasPrefix(readText(t, s.path(keyFile)), "-----BEGIN PRIVATE KEY-----\n"))
}

func TestKeyRefusesOpenFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no mode bits")
	}
	s := openTemp(t)
	_, err := s.Key()
	require.NoError(t, err)
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o602} {
		require.NoError(t, os.Chmod(s.path(keyFile), mode))
		_, err = s.Key()
		require.ErrorContains(t, err, s.path(keyFile)+" is not trusted: others may read or change this private key")
		requireHint(t, err, "chmod 600 "+s.path(keyFile))
	}
}

func TestKeyRefusesDamage(t *testing.T) {
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(curve)
	require.NoError(t, err)
	block := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	for _, c := range []struct{ text, want string }{
		{"", "no PEM block"},
		{"hello", "no PEM block"},
		{block("CERTIFICATE", der), "no PEM block PRIVATE KEY"},
		{block("PRIVATE KEY", der[:20]), "damaged"},
		{block("PRIVATE KEY", der), "not an Ed25519 key"},
	} {
		s := openTemp(t)
		write(t, s.path(keyFile), c.text)
		_, err := s.Key()
		require.ErrorContains(t, err, c.want)
		requireHint(t, err, "restore it")
		require.Equal(t, c.text, readText(t, s.path(keyFile)), "a damaged key is never replaced")
	}
}

func TestPin(t *testing.T) {
	key := testKey(1)
	pin := PinOf(key)
	require.Len(t, pin, len(pinPrefix)+43)
	for _, text := range []string{string(pin), pin.Bare()} {
		parsed, err := ParsePin(text)
		require.NoError(t, err)
		require.Equal(t, pin, parsed)
	}
	back, err := pin.Key()
	require.NoError(t, err)
	require.Equal(t, key, back)
	require.True(t, strings.HasPrefix(string(pin), strings.TrimSuffix(pin.Short(), "…")))
	require.Less(t, len(pin.Short()), len(pin))
	require.Equal(t, "", Pin("").Short())
}

func TestParsePinRefuses(t *testing.T) {
	pin := string(PinOf(testKey(1)))
	last := pin[len(pin)-1]
	for _, s := range []string{
		"", "ed25519:", pin[:len(pin)-1], pin + "A", pin + "=", pin + "\n", pin[:20] + "\n" + pin[20:], " " + pin,
		"rsa:" + pin, "ed25519:" + pin, "ED25519:" + pin[len(pinPrefix):],
		pin[:len(pin)-1] + string(last+1), // the same 32 bytes, other unused bits
		pin[:len(pin)-2] + "+" + string(last),
	} {
		_, err := ParsePin(s)
		require.ErrorContains(t, err, "is not a key", s)
		require.NotContains(t, err.Error(), "\n")
	}
	_, err := ParsePin("abc")
	require.ErrorContains(t, err, `"abc" is not a key`, "as it was written")
}

func FuzzParsePin(f *testing.F) {
	f.Add(string(PinOf(testKey(1))))
	f.Add(PinOf(testKey(2)).Bare())
	f.Fuzz(func(t *testing.T, s string) {
		pin, err := ParsePin(s)
		if err != nil {
			return
		}
		key, err := pin.Key()
		require.NoError(t, err)
		require.Equal(t, pin, PinOf(key))
		require.Equal(t, pin.Bare(), strings.TrimPrefix(s, pinPrefix))
	})
}

// TestEphemeral: a store without a folder has a key, knows nobody, and touches no file.
func TestEphemeral(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, filepath.Join(dir, clientsFile), string(PinOf(testKey(1)))+" *=rw\n") // of somebody else
	s, other := Ephemeral(), Ephemeral()
	key, err := s.Key()
	require.NoError(t, err)
	again, err := s.Key()
	require.NoError(t, err)
	require.Equal(t, key, again)
	otherKey, err := other.Key()
	require.NoError(t, err)
	require.NotEqual(t, key, otherKey)
	clients, err := s.Clients()
	require.NoError(t, err)
	require.Empty(t, clients)
	require.Empty(t, s.Links())
	_, err = s.Invite(Grants{"a": Read}, 0, "")
	require.ErrorIs(t, err, errEphemeral)
	_, _, err = s.Redeem([32]byte{}, make([]byte, exporterSize))
	require.ErrorIs(t, err, ErrInviteUnknown)
	require.ErrorIs(t, s.Revoke(Principal(PinOfPrivate(key))), errEphemeral)
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, names, 1)
}

// TestLinks: whoever confines the server learns of each file in the store's folder that is a symlink.
func TestLinks(t *testing.T) {
	s, elsewhere := openTemp(t), t.TempDir()
	_, err := s.Key()
	require.NoError(t, err)
	_, err = s.HostKey()
	require.NoError(t, err)
	_, err = s.DoorCertificate()
	require.NoError(t, err)
	require.NoError(t, s.SetPassword("anna", "correct horse"))
	require.NoError(t, s.AddKnownServer("nas:7433", PinOf(testKey(1))))
	require.NoError(t, s.Admit(Principal(PinOf(testKey(1))), Grants{"a": Read}, ""))
	_, err = s.Invite(Grants{"a": Read}, 0, "")
	require.NoError(t, err)
	require.Empty(t, s.Links())
	var want []string
	entries, err := os.ReadDir(s.dir)
	require.NoError(t, err)
	for _, e := range entries {
		if e.Name() == lockFile {
			continue
		}
		at := filepath.Join(elsewhere, e.Name())
		require.NoError(t, os.Rename(s.path(e.Name()), at))
		require.NoError(t, os.Symlink(at, s.path(e.Name())))
		want = append(want, at)
	}
	require.ElementsMatch(t, want, s.Links())
}
