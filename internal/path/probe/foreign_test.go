package probe

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// speaking calls f for each connection until the test ends, and returns the address.
func speaking(t *testing.T, f func(c net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(20 * time.Second))
			f(c)
			c.Close()
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-done
	})
	return ln.Addr().String()
}

func TestForeign(t *testing.T) {
	t.Parallel()
	s, err := Foreign(t.Context(), speaking(t, func(c net.Conn) {
		_, _ = c.Write([]byte("SSH-2.0-x\x1b[2J\xff\r\nmore\n"))
		_, _ = io.Copy(io.Discard, c)
	}), time.Second, 0)
	require.NoError(t, err)
	require.Equal(t, "SSH", s.Guess)
	require.Equal(t, "SSH-2.0-x\ufffd[2J\ufffd", s.Banner)
	require.Empty(t, s.Asked)
	require.Positive(t, s.FirstByte)
	require.Equal(t, connects, s.Connect.Count)

	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	s, err = Foreign(t.Context(), web.Listener.Addr().String(), time.Second, 0)
	require.NoError(t, err)
	require.Equal(t, "HTTP", s.Guess)
	require.NotEmpty(t, s.Asked)
	require.Contains(t, s.Banner, "404")
	require.Positive(t, s.FirstByte)

	s, err = Foreign(t.Context(), speaking(t, func(net.Conn) {}), time.Second, 0) // hangs up
	require.NoError(t, err)
	require.Zero(t, s.FirstByte)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Foreign(ctx, web.Listener.Addr().String(), time.Second, 0)
	require.ErrorIs(t, err, context.Canceled)
}

// A server that breaks the protocol of iperf3 causes an error at once.
func TestHostileIperf(t *testing.T) {
	long := binary.BigEndian.AppendUint32([]byte{iperfExchangeResults}, 1<<31)
	for name, c := range map[string]struct {
		says []byte
		want string
	}{
		"busy":             {[]byte{iperfDenied}, "another test"},
		"unknown state":    {[]byte{77}, "state 77"},
		"no stream":        {[]byte{iperfTestRunning}, "without a stream"},
		"long results":     {long, "results of 2147483648 bytes"},
		"nonsense results": {[]byte{iperfExchangeResults, 0, 0, 0, 1, '{'}, "JSON"},
		"ends":             {nil, "EOF"},
	} {
		addr := speaking(t, func(conn net.Conn) {
			_, _ = conn.Write(c.says)
			_ = conn.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, conn)
		})
		x := iperfTest{addr: addr, within: time.Second, connected: func(*net.TCPConn, time.Duration) {}}
		_, err := x.run(t.Context(), Up)
		require.ErrorContains(t, err, c.want, name)
	}
}

// The server is asked for the socket buffer, unless it refused it before.
func TestIperfSockBuf(t *testing.T) {
	const size = 40_000
	for _, there := range []bool{true, false} {
		asked := make(chan iperfParams, 1)
		addr := speaking(t, func(c net.Conn) {
			_, _ = io.ReadFull(c, make([]byte, 37)) // the cookie
			_, _ = c.Write([]byte{iperfParamExchange})
			var p iperfParams
			_ = iperfRead(c, &p)
			asked <- p
			_, _ = c.Write([]byte{iperfDenied})
		})
		x := iperfTest{addr: addr, within: time.Second, sockBuf: size, there: there, connected: func(*net.TCPConn, time.Duration) {}}
		_, err := x.run(t.Context(), Up)
		require.ErrorContains(t, err, "another test")
		want := 0
		if there {
			want = size
		}
		require.Equal(t, want, (<-asked).Window)
	}
}
