//go:build unix

package backup

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A job that may lack an entry goes on to make backups after a file becomes unreadable. Every
// output about these backups mentions the missing entry.
func TestAllowFailed(t *testing.T) {
	t.Parallel()
	home, dir, store := t.TempDir(), t.TempDir(), t.TempDir()
	_, url := serve(t, home, store)
	src, told := filepath.Join(dir, "src"), filepath.Join(dir, "told")
	put := func(name, text string) {
		name = filepath.Join(src, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	put("a", "a")
	put("secret", "one")
	put("sub/other", "two")
	jobs := "jobs:\n- {name: j, sources: [" + src + "/], destination: " + url + "/j, allow-failed: 1, backoff: 1ms, keep: {last: 2}, max-age: 26h,\n" +
		"   notify: {command: 'echo $FXFER_EVENT $FXFER_TEXT > " + told + "', on: [success, failure]}}\n"
	require.NoError(t, os.WriteFile(filepath.Join(home, "backup.yaml"), []byte(jobs), 0o600))

	as := ordinary(t, dir, home)
	command := func(code int, args ...string) string {
		t.Helper()
		c := fxfer(home, args...)
		as(c)
		out, err := c.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			require.NoError(t, err)
		}
		require.Equal(t, code, c.ProcessState.ExitCode(), "%v: %s", args, out)
		return string(out)
	}
	command(0, "backup", "run", "--quiet", "j")
	closed := func(name string) { // a file that did not change would not be read
		put(name, "changed "+name)
		require.NoError(t, os.Chmod(filepath.Join(src, name), 0))
	}
	closed("secret")
	latest := filepath.Join(store, "j", "latest")
	for range 3 {
		require.Contains(t, command(0, "backup", "run", "j"), "good without 1 entry that failed")
		require.FileExists(t, filepath.Join(latest, "sub", "other"))
		require.NoFileExists(t, filepath.Join(latest, "secret"))
	}
	require.Contains(t, command(0, "backup", "status"), "without 1 entry that failed: "+filepath.Join(src, "secret")+": read: permission denied")
	require.Contains(t, command(0, "backup", "status"), "good without 1 entry that failed")
	require.Contains(t, command(0, "history"), "good without 1 entry that failed")
	require.Equal(t, 2, strings.Count(command(0, "backup", "snapshots", "j"), "; lacks 1 entry that failed\n"))
	require.Contains(t, command(0, "backup", "verify", "j"), "lacking")
	require.Contains(t, command(0, "backup", "restore", "j", filepath.Join(dir, "back")), "lacks 1 entry")
	text, err := os.ReadFile(told)
	require.NoError(t, err)
	require.Regexp(t, "^success backup j on .*: success, without 1 entry that failed\n$", string(text))

	newest, err := os.Readlink(latest)
	require.NoError(t, err)
	closed("sub/other")
	command(3, "backup", "run", "--quiet", "j")
	command(9, "backup", "status")
	now, err := os.Readlink(latest)
	require.NoError(t, err)
	require.Equal(t, newest, now)
	out := command(3, "send", "--snapshot", "--allow-failed", "2", src+"/", url+"/other")
	require.Contains(t, out, "is there, without 2 entries that failed")
	require.Contains(t, out, "fxfer: failed: "+filepath.Join(src, "sub", "other")+": ")
	require.FileExists(t, filepath.Join(store, "other", "latest", "a"))
	require.Contains(t, command(2, "send", "--allow-failed", "2", src+"/", url+"/other"), "add --snapshot")
}

// ordinary gives folders to an ordinary user, unless one runs the tests. It returns a function that
// makes a command run as that user.
func ordinary(t *testing.T, folders ...string) func(*exec.Cmd) {
	if os.Geteuid() != 0 {
		return func(*exec.Cmd) {}
	}
	const nobody = 65534
	dir, err := os.MkdirTemp("", "") // all users can enter the folders above it
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	self, err := os.ReadFile(os.Args[0])
	require.NoError(t, err)
	binary := filepath.Join(dir, "fxfer")
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, os.WriteFile(binary, self, 0o755))
	for _, folder := range folders {
		require.NoError(t, filepath.WalkDir(folder, func(p string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(p, nobody, nobody))
		}))
		for above := filepath.Dir(folder); above != os.TempDir() && above != "/"; above = filepath.Dir(above) {
			require.NoError(t, os.Chmod(above, 0o755))
		}
	}
	return func(c *exec.Cmd) {
		c.Path, c.Dir = binary, folders[0]
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
}
