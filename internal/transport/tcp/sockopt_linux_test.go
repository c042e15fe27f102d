package tcp

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fxfer/fxfer/internal/transport/socket"
	"github.com/fxfer/fxfer/internal/transport/stream"
	"github.com/fxfer/fxfer/internal/transport/transporttest"
)

// connect returns both ends of a stream over loopback.
func connect(t *testing.T, clientCfg, serverCfg Config) (client, server *Conn) {
	t.Helper()
	clientCfg.Auth, serverCfg.Auth = newAuth(t), newAuth(t)
	l, err := Listen("127.0.0.1:0", serverCfg)
	require.NoError(t, err)
	defer l.Close()
	got := make(chan *Conn, 1)
	go func() {
		c, err := l.Accept()
		if err == nil && c.Handshake(context.Background()) != nil {
			c = nil
		}
		got <- c
	}()
	client, err = Dial(t.Context(), l.Addr().String(), clientCfg, transporttest.AnyKey)
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	server = <-got
	require.NotNil(t, server)
	t.Cleanup(func() { server.Close() })
	server.Admit()
	for _, c := range []*Conn{client, server} {
		require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	}
	return client, server
}

func option(t *testing.T, c *Conn, level, opt int) int {
	t.Helper()
	raw, err := c.tcp.SyscallConn()
	require.NoError(t, err)
	var n int
	require.NoError(t, socket.Control(raw, func(fd int) (err error) {
		n, err = unix.GetsockoptInt(fd, level, opt)
		return err
	}))
	return n
}

// Packets are marked as lower effort as long as that is asked for.
func TestLowerEffort(t *testing.T) {
	client, _ := connect(t, Config{}, Config{})
	require.NoError(t, client.SetLowerEffort(true))
	require.Equal(t, 0x04, option(t, client, unix.IPPROTO_IP, unix.IP_TOS)&^3, "RFC 8622: DSCP 000001")
	require.NoError(t, client.SetLowerEffort(false))
	require.Equal(t, 0, option(t, client, unix.IPPROTO_IP, unix.IP_TOS)&^3)
}

func TestSocketOptions(t *testing.T) {
	client, server := connect(t, Config{}, Config{})
	for name, c := range map[string]*Conn{"client": client, "server": server} {
		require.NotZero(t, option(t, c, unix.IPPROTO_TCP, unix.TCP_NODELAY), name)
		require.Equal(t, lowWater, option(t, c, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT), name)
		require.EqualValues(t, peerTimeout.Milliseconds(), option(t, c, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT), name)
		require.NotZero(t, option(t, c, unix.SOL_SOCKET, unix.SO_KEEPALIVE), name)
		require.EqualValues(t, int(keepAlive.Idle/time.Second), option(t, c, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE), name)
		require.Equal(t, unix.IPPROTO_TCP, option(t, c, unix.SOL_SOCKET, unix.SO_PROTOCOL), "%s must not be MPTCP", name)
	}
}

// TestSockBuf: the fixed window holds at both ends during a whole transfer, whoever asks for it.
func TestSockBuf(t *testing.T) {
	const size = 64 << 10
	tests := []struct {
		name           string
		client, server Config
		apply          bool
	}{
		{"both by configuration", Config{SockBuf: size}, Config{SockBuf: size}, false},
		{"server by request", Config{SockBuf: size}, Config{}, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			client, server := connect(t, test.client, test.server)
			if test.apply {
				require.NoError(t, server.Apply(size, ""))
			}
			for _, c := range []*Conn{client, server} {
				w := c.Windows()
				require.Equal(t, stream.Windows{SndBuf: 2 * size, RcvBuf: 2 * roomPerWindow * size, SndFixed: true, RcvFixed: true, SndCap: size, RcvCap: size}, w)
				c.grow(Path{RTT: time.Second, Rate: 1e9})
				require.Equal(t, w, c.Windows(), "a fixed window stays")
			}
			for _, dir := range [][2]*Conn{{client, server}, {server, client}} {
				from, to := dir[0], dir[1]
				done := make(chan error, 1)
				go func() { _, err := io.Copy(io.Discard, struct{ io.Reader }{to}); done <- err }()
				// The kernel measures the first segments and then moves the clamp.
				_, err := from.Write(make([]byte, 1<<20))
				require.NoError(t, err)
				for range 50 {
					_, err := from.Write(make([]byte, 200_000))
					require.NoError(t, err)
					info, ok := from.Info()
					require.True(t, ok)
					require.LessOrEqual(t, info.SndWnd, size)
				}
				require.NoError(t, from.CloseWrite())
				require.NoError(t, <-done)
			}
		})
	}
}

func TestSockBufRefused(t *testing.T) {
	_, err := Listen("127.0.0.1:0", Config{Auth: newAuth(t), SockBuf: -1})
	require.ErrorContains(t, err, "-1 bytes")
	client, _ := connect(t, Config{}, Config{})
	require.ErrorContains(t, client.Apply(-1, ""), "-1 bytes")
}

func TestCongestion(t *testing.T) {
	client, server := connect(t, Config{Congestion: "reno"}, Config{Congestion: "auto"})
	info, ok := client.Info()
	require.True(t, ok)
	require.Equal(t, "reno", info.Congestion)
	require.NoError(t, server.Apply(0, "reno"))
	require.NoError(t, server.Apply(0, "auto"))
	info, ok = server.Info()
	require.True(t, ok)
	require.Equal(t, "reno", info.Congestion)

	err := server.Apply(0, "nosuch")
	require.ErrorIs(t, err, ErrCongestion)
	require.Regexp(t, `^congestion control "nosuch": this kernel has only .*reno`, err.Error())
	_, err = Dial(t.Context(), "127.0.0.1:1", Config{Auth: newAuth(t), Congestion: "nosuch"}, transporttest.AnyKey)
	require.ErrorIs(t, err, ErrCongestion)
}

