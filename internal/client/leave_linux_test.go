package client

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/server"
	"github.com/fxfer/fxfer/internal/session"
)

// A large file leaves the page cache of the client that sends it. It stays in that of a server that many
// get it from. Both are on the disk of /var/tmp: what is in memory cannot leave.
func TestSentFileLeaves(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("/var/tmp", "fxfer-leaves-")
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	s := &site{dir: dir}
	s.run(t, server.Options{}, identity.Read|identity.Write)
	defer s.stop()
	c := newClient(t, enrol(t, s), Options{})

	const size = 40 << 20
	data := make([]byte, size)
	_, _ = rand.Read(data)
	name := filepath.Join(dir, "large")
	require.NoError(t, os.WriteFile(name, data, 0o600))
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	require.NoError(t, err)
	defer file.Close()
	cached := func() int {
		var stat unix.Cachestat_t
		if err := unix.Cachestat(uint(file.Fd()), &unix.CachestatRange{}, &stat, 0); err != nil {
			t.Skip(err)
		}
		return int(stat.Cache) * os.Getpagesize()
	}
	if require.NoError(t, file.Sync()); cached() == 0 {
		t.Skip("the system does not tell what is in the page cache")
	}
	var volume unix.Statfs_t
	require.NoError(t, unix.Fstatfs(int(file.Fd()), &volume))
	if volume.Type != unix.EXT4_SUPER_MAGIC && volume.Type != unix.XFS_SUPER_MAGIC && volume.Type != unix.BTRFS_SUPER_MAGIC {
		t.Skip("files stay in the page cache of other file systems")
	}
	if require.NoError(t, unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED)); cached() > 0 {
		t.Skip("files do not leave the page cache here")
	}
	_, err = c.Send(t.Context(), []string{name}, s.plain(t, "sent/"), Transfer{})
	require.NoError(t, err)
	require.Zero(t, cached())
	_, err = c.Get(t.Context(), []session.URL{s.plain(t, "large")}, t.TempDir(), Transfer{})
	require.NoError(t, err)
	require.Greater(t, cached(), size/2)
}
