package doors

import (
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
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
