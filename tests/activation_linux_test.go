package tests

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// activated is a server that gets its sockets the way systemd passes them, and that reports its
// state to systemd.
type activated struct {
	t       *testing.T
	dir     string
	sockets []*os.File // a TCP and a UDP socket
	notify  *net.UnixConn
	cmd     *exec.Cmd
	said    bytes.Buffer
}

func newActivated(t *testing.T, config string) (*activated, string) {
	a := &activated{t: t, dir: t.TempDir()}
	var plain net.ListenConfig
	plain.SetMultipathTCP(false) // systemd does not use it either
	l, err := plain.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	at, err := net.ResolveUDPAddr("udp", address)
	require.NoError(t, err)
	u, err := net.ListenUDP("udp", at)
	require.NoError(t, err)
	for _, s := range []interface {
		File() (*os.File, error)
		Close() error
	}{l.(*net.TCPListener), u} {
		f, err := s.File()
		require.NoError(t, err)
		require.NoError(t, s.Close()) // the file keeps listening
		t.Cleanup(func() { _ = f.Close() })
		a.sockets = append(a.sockets, f)
	}
	a.notify, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(a.dir, "notify"), Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = a.notify.Close() })
	require.NoError(t, os.MkdirAll(filepath.Join(a.dir, "files"), 0o700))
	a.configure(config)
	return a, address
}

func (a *activated) configure(config string) {
	require.NoError(a.t, os.WriteFile(filepath.Join(a.dir, "fxfer.yaml"), []byte(config), 0o600))
}

// heard waits until the server sends this message to systemd.
func (a *activated) heard(want string) string {
	a.t.Helper()
	buf := make([]byte, 4096)
	require.NoError(a.t, a.notify.SetReadDeadline(time.Now().Add(time.Minute)))
	for {
		n, err := a.notify.Read(buf)
		require.NoError(a.t, err, "waiting for %s; the server said:\n%s", want, &a.said)
		if strings.Contains(string(buf[:n]), want) {
			return string(buf[:n])
		}
	}
}

// start returns when the server is ready.
func (a *activated) start() {
	a.t.Helper()
	a.cmd = exec.Command("sh", "-c", "LISTEN_PID=$$ exec fxfer serve --config fxfer.yaml")
	a.cmd.Dir = a.dir
	a.cmd.Env = append(os.Environ(), fmt.Sprint("LISTEN_FDS=", len(a.sockets)), "NOTIFY_SOCKET="+filepath.Join(a.dir, "notify"), "WATCHDOG_USEC=200000", "FXFER_HOME="+filepath.Join(a.dir, "home"))
	a.cmd.ExtraFiles = a.sockets
	a.cmd.Stdout, a.cmd.Stderr = &a.said, &a.said
	require.NoError(a.t, a.cmd.Start())
	a.t.Cleanup(func() { _ = a.cmd.Process.Kill(); _, _ = a.cmd.Process.Wait() })
	a.heard("READY=1")
}

// admit admits a client that may read and write. It returns the client's home and the server's key.
func (a *activated) admit() (home, pin string) {
	a.t.Helper()
	server, err := identity.OpenStore(filepath.Join(a.dir, "home"))
	require.NoError(a.t, err)
	serverKey, err := server.Key()
	require.NoError(a.t, err)
	home = filepath.Join(a.dir, "client")
	client, err := identity.OpenStore(home)
	require.NoError(a.t, err)
	key, err := client.Key()
	require.NoError(a.t, err)
	require.NoError(a.t, server.Admit(identity.Principal(identity.PinOfPrivate(key)), identity.Grants{"*": identity.Read | identity.Write}, ""))
	return home, string(identity.PinOfPrivate(serverKey))
}

func (a *activated) stop() {
	a.t.Helper()
	require.NoError(a.t, a.cmd.Process.Signal(syscall.SIGTERM))
	a.heard("STOPPING=1")
	require.NoError(a.t, a.cmd.Wait(), "%s", &a.said)
}

func (a *activated) kill() {
	a.t.Helper()
	require.NoError(a.t, a.cmd.Process.Kill())
	require.Error(a.t, a.cmd.Wait())
}

// reload makes the server read its configuration again.
func (a *activated) reload() {
	a.t.Helper()
	require.NoError(a.t, a.cmd.Process.Signal(syscall.SIGHUP))
	a.heard("MONOTONIC_USEC=")
	a.heard("READY=1")
}

// TestRestart restarts a server twice while systemd keeps its sockets open and fifty transfers run.
// No transfer fails, and no connection is refused.
func TestRestart(t *testing.T) {
	t.Run("tcp", func(t *testing.T) { restart(t, fxfer.TransportTCP, 50, (*activated).stop) })
	// A client that the old server could not tell about its end learns from the next server that
	// its connection is gone.
	t.Run("quic", func(t *testing.T) { restart(t, fxfer.TransportQUIC, 12, (*activated).kill) })
}

func restart(t *testing.T, over fxfer.Transport, transfers int, second func(*activated)) {
	const size = 2 << 20
	a, address := newActivated(t, "shares: {data: {dir: files}}\nrate-limit: 160mbit\nmax-sessions: 64\nmax-sessions-per-client: 64\n")
	t.Logf("seed %d", *seed)
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(*seed), byte(*seed >> 8)}).Read(content)
	require.NoError(t, os.WriteFile(filepath.Join(a.dir, "content"), content, 0o600))
	client, pin := a.admit()
	a.start()
	a.heard("WATCHDOG=1")

	var begun, ended, again atomic.Int64
	done := make([]atomic.Int64, transfers) // bytes
	sum := func() (n int64) {
		for i := range done {
			n += done[i].Load()
		}
		return n
	}
	var all sync.WaitGroup
	failed := make(chan error, 2*transfers)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	for i := range transfers {
		first := sync.OnceFunc(func() { begun.Add(1) })
		c, err := fxfer.NewClient(fxfer.Options{Home: client, Transport: over, Streams: 1, RetryFor: 3 * time.Minute, Pin: pin,
			Notice: func(s string) {
				if strings.Contains(s, "refused") {
					failed <- fmt.Errorf("transfer %d: %s", i, s)
				}
				again.Add(1)
			},
		})
		require.NoError(t, err)
		u, err := fxfer.ParseURL(fmt.Sprintf("fxfer://%s/data/f%d", address, i))
		require.NoError(t, err)
		call := fxfer.Transfer{Progress: func(p fxfer.Progress) {
			if done[i].Store(p.BytesDone); p.BytesDone > 0 {
				first()
			}
		}}
		all.Go(func() {
			defer first()
			defer ended.Add(1)
			if _, err := c.Send(ctx, []string{filepath.Join(a.dir, "content")}, u, call); err != nil {
				failed <- fmt.Errorf("transfer %d: %w", i, err)
			}
		})
	}
	var running []int64 // the number of running transfers at each restart
	for _, end := range []func(*activated){(*activated).stop, second} {
		before := sum()
		require.Eventually(t, func() bool { return begun.Load() == int64(transfers) && sum() > before+4*size }, 2*time.Minute, 10*time.Millisecond)
		running = append(running, int64(transfers)-ended.Load())
		end(a)
		a.start()
	}
	all.Wait()
	close(failed)
	for err := range failed {
		t.Error(err)
	}
	t.Logf("%d transfers ran when the server was restarted, they tried again %d times", running, again.Load())
	require.Positive(t, running[1])
	for i := range transfers {
		got, err := os.ReadFile(filepath.Join(a.dir, "files", fmt.Sprint("f", i)))
		require.NoError(t, err)
		require.True(t, bytes.Equal(content, got))
	}
	a.reload()
	a.stop()
}
