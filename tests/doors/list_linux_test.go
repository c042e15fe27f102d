package doors

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// TestListLacks lists a folder with an entry that cannot be read, here a mount whose process has died:
// clients get the others, and an error.
func TestListLacks(t *testing.T) {
	t.Parallel()
	s := beginFTP(t, false)
	for _, name := range []string{"a", "dead", "z"} {
		require.NoError(t, os.Mkdir(s.share("docs", name), 0o700))
	}
	process, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("opening FUSE: %v", err)
	}
	defer process.Close()
	opt := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", process.Fd())
	if err := unix.Mount("dead", s.share("docs/dead"), "fuse", 0, opt); err != nil {
		t.Skipf("mounting FUSE: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(s.share("docs/dead"), unix.MNT_DETACH)) })
	process.Close()

	ftp := s.dialFTP(t).logIn("ro", true)
	data, _ := ftp.data("NLST /docs")
	got, err := io.ReadAll(data)
	require.NoError(t, err)
	require.Equal(t, "/docs/a\r\n/docs/z\r\n", string(got))
	require.NoError(t, data.Close())
	require.Contains(t, ftp.expect(451), "dead")

	sftp, _ := s.dial(t, "ro")
	list, err := sftp.ReadDir("/docs")
	require.ErrorContains(t, err, "dead")
	require.Len(t, list, 2)
}

// TestListOmits: a list that lacks entries because of their names does not fail, or nobody could list
// their folder. FTP says how many there are; the server's log says it once for each session.
func TestListOmits(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer // only the server's goroutines write, and it has ended when we read
	t.Run("server", func(t *testing.T) {
		s := beginFTP(t, false, func(o *fxfer.ServerOptions) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		for _, name := range []string{"a", ".fxfer-mine", ".fxfer-sent", "line\nbreak", "z"} {
			require.NoError(t, os.Mkdir(s.share("docs", name), 0o700))
		}
		ftp := s.dialFTP(t).logIn("ro", true)
		for range 2 {
			data, _ := ftp.data("NLST /docs")
			got, err := io.ReadAll(data)
			require.NoError(t, err)
			require.Equal(t, "/docs/a\r\n/docs/z\r\n", string(got))
			require.NoError(t, data.Close())
			require.Equal(t, `done: 18 bytes, without 2 entries, the first of them: path not allowed: ".fxfer-mine": reserved, because it begins with .fxfer-`, ftp.expect(226))
		}
		require.NoError(t, os.Remove(s.share("docs/.fxfer-mine")))
		require.Contains(t, ftp.do(213, "STAT l*"), `without 1 entry: path not allowed: "line\nbreak": the end of a line`)
		require.NotContains(t, ftp.do(213, "STAT z*"), "without")
		require.NoError(t, os.Mkdir(s.share("docs/.fxfer-mine"), 0o700))

		sftp, _ := s.dial(t, "ro")
		list, err := sftp.ReadDir("/docs")
		require.NoError(t, err)
		require.Len(t, list, 3, "ssh takes any byte")
	})
	require.Equal(t, 2, bytes.Count(log.Bytes(), []byte("a list lacks entries")), "%s", log.String())
}