func TestInfo(t *testing.T) {
	client, server := connect(t, Config{}, Config{})
	total := 0
	done := make(chan error, 1)
	go func() { _, err := io.Copy(io.Discard, server); done <- err }()
	require.Eventually(t, func() bool { // the kernel counts busy time in jiffies
		n, err := client.Write(make([]byte, 4<<20))
		total += n
		info, ok := client.Info()
		return err == nil && ok && info.BusyTime > 0
	}, 20*time.Second, time.Millisecond)
	require.NoError(t, client.CloseWrite())
	require.NoError(t, <-done)
	got, ok := server.Info()
	require.True(t, ok)
	require.Greater(t, got.BytesReceived, uint64(total))
	require.NotZero(t, got.RcvWnd)
	info, ok := client.Info()
	require.True(t, ok)
	require.Greater(t, info.BytesSent, uint64(total))
	require.Greater(t, info.BytesAcked, uint64(total/2))
	require.NotZero(t, info.RTT)
	require.NotZero(t, info.MinRTT)
	require.NotZero(t, info.DeliveryRate)
	require.NotZero(t, info.SndWnd)
	require.NotZero(t, info.PMTU)
	require.NotZero(t, info.SndBuf)
	require.NotEmpty(t, info.Congestion)
	require.Greater(t, info.Cwnd, info.SndMSS)
	require.Contains(t, []string{"fin-wait-1", "fin-wait-2"}, info.State)
	if info.Congestion == "bbr" {
		require.NotZero(t, info.BBR.Bandwidth)
	} else {
		require.Nil(t, info.BBR)
	}

	require.NoError(t, client.Close())
	_, ok = client.Info()
	require.False(t, ok)
}

func TestLimits(t *testing.T) {
	l := readLimits()
	require.NotZero(t, l.SndAuto)
	require.NotZero(t, l.RcvAuto)
	require.NotZero(t, l.SndMax)
	require.NotZero(t, l.RcvMax)
	require.Zero(t, lastField("/proc/sys/net/nosuch"))
	if global := lastField("/proc/sys/net/core/wmem_max"); global > 0 {
		require.Equal(t, global, l.SndMax)
	}
}

// TestLimitsAgain: limits are read again when they are old, and only then.
func TestLimitsAgain(t *testing.T) {
	set := func(at time.Time) {
		lastLimits.Lock()
		defer lastLimits.Unlock()
		lastLimits.at, lastLimits.kernelLimits = at, kernelLimits{SndAuto: 1}
	}
	t.Cleanup(func() { set(time.Time{}) })
	set(time.Now().Add(time.Hour))
	require.Equal(t, kernelLimits{SndAuto: 1}, limits())
	set(time.Now().Add(-limitsFor))
	require.Equal(t, readLimits(), limits())
}

// TestGrow: the kernel grants the requested buffers within its limits.
func TestGrow(t *testing.T) {
	client, _ := connect(t, Config{}, Config{})
	now := readLimits()
	path := client.pathNow(Path{RTT: 0, Rate: 1e15})
	client.grow(path)
	w := client.Windows()
	want := windowFor(path, now)
	require.Equal(t, want.snd > 0, w.SndFixed)
	require.False(t, w.RcvFixed, "its autotuning goes on")
	if want.snd > 0 {
		require.Equal(t, now.buffer(want.snd), w.SndBuf)
	}
	require.NotZero(t, w.SndCap)
	require.NotZero(t, w.RcvCap)
}

// TestCloseBehindUnsentData: Close ends the stream properly even if the kernel has more unsent data
// than the low-water mark allows, and it does not wait for a peer that does not read.
func TestCloseBehindUnsentData(t *testing.T) {
	client, server := connect(t, Config{}, Config{})
	total := 0
	for {
		// A Write returns as soon as the kernel has taken it. The pipe is full when data stays
		// unsent.
		info, ok := client.Info()
		require.True(t, ok)
		if info.NotSent >= lowWater/2 {
			break
		}
		n, err := client.Write(make([]byte, 100_000))
		require.NoError(t, err)
		total += n
	}
	start := time.Now()
	require.NoError(t, client.Close())
	require.Less(t, time.Since(start), stream.CloseTimeout)
	n, err := io.Copy(io.Discard, server)
	require.NoError(t, err)
	require.EqualValues(t, total, n)
}

var _ net.Conn = (*Conn)(nil)

// TestConnectTime: what made the server connect does not count as time of the path.
func TestConnectTime(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	var asked time.Time
	conn, sent, err := connectTo(t.Context(), "", Config{Connect: func(context.Context) (*net.TCPConn, error) {
		far, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { far.Close() })
		conn, err := l.Accept()
		require.NoError(t, err)
		time.Sleep(50 * time.Millisecond)
		asked = time.Now()
		return conn.(*net.TCPConn), nil
	}})
	require.NoError(t, err)
	defer conn.Close()
	info, ok := InfoOf(conn)
	require.True(t, ok)
	require.False(t, sent.Before(asked.Add(-info.RTT)))
}
