package ssh_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/path/lab"
)

var outage = flag.Duration("outage", 0, "how long the line of TestLine is away; 0 is no test")

// TestLine: a command with --retry-for outlives a line that is away for longer than TCP, ssh and the
// server bear. It sends nothing twice, and leaves nothing.
func TestLine(t *testing.T) {
	if *outage == 0 {
		t.Skip("takes twice as long as -outage")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: sshd changes its user on a host of the lab")
	}
	f := newFar(t).install()
	const size = 48 << 20
	tree := f.near("tree", size)
	box, err := lab.Start(lab.Link{Rate: 100e6, RTT: 20 * time.Millisecond})
	if errors.Is(err, lab.ErrUnsupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, box.Close()) }()
	there := box.Right.Addr().String()
	sshd := box.Right.Command(t.Context(), "/usr/sbin/sshd", "-D", "-e", "-f", f.dir+"/sshd_config", "-o", "ListenAddress="+there)
	sshd.Stderr = t.Output()
	require.NoError(t, sshd.Start())
	require.Eventually(t, func() bool {
		return box.Left.Do(func() error {
			c, err := net.Dial("tcp", net.JoinHostPort(there, f.port))
			if err == nil {
				c.Close()
			}
			return err
		}) == nil
	}, 30*time.Second, 50*time.Millisecond, "sshd does not listen")

	port := strconv.Itoa(freePort(t))
	c := box.Left.Command(t.Context(), program, "send", "--json", "--retry-for", "10m", "--rate-limit", "64mbit", "--ports", port, "tree", "far:in")
	c.Dir = f.dir + "/near"
	c.Env = append(c.Env, "FXFER_HOME="+f.dir+"/near-home", fmt.Sprintf("FXFER_SSH_COMMAND=ssh -F '%s/ssh_config' -o HostName=%s -o HostKeyAlias=[127.0.0.1]:%s", f.dir, there, f.port))
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	away := false
	var last struct {
		Done       int64 `json:"bytes_done"`
		Written    int64 `json:"bytes_written"`
		Reconnects int   `json:"reconnects"`
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20) // the summary has each moment
	for lines.Scan() {
		require.NoError(t, json.Unmarshal(lines.Bytes(), &last))
		if last.Done >= 6<<20 && !away {
			away = true
			require.NoError(t, box.Set(lab.Change{Down: *outage}))
		}
	}
	require.NoError(t, lines.Err())
	require.NoError(t, c.Wait(), said.String())
	t.Logf("%d connections were lost: %s", last.Reconnects, said.String())
	if *outage > time.Minute { // a shorter one may only hold up TCP
		require.Positive(t, last.Reconnects)
	}
	require.Less(t, last.Written, int64(size+(16<<20)), "it resumes")
	f.same(tree, f.home+"/in/tree")
	require.NoError(t, sshd.Process.Kill())
	_ = sshd.Wait()
	f.clean(0, "in")
	require.Error(t, box.Left.Do(func() error {
		c, err := net.Dial("tcp", net.JoinHostPort(there, port))
		if err == nil {
			c.Close()
		}
		return err
	}), "the server's port is open")
}
