package faults

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fxfer/fxfer/tests/internal/hosts"
)

var cgo = flag.Bool("cgo", false, "TestConfined with cgo, too, which compiles everything once more")

// TestConfined checks with real processes that a server confined by Landlock can do everything that
// a server does, however it was built. Tests in internal/confine check, for both builds, that it
// reaches nothing else.
func TestConfined(t *testing.T) {
	t.Run("without cgo", func(t *testing.T) {
		t.Parallel()
		testConfined(t, program)
	})
	t.Run("with cgo", func(t *testing.T) {
		if !*cgo {
			t.Skip("-cgo")
		}
		t.Parallel()
		own := filepath.Join(t.TempDir(), "fxfer")
		require.NoError(t, hosts.Build(own, "../../cmd/fxfer", "CGO_ENABLED=1"))
		testConfined(t, own)
	})
}

func testConfined(t *testing.T, own string) {
	if abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION); errno != 0 || abi < 2 {
		t.Skip("this kernel has no Landlock that is of use")
	}
	dir := t.TempDir()
	in := func(p string) string { return filepath.Join(dir, p) }
	for _, d := range []string{"share", "ro", "src/a/b", "server", "lists", "client"} {
		require.NoError(t, os.MkdirAll(in(d), 0o700))
	}
	// A list may be a symlink to another folder, and stays one.
	require.NoError(t, os.WriteFile(in("lists/clients"), nil, 0o600))
	require.NoError(t, os.Symlink(in("lists/clients"), in("server/authorized_clients")))
	for _, f := range []string{"src/a/f", "src/a/b/g", "ro/f"} {
		require.NoError(t, os.WriteFile(in(f), bytes.Repeat([]byte(f), 100_000), 0o640))
	}
	require.NoError(t, os.Link(in("src/a/f"), in("src/a/b/h")))

	server := exec.Command(own, "serve", "--listen", "127.0.0.1:0", "--invite", "--name", "127.0.0.1", "--web", "0",
		"--share", "data="+in("share"), "--share", "pub="+in("ro")+":ro")
	server.Env = append(os.Environ(), "FXFER_HOME="+in("server"))
	said, err := os.Create(in("log"))
	require.NoError(t, err)
	defer said.Close()
	server.Stderr = said
	pipe, err := server.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, server.Start())
	defer func() {
		_ = server.Process.Signal(unix.SIGTERM)
		require.NoError(t, server.Wait())
		if t.Failed() {
			log, _ := os.ReadFile(in("log"))
			t.Logf("%s", log)
		}
	}()
	line := make([]byte, 4096)
	n, err := pipe.Read(line)
	require.NoError(t, err)
	invitation, err := url.Parse(strings.TrimSpace(string(line[:n])))
	require.NoError(t, err)
	pub := *invitation
	pub.User, pub.RawQuery, pub.Fragment, pub.Path = nil, "", "", "/pub"
	log, err := os.ReadFile(in("log"))
	require.NoError(t, err)
	require.Contains(t, string(log), "this process is confined")
	require.NotContains(t, string(log), "sandbox")
	// Every thread is in a domain, and the process is the one that was started.
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", server.Process.Pid))
	require.NoError(t, err)
	require.NotEmpty(t, tasks)
	for _, task := range tasks {
		status, err := os.ReadFile(task)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // the thread has ended
		}
		require.NoError(t, err)
		require.Regexp(t, `NoNewPrivs:\s+1`, string(status))
	}

	run := func(args ...string) string {
		t.Helper()
		c := exec.Command(own, args...)
		c.Env = append(os.Environ(), "FXFER_HOME="+in("client"))
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	target := *invitation
	run("send", in("src/a"), target.String())
	target = pub
	target.Path = "/data"
	require.NoError(t, os.Remove(in("src/a/b/g")))
	require.NoError(t, os.WriteFile(in("src/a/f"), []byte("other"), 0o640))
	run("send", "--delete", "--backup-dir", "old", in("src/a"), target.String())
	require.FileExists(t, in("share/old/a/b/g"))
	run("verify", target.String()+"/a", "--against", in("src/a"))
	run("get", pub.String()+"/f", in("got"))
	require.FileExists(t, in("got"))
	require.Contains(t, run("ls", target.String()+"/a/b"), "h")
	// If another folder takes the name of a share, the kernel never lets the server into it.
	require.NoError(t, os.Rename(in("ro"), in("was")))
	require.NoError(t, os.Mkdir(in("ro"), 0o700))
	c := exec.Command(own, "ls", pub.String())
	c.Env = append(os.Environ(), "FXFER_HOME="+in("client"))
	out, err := c.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "is not there, or the server can't open it")
	log, err = os.ReadFile(in("log"))
	require.NoError(t, err)
	require.Contains(t, string(log), "restart the server")
	enrolled, err := os.ReadFile(in("lists/clients"))
	require.NoError(t, err)
	require.NotEmpty(t, enrolled, "enrolled through the symlink")
}
