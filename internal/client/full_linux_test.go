package client

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/server"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestFullDisk fills a disk within one batch of names. What arrived complete stays, the report says
// so, and the advice is true.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	s := &site{dir: t.TempDir()}
	if err := unix.Mount("tmpfs", s.dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Skip("this needs root: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(s.dir, unix.MNT_DETACH) })
	s.run(t, server.Options{}, identity.Read|identity.Write)
	defer s.stop()
	c := newClient(t, enrol(t, s), Options{})
	in := t.TempDir()
	data := make([]byte, 40*300_000)
	_, _ = rand.Read(data)
	for i := range 40 {
		require.NoError(t, os.WriteFile(filepath.Join(in, fmt.Sprint(i)), data[i*300_000:][:300_000], 0o600))
	}
	send := func() *session.Report {
		report, err := c.Send(t.Context(), []string{in + "/"}, s.plain(t, "many"), Transfer{})
		require.Equal(t, session.KindRemoteDisk, session.KindOf(err), "%v", err)
		var known *session.Error
		require.ErrorAs(t, err, &known)
		require.Equal(t, session.AdviceMakeRoom, known.Advice)
		return report
	}
	inPlace := func() (n int64) {
		names, err := os.ReadDir(filepath.Join(s.dir, "many"))
		require.NoError(t, err)
		for _, x := range names {
			want, err := os.ReadFile(filepath.Join(in, x.Name()))
			require.NoError(t, err, "nothing else is there")
			got, err := os.ReadFile(filepath.Join(s.dir, "many", x.Name()))
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, got), x.Name())
			n++
		}
		return n
	}
	report := send()
	require.Positive(t, report.Sent)
	require.Equal(t, report.Sent, inPlace())
	again := send()
	require.Equal(t, report.Sent, again.Same, "they are not sent twice")
	require.Equal(t, again.Sent+again.Same, inPlace())

	_, err := c.SendStream(t.Context(), strings.NewReader(strings.Repeat("x", 20<<20)), s.plain(t, "stream"), Transfer{})
	var known *session.Error
	require.ErrorAs(t, err, &known)
	require.Equal(t, session.AdviceMakeRoomAgain, known.Advice, "a stream does not resume")
	require.NoFileExists(t, filepath.Join(s.dir, "stream"))
}
