package access

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/wire"
)

// mountDead mounts a file system at dir whose process has died: each system call on dir fails.
func mountDead(t *testing.T, dir string) {
	t.Helper()
	process, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("opening FUSE: %v", err)
	}
	defer process.Close()
	opt := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d", process.Fd(), os.Geteuid(), os.Getegid())
	if err := unix.Mount("dead", dir, "fuse", 0, opt); err != nil {
		t.Skipf("mounting FUSE: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
}

// A program that mirrors a folder deletes what its listing lacks. So a listing that lacks an entry
// fails, but only for clients who would see the entry.
func TestListLacks(t *testing.T) {
	t.Parallel()
	const dead, alive = "2026-01-01T000000Z", "2026-01-02T000000Z"
	dir := t.TempDir()
	for _, p := range []string{"web/" + dead, "web/" + alive, "web/.fxfer-snapshots", "plain/a", "plain/dead", "plain/z"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, p), 0o700))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "web/.fxfer-snapshots/owners"), []byte("me\n"), 0o600))
	mountDead(t, filepath.Join(dir, "web", dead))
	mountDead(t, filepath.Join(dir, "plain/dead"))
	folder, err := Open(dir)
	require.NoError(t, err)
	defer folder.Close()
	for _, c := range []struct {
		client string
		right  identity.Rights
		path   string
		sees   []string
		lacks  string
	}{
		{"you", identity.List, "plain", []string{"a", "z"}, "plain/dead"},
		{"you", identity.List, "web", []string{alive}, "web/" + dead},
		{"me", identity.Append, "web", []string{alive}, "web/" + dead},
		{"me", identity.Append, "plain", nil, ""},
		{"you", identity.Append, "web", nil, ""},
	} {
		var sees []string
		s := folder.Client(Request{Share: "data", Client: c.client, Rights: c.right, Intent: wire.List})
		_, err := s.List(t.Context(), c.path, func(m disk.Meta) error {
			sees = append(sees, m.Path)
			return nil
		})
		require.Equal(t, c.sees, sees, "%+v", c)
		if c.lacks == "" {
			require.NoError(t, err, "%+v", c)
			continue
		}
		require.ErrorIs(t, err, unix.ENOTCONN)
		require.ErrorContains(t, err, c.lacks)
	}
}
