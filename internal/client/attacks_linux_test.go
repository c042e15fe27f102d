package client

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// privilegedFolder makes a folder with all that gives privilege.
func privilegedFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{
		"program": 0o755 | os.ModeSetuid, "group": 0o755 | os.ModeSetgid, "able": 0o755,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
		require.NoError(t, os.Chmod(filepath.Join(dir, name), mode))
	}
	capability := []byte{1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	require.NoError(t, unix.Setxattr(filepath.Join(dir, "able"), "security.capability", capability, 0))
	require.NoError(t, unix.Setxattr(filepath.Join(dir, "able"), "trusted.test", []byte("x"), 0))
	require.NoError(t, unix.Mknod(filepath.Join(dir, "device"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	return dir
}

// fingerprintOf describes modes and attributes of what is in a folder.
func fingerprintOf(t *testing.T, dir string) (all string) {
	t.Helper()
	for _, name := range []string{"program", "group", "able", "device"} {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			all += name + " is missing\n"
			continue
		}
		names := make([]byte, 1<<10)
		n, err := unix.Llistxattr(filepath.Join(dir, name), names)
		require.NoError(t, err)
		all += fmt.Sprintf("%s %v %q\n", name, info.Mode(), names[:n])
	}
	return all
}
