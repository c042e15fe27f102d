package explain

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/path/diagnose"
)

// pair returns both ends of a connection over loopback.
func pair(t *testing.T) (from, to *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	s, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() {
		c.Close()
		s.Close()
	})
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

// The kernel's own figures show what three connections of this process do.
func TestWatch(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	begin := func(f func()) { all.Go(f) }
	every := time.NewTicker(20 * time.Millisecond)
	defer every.Stop()

	slow, reader := pair(t) // a reader that takes 4 KiB in each tick
	begin(func() { _, _ = io.Copy(slow, zeros{}) })
	begin(func() {
		b := make([]byte, 4096)
		for ctx.Err() == nil {
			select {
			case <-every.C:
			case <-ctx.Done():
			}
			if _, err := io.ReadFull(reader, b); err != nil {
				return
			}
		}
	})
	stalled, answers := pair(t) // header and body in two writes, and Nagle's algorithm
	require.NoError(t, stalled.SetNoDelay(false))
	begin(func() {
		for b := make([]byte, 2048); ctx.Err() == nil; {
			_, _ = stalled.Write(b[:4]) // errors end the read
			_, _ = stalled.Write(b)
			if _, err := io.ReadFull(stalled, b[:2]); err != nil {
				return
			}
		}
	})
	begin(func() {
		for b := make([]byte, 2052); ctx.Err() == nil; {
			if _, err := io.ReadFull(answers, b); err != nil {
				return
			}
			_, _ = answers.Write(b[:2]) // errors end the read
		}
	})

	r, err := Watch(ctx, Target{PID: os.Getpid()}, 2*time.Second)
	stop()
	for _, c := range []net.Conn{slow, reader, stalled, answers} {
		c.Close()
	}
	all.Wait()
	require.NoError(t, err)
	find := func(c *net.TCPConn) *Connection {
		t.Helper()
		port := netip.MustParseAddrPort(c.LocalAddr().String()).Port()
		for i := range r.Connections {
			if x := &r.Connections[i]; x.Local.Port() == port || x.Remote.Port() == port {
				return x
			}
		}
		t.Fatalf("port %d is not in the report: %+v", port, r)
		return nil
	}
	c := find(slow)
	require.Contains(t, c.Program, "explain.test (process ")
	require.NotEmpty(t, c.Verdicts)
	require.Equal(t, diagnose.ReceivingProgram, c.Verdicts[0].Limiter)
	require.Equal(t, diagnose.ReaderSlow, c.Verdicts[0].Evidence[0].Kind)
	c = find(stalled)
	require.NotEmpty(t, c.Verdicts)
	require.Equal(t, diagnose.Stalls, c.Verdicts[0].Limiter)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestWatchNobody(t *testing.T) {
	t.Parallel()
	_, err := Watch(context.Background(), Target{PID: 1 << 30}, time.Second)
	require.ErrorIs(t, err, ErrNoProcess)
	cmd := exec.Command("sh", "-c", "exit 3")
	r, err := Watch(context.Background(), Target{Command: cmd}, 0)
	require.NoError(t, err)
	require.Equal(t, 3, cmd.ProcessState.ExitCode())
	require.Empty(t, r.Connections)
}
