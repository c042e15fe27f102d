package faults

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/path/lab"
)

// TestRelayInTheLab: a client sends through a relay, which is killed in the middle. The transfer goes on
// without it. A capture of all packets at the relay's host has nothing of the content, of names or of
// the relay's answers in clear; it has what others send there in clear.
func TestRelayInTheLab(t *testing.T) {
	if _, err := exec.LookPath("tcpdump"); err != nil {
		t.Skip(err)
	}
	const size = 16 << 20
	link := lab.Link{Rate: 50e6, RTT: 20 * time.Millisecond}
	c := startChain(t, lab.Leg{Link: link}, lab.Leg{Link: link})
	content, clear := make([]byte, size), make([]byte, 64<<10)
	random := rand.NewChaCha8([32]byte{21})
	_, _ = random.Read(content)
	_, _ = random.Read(clear)
	require.NoError(t, os.WriteFile(filepath.Join(c.dir, "unspoken-name"), content, 0o644))
	require.NoError(t, os.Mkdir(filepath.Join(c.dir, "unspoken-share"), 0o755))

	capture := filepath.Join(c.dir, "capture")
	dump := c.Middle[0].Command(c.ctx, "tcpdump", "-i", "any", "-s", "0", "-U", "-B", "65536", "-Z", "root", "-w", capture, "tcp")
	dump.Stderr = t.Output()
	require.NoError(t, dump.Start())
	t.Cleanup(func() { _ = dump.Process.Kill(); _ = dump.Wait() })
	require.Eventually(t, func() bool { info, err := os.Stat(capture); return err == nil && info.Size() > 0 }, time.Minute, 10*time.Millisecond)

	to := c.serve(c.Right, "server", "rw", "--share", "unspoken-share=unspoken-share")
	target, share := strings.TrimPrefix(to, "fxfer://")+":7433", filepath.Join(c.dir, "unspoken-share")
	via := c.Middle[0].Addr().String()
	known, err := identity.OpenStore(filepath.Join(c.dir, "client"))
	require.NoError(t, err)
	require.NoError(t, known.AddKnownServer(via+":7433", identity.Pin(c.run("relay", "key"))))
	relay, _ := c.start(c.Middle[0], "relay", "ro", []string{"ls", "--via", via, to}, "relay", "--to", target)
	c.sendInClear(clear)

	sending := c.command(c.Left, "client", "send", "--json", "--via", via, "--via", "direct", "unspoken-name", to+"/unspoken-share")
	var out bytes.Buffer
	sending.Stdout, sending.Stderr = &out, t.Output()
	require.NoError(t, sending.Start())
	before := c.LegCounters()[0][0].Bytes
	require.Eventually(t, func() bool { return c.LegCounters()[0][0].Bytes > before+size/4 }, 3*time.Minute, 10*time.Millisecond)
	require.NoError(t, relay.Process.Signal(syscall.SIGKILL))
	require.NoError(t, sending.Wait(), "%s", out.String())
	got, err := os.ReadFile(filepath.Join(share, "unspoken-name"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(content, got), "it is exact")
	lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
	var report struct{ Reconnects int }
	require.NoError(t, json.Unmarshal(lines[len(lines)-1], &report))
	require.Positive(t, report.Reconnects, "%s", lines[len(lines)-1])

	require.NoError(t, dump.Process.Signal(os.Interrupt))
	_ = dump.Wait()
	seen, err := os.ReadFile(capture)
	require.NoError(t, err)
	t.Logf("%d bytes captured", len(seen))
	require.Greater(t, len(seen), 2*size, "on both legs")
	require.Positive(t, found(seen, clear), "the capture has what is sent in clear")
	require.Zero(t, found(seen, content))
	for _, word := range []string{"unspoken", target} {
		require.False(t, bytes.Contains(seen, []byte(word)), word)
	}
}

// sendInClear sends bytes from the left host to the right one, by way of the one between.
func (c *chain) sendInClear(b []byte) {
	var l net.Listener
	require.NoError(c.t, c.Right.Do(func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(c.Right.Addr().String(), "0"))
		return err
	}))
	defer l.Close()
	var from net.Conn
	require.NoError(c.t, c.Left.Do(func() (err error) {
		from, err = net.Dial("tcp", l.Addr().String())
		return err
	}))
	go func() { _, _ = from.Write(b); from.Close() }()
	to, err := l.Accept()
	require.NoError(c.t, err)
	defer to.Close()
	got, err := io.ReadAll(to)
	require.NoError(c.t, err)
	require.Equal(c.t, b, got)
}

// found returns how many pieces of random content are anywhere in what was seen. A piece is short, so
// that packets do not cut all of them.
func found(seen, content []byte) (n int) {
	const piece, every = 16, 512
	all := make(map[[piece]byte]bool, len(content)/every)
	for i := 0; i+piece <= len(content); i += every {
		all[[piece]byte(content[i:])] = true
	}
	for i := 0; i+piece <= len(seen); i++ {
		if all[[piece]byte(seen[i:])] {
			n++
		}
	}
	return n
}
