// Package backup holds tests of scheduled backups from outside: killed processes, and a real
// database.
package backup

import (
	"bufio"
	"flag"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/cli"
	fx "github.com/fxfer/fxfer/pkg/fxfer"
)

var seed = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of what is random")

// runsFxfer is the environment variable that makes this test program act as fxfer.
const runsFxfer = "FXFER_TEST_RUNS_FXFER"

func TestMain(m *testing.M) {
	if os.Getenv(runsFxfer) != "" {
		os.Exit(cli.Main(os.Args[1:]))
	}
	flag.Parse()
	os.Exit(m.Run())
}

func dice(t *testing.T) *rand.Rand {
	t.Logf("seed %d", *seed)
	return rand.New(rand.NewPCG(*seed, 0))
}

// fxfer is a command with an FXFER_HOME of its own.
func fxfer(home string, args ...string) *exec.Cmd {
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), runsFxfer+"=1", "FXFER_HOME="+home)
	return c
}

// output runs a command that must succeed.
func output(t *testing.T, c *exec.Cmd) string {
	t.Helper()
	var said strings.Builder
	c.Stderr = &said
	out, err := c.Output()
	require.NoError(t, err, said.String())
	return string(out)
}

// process is a fxfer process that tests kill and start again.
type process struct {
	t    *testing.T
	home string
	args []string
	cmd  *exec.Cmd
}

func (p *process) start() {
	p.cmd = fxfer(p.home, p.args...)
	p.cmd.Stderr = os.Stderr
	require.NoError(p.t, p.cmd.Start())
}

// kill ends the process with SIGKILL.
func (p *process) kill() {
	if p.cmd != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		p.cmd = nil
	}
}

// serve starts a server for dir on the loopback, and admits the client whose home is client. It
// returns the URL of the share. The URL stays the same when the server is started again.
func serve(t *testing.T, client, dir string) (server *process, url string) {
	t.Helper()
	home := t.TempDir()
	first := fxfer(home, "serve", "--quiet", "--invite", "--name", "127.0.0.1", "--listen", "127.0.0.1:0", "--share", "s="+dir)
	out, err := first.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, first.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	invitation, err := fx.ParseURL(strings.TrimSpace(line))
	require.NoError(t, err)
	output(t, fxfer(client, "ls", invitation.String()))
	require.NoError(t, first.Process.Kill())
	_ = first.Wait()
	invitation.Token, invitation.Pin = "", ""
	address := net.JoinHostPort(invitation.Host, strconv.Itoa(invitation.Port))
	server = &process{t: t, home: home, args: []string{"serve", "--quiet", "--listen", address, "--share", "s=" + dir}}
	server.start()
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	t.Cleanup(server.kill)
	return server, strings.TrimSuffix(invitation.String(), "/")
}
