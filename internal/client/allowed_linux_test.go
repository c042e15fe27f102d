package client

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOrdinaryUser runs tests again without privileges at either end. It runs alone: until the
// child executes, it holds the locks of this process's partial files.
func TestOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the other tests run as one already")
	}
	const nobody = 65534
	dir, err := os.MkdirTemp("", "")
	require.NoError(t, err)
	defer func() { _ = os.RemoveAll(dir) }()
	require.NoError(t, os.Chown(dir, nobody, nobody))
	self, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	binary := filepath.Join(dir, "fxfer.test")
	require.NoError(t, os.WriteFile(binary, self, 0o755))
	c := exec.CommandContext(t.Context(), binary, "-test.run=^(TestAllowFailed|TestNotAllowed)$")
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	c.Dir = dir
	c.Env = append(os.Environ(), "HOME="+dir, "TMPDIR="+dir)
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
