//go:build unix

package backup

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// After SIGHUP a daemon reads its file of jobs again. A faulty file does not end the daemon.
func TestReload(t *testing.T) {
	t.Parallel()
	home, store, src := t.TempDir(), t.TempDir(), t.TempDir()
	_, url := serve(t, home, store)
	require.NoError(t, os.WriteFile(filepath.Join(src, "f"), []byte("x"), 0o600))
	write := func(jobs ...string) {
		text := "jobs:\n"
		for _, name := range jobs {
			text += "- {name: " + name + ", schedule: '* * * * * *', sources: [" + src + "/], destination: " + url + "/" + name + "}\n"
		}
		require.NoError(t, os.WriteFile(filepath.Join(home, "backup.yaml"), []byte(text), 0o600))
	}
	made := func(name string) {
		require.Eventually(t, func() bool {
			_, err := os.Stat(filepath.Join(store, name, "latest", "f"))
			return err == nil
		}, time.Minute, 20*time.Millisecond, name)
	}
	write("first")
	daemon := &process{t: t, home: home, args: []string{"backup", "daemon", "--quiet"}}
	daemon.start()
	defer daemon.kill()
	made("first")
	write("first", "no name")
	require.NoError(t, daemon.cmd.Process.Signal(syscall.SIGHUP))
	write("first", "second")
	require.NoError(t, daemon.cmd.Process.Signal(syscall.SIGHUP))
	made("second")
}
