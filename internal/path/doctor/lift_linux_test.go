package doctor

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/fxfer/fxfer/internal/transport"
)

// goodput is what one stream of a plain program carries from left to right after slow start, in
// bit/s. The program sets only the congestion control of its sockets, so that the host's defaults
// decide.
func goodput(t *testing.T, l *lab.Lab) float64 {
	t.Helper()
	const warmUp, measured = 2 * time.Second, 2 * time.Second
	cubic := func(fd int) error { return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic") }
	var ln net.Listener
	require.NoError(t, l.Right.Do(func() (err error) {
		ln, err = net.Listen("tcp", net.JoinHostPort(l.Right.Addr().String(), "0"))
		return err
	}))
	defer ln.Close()
	var out *net.TCPConn
	require.NoError(t, l.Left.Do(func() error {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			return err
		}
		out = c.(*net.TCPConn)
		raw, err := out.SyscallConn()
		if err != nil {
			return err
		}
		var set error
		return errors.Join(raw.Control(func(fd uintptr) { set = cubic(int(fd)) }), set)
	}))
	defer out.Close()
	in, err := ln.Accept()
	require.NoError(t, err)
	defer in.Close()

	var g errgroup.Group
	g.Go(func() error {
		block := make([]byte, 1<<20)
		for {
			if _, err := out.Write(block); err != nil {
				return nil // the reader has seen enough
			}
		}
	})
	receive := func(d time.Duration) (n int64) {
		block := make([]byte, 1<<20)
		for end := time.Now().Add(d); time.Now().Before(end); {
			k, err := in.Read(block)
			require.NoError(t, err)
			n += int64(k)
		}
		return n
	}
	receive(warmUp)
	start := time.Now()
	n := receive(measured)
	took := time.Since(start)
	require.NoError(t, errors.Join(in.(*net.TCPConn).SetLinger(0), in.Close()))
	require.NoError(t, g.Wait())
	return float64(n) * 8 / took.Seconds()
}

// best is the best goodput of several tries, up to the first that reaches least. Other programs
// may use the CPU.
func best(t *testing.T, l *lab.Lab, least float64) (most float64) {
	t.Helper()
	for try := 0; try < 20 && most < least; try++ {
		most = max(most, goodput(t, l))
	}
	return most
}

// TestApplyLifts measures a transfer before and after apply, on one host of a lab after the
// other, and compares with the gains of the findings. The line is slow enough for a busy machine.
func TestApplyLifts(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes 12 s of traffic")
	}
	const rcvBuf, sndBuf = 400 << 10, 800 << 10
	path := pathOf(50e6, 200*time.Millisecond)
	l := startLab(t, lab.Link{Rate: int64(path.Rate), RTT: path.RTT})
	set := func(h *lab.Host, name, text string) {
		require.NoError(t, h.Do(func() error { return linuxSystem{"/"}.writeSysctl(name, text) }))
	}
	set(l.Right, "net.ipv4.tcp_rmem", fmt.Sprint("4096 131072 ", rcvBuf))
	set(l.Left, "net.ipv4.tcp_rmem", "4096 131072 6291456")
	set(l.Left, "net.ipv4.tcp_wmem", fmt.Sprint("4096 16384 ", sndBuf))
	apply := func(h *lab.Host, id string) *Gain {
		var g *Gain
		dir := t.TempDir()
		require.NoError(t, h.Do(func() error {
			_, r, err := examineHere(path)
			if err != nil {
				return err
			}
			for _, f := range r.Findings {
				if f.ID == id {
					g = f.Gain
				}
			}
			c := &Changer{home: dir, root: dir, sys: linuxSystem{"/"}}
			plan, err := c.PlanApply(r.Findings)
			if err != nil {
				return err
			}
			return c.Apply(plan)
		}))
		require.NotNil(t, g, id)
		return g
	}

	first := best(t, l, 0.6*path.Ceiling(rcvWindow(rcvBuf)))
	receiver := apply(l.Right, "tcp_rmem")
	second := best(t, l, 0.8*path.Ceiling(sndWindow(sndBuf)))
	sender := apply(l.Left, "tcp_wmem")
	said := min(sender.After, receiver.After) - receiver.Before
	third := best(t, l, first+0.8*said)
	t.Logf("as found %.0f Mbit/s, said %.0f; receiver changed %.0f, said %.0f; sender changed, too %.0f, said %.0f",
		first/1e6, receiver.Before/1e6, second/1e6, sender.Before/1e6, third/1e6, sender.After/1e6)

	// With later kernels and some network cards, up to two thirds of a receive buffer become
	// window instead of a half.
	require.InDelta(t, receiver.Before, first, receiver.Before*0.4)
	require.InDelta(t, sender.Before, second, sender.Before*0.4)
	require.GreaterOrEqual(t, third-first, 0.8*said)
}

// TestSharesOfBuffers checks that buffers hold here what internal/transport says they hold.
func TestSharesOfBuffers(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	ln, err := transport.Listen("127.0.0.1:0", transport.Config{Identity: key})
	require.NoError(t, err)
	defer ln.Close()
	accepted := make(chan transport.Conn, 1)
	go func() {
		c, err := ln.Accept()
		if err == nil {
			err = c.Handshake(context.Background())
		}
		if err != nil {
			c = nil
		}
		accepted <- c
	}()
	everyone := func(ed25519.PublicKey) error { return nil }
	c, err := transport.Dial(context.Background(), ln.Addr().String(), transport.Config{Identity: key}, everyone)
	require.NoError(t, err)
	defer c.Close()
	peer := <-accepted
	require.NotNil(t, peer)
	defer peer.Close()

	auto := func(name string) (n int64) {
		text, err := os.ReadFile(linuxSystem{"/"}.sysctlPath(name))
		require.NoError(t, err)
		_, err = fmt.Sscan(strings.Fields(string(text))[2], &n)
		require.NoError(t, err)
		return n
	}
	w := c.Windows()
	rcv, snd := auto("net.ipv4.tcp_rmem"), auto("net.ipv4.tcp_wmem")
	if w.RcvFixed {
		rcv = int64(w.RcvBuf)
	}
	if w.SndFixed {
		snd = int64(w.SndBuf)
	}
	require.EqualValues(t, w.RcvCap, rcvWindow(rcv))
	require.EqualValues(t, w.SndCap, sndWindow(snd))
}
