package tlsrecord_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/fxfer/fxfer/internal/client"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/server"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/session/sessiontest"
	"github.com/fxfer/fxfer/internal/transport/tlsrecord"
	"github.com/stretchr/testify/require"
)

// TestTransferBeyondKeys: with --crypto std, transfers go on with other streams when the keys of
// streams are used up. A key seals so few records here that a stream carries two blocks of a file.
func TestTransferBeyondKeys(t *testing.T) {
	tlsrecord.SetKeyRecords(t, 140) // not parallel, because it holds for the process
	dir, from, back := t.TempDir(), t.TempDir(), t.TempDir()
	s, err := server.New(server.Options{
		Home: t.TempDir(), Listen: "127.0.0.1:0", StandardCrypto: true,
		Shares: []server.Share{{Name: "data", Dir: dir, Rights: identity.Read | identity.Write}},
	})
	require.NoError(t, err)
	defer sessiontest.Run(t, s)()
	text, err := s.Invite(server.InviteOptions{Host: "127.0.0.1"})
	require.NoError(t, err)
	u, err := session.ParseURL(text)
	require.NoError(t, err)
	c, err := client.New(client.Options{Home: t.TempDir(), Transport: session.TransportTCP, StandardCrypto: true, Streams: 1})
	require.NoError(t, err)
	large := sessiontest.RandomFile(t, filepath.Join(from, "large"), 3<<20+77)
	report, err := c.Send(t.Context(), []string{from + "/"}, u, client.Transfer{})
	require.NoError(t, err)
	require.Positive(t, report.Resent, "no stream has ended")
	u.Token, u.TrailingSlash = "", true
	_, err = c.Get(t.Context(), []session.URL{u}, back, client.Transfer{})
	require.NoError(t, err)
	for _, dir := range []string{dir, back} {
		got, err := os.ReadFile(filepath.Join(dir, "large"))
		require.NoError(t, err)
		require.True(t, bytes.Equal(large, got))
	}
}
