package faults

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/path/lab"
)

// chain is a lab with a client on its left host, and programs of fxfer on others. The home folder of
// each is in dir.
type chain struct {
	*lab.Lab
	t   *testing.T
	ctx context.Context //nolint:containedctx // ends all commands
	dir string
}

func startChain(t *testing.T, legs ...lab.Leg) *chain {
	t.Helper()
	box, err := lab.StartChain(legs)
	if errors.Is(err, lab.ErrUnsupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, box.Close()) })
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	t.Cleanup(cancel)
	return &chain{box, t, ctx, t.TempDir()}
}

func (c *chain) command(h *lab.Host, home string, args ...string) *lab.Cmd {
	cmd := h.Command(c.ctx, program, args...)
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), "FXFER_HOME="+filepath.Join(c.dir, home))
	return cmd
}

// run runs a command of the client, or about another home folder, and returns what it prints.
func (c *chain) run(home string, args ...string) string {
	c.t.Helper()
	out, err := c.command(c.Left, home, args...).CombinedOutput()
	require.NoError(c.t, err, "%v: %s", args, out)
	return strings.TrimSpace(string(out))
}

// start starts a program that listens on a host, for the client's key, and knows its key at the client.
// ready is a command of the client that succeeds as soon as it is up; "URL" stands for the URL.
func (c *chain) start(h *lab.Host, home, rights string, ready []string, args ...string) (cmd *lab.Cmd, url string) {
	c.t.Helper()
	c.run(home, "clients", "add", c.run("client", "key"), "--share", "*", "--rights", rights)
	cmd = c.command(h, home, args...)
	cmd.Stdout, cmd.Stderr = c.t.Output(), c.t.Output()
	require.NoError(c.t, cmd.Start())
	c.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	url = "fxfer://" + h.Addr().String()
	try := make([]string, len(ready))
	for i, word := range ready {
		try[i] = strings.NewReplacer("URL", url, "PIN", c.run(home, "key")).Replace(word)
	}
	require.Eventually(c.t, func() bool { return c.command(c.Left, "client", try...).Run() == nil }, 2*time.Minute, 100*time.Millisecond)
	return cmd, url
}

// serve starts a server.
func (c *chain) serve(h *lab.Host, home, rights string, args ...string) (url string) {
	c.t.Helper()
	_, url = c.start(h, home, rights, []string{"ls", "--pin", "PIN", "URL"}, append([]string{"serve"}, args...)...)
	return url
}
