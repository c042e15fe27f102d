package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/path/lab"
)

// TestCopyInTheLab: a client on a narrow line has one server send files to another one, and is killed
// at once. The copy is exact, and the content takes the line between the servers only.
func TestCopyInTheLab(t *testing.T) {
	const size = 24 << 20
	box, err := lab.StartChain([]lab.Leg{
		{Link: lab.Link{Rate: 10e6, RTT: 20 * time.Millisecond}}, {Link: lab.Link{Rate: 500e6, RTT: 20 * time.Millisecond}},
	})
	if errors.Is(err, lab.ErrUnsupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, box.Close()) }()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	command := func(h *lab.Host, home string, args ...string) *lab.Cmd {
		cmd := h.Command(ctx, program, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "FXFER_HOME="+filepath.Join(dir, home))
		return cmd
	}
	run := func(home string, args ...string) string {
		out, err := command(box.Left, home, args...).CombinedOutput()
		require.NoError(t, err, "%v: %s", args, out)
		return strings.TrimSpace(string(out))
	}
	content := bytes.Repeat([]byte("a line that does not compress itself\n"), size/37)
	for _, name := range []string{"x", "y"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x/f"), content, 0o644))
	key := run("client", "key")
	start := func(h *lab.Host, home, rights string, args ...string) (url string) {
		run(home, "clients", "add", key, "--share", "*", "--rights", rights)
		cmd := command(h, home, append([]string{"serve"}, args...)...)
		cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		url = "fxfer://" + h.Addr().String()
		pin := run(home, "key")
		require.Eventually(t, func() bool { return command(box.Left, "client", "ls", "--pin", pin, url).Run() == nil }, 2*time.Minute, 100*time.Millisecond)
		return url
	}
	from := start(box.Middle[0], "berlin", "ro", "--copies", "--share", "x=x:ro")
	to := start(box.Right, "oslo", "wo", "--share", "y=y:wo")

	asking := command(box.Left, "client", "copy", from+"/x/", to+"/y/new")
	require.NoError(t, asking.Start())
	var s struct{ State, Message string }
	look := func() bool {
		out, err := command(box.Left, "client", "queue", "--json", from).Output()
		return err == nil && json.Unmarshal(bytes.TrimSpace(out), &s) == nil
	}
	require.Eventually(t, look, 2*time.Minute, 50*time.Millisecond, "the copy is in the queue")
	require.NoError(t, asking.Process.Kill())
	_ = asking.Wait()
	require.Eventually(t, func() bool { return look() && s.State == "done" }, 4*time.Minute, 300*time.Millisecond, "%v", s)

	got, err := os.ReadFile(filepath.Join(dir, "y/new/f"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(content, got), "the copy is exact")
	legs := box.LegCounters()
	near, far := legs[0][0].Bytes+legs[0][1].Bytes, legs[1][0].Bytes
	t.Logf("%d bytes near the client, %d between the servers", near, far)
	require.Greater(t, far, int64(size*9/10))
	require.Less(t, near, int64(size/4), "what the client and both servers have said")
}
