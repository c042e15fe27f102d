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
		require.Empty(t, report.Limits, "no window is to blame")
		return report
	}
	inPlace := func() (n int64) {
		names, err := os.ReadDir(filepath.Join(s.dir, "many"))
		require.NoError(t, err)
		for _, x := range names {
			if strings.HasPrefix(x.Name(), ".fxfer-") { // the server is about to remove it
				continue
			}
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
	for range 9 { // a busy host may fill the disk before the first file is complete
		if report.Sent > 0 {
			break
		}
		report = send()
	}
	require.Positive(t, report.Sent)
	require.LessOrEqual(t, report.Sent, inPlace(), "one may get its name while the session ends")
	again := send()
	require.GreaterOrEqual(t, again.Same, report.Sent, "they are not sent twice")
	require.LessOrEqual(t, again.Sent+again.Same, inPlace())

	_, err := c.SendStream(t.Context(), strings.NewReader(strings.Repeat("x", 20<<20)), s.plain(t, "stream"), Transfer{})
	var known *session.Error
	require.ErrorAs(t, err, &known)
	require.Equal(t, session.AdviceMakeRoomAgain, known.Advice, "a stream does not resume")
	require.NoFileExists(t, filepath.Join(s.dir, "stream"))

	big := filepath.Join(t.TempDir(), "big") // refused before anything is written
	require.NoError(t, os.WriteFile(big, data, 0o600))
	_, err = c.Send(t.Context(), []string{big}, s.plain(t, "big"), Transfer{})
	require.ErrorAs(t, err, &known)
	require.Equal(t, session.KindRemoteDisk, known.Kind)
	require.Equal(t, session.AdviceMakeRoom, known.Advice)
}

// TestEarlyGivesWay: what came early goes if the complete file would not fit beside it.
func TestEarlyGivesWay(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for name, c := range map[string]struct {
		quota int64
		disk  string // size of the server's disk, "" for any
	}{
		"quota": {quota: 13 * mib},
		"disk":  {disk: "size=13m"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &site{dir: t.TempDir()}
			if c.disk != "" {
				if err := unix.Mount("tmpfs", s.dir, "tmpfs", 0, c.disk); err != nil {
					t.Skip("this needs root: ", err)
				}
				t.Cleanup(func() { _ = unix.Unmount(s.dir, unix.MNT_DETACH) })
			}
			s.runShare(t, server.Options{}, server.Share{Name: "data", Dir: s.dir, Rights: r | w, Quota: c.quota})
			defer s.stop()
			dir := t.TempDir()
			content := make([]byte, 6*mib)
			_, _ = rand.Read(content)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), content, 0o600))
			client, to := newClient(t, t.TempDir(), Options{}), s.invited(t)
			there, failed, err := sendEarly(t, client, dir, to, 6*mib)
			require.NoError(t, err)
			require.NoError(t, failed)
			require.EqualValues(t, 6*mib, there)
			other := filepath.Join(t.TempDir(), "other")
			require.NoError(t, os.WriteFile(other, content[:4*mib], 0o600))
			_, err = client.Send(t.Context(), []string{other}, s.plain(t, ""), Transfer{})
			require.NoError(t, err)

			_, err = client.Send(t.Context(), []string{dir + "/"}, s.plain(t, ""), Transfer{})
			require.NoError(t, err)
			got, err := os.ReadFile(filepath.Join(s.dir, "f"))
			require.NoError(t, err)
			require.True(t, bytes.Equal(content, got))
			left, _ := filepath.Glob(filepath.Join(s.dir, ".fxfer-*"))
			require.Empty(t, left)

			require.NoError(t, os.Remove(filepath.Join(s.dir, "f")))
			require.NoError(t, os.WriteFile(filepath.Join(s.dir, "more"), content[:1*mib], 0o600))
			_, failed, err = sendEarly(t, client, dir, s.plain(t, ""), 6*mib)
			require.NoError(t, err)
			require.Error(t, failed, "the file would not fit beside it")
		})
	}
}
