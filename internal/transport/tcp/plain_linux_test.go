package tcp

import (
	"bytes"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// plainPair returns a plain stream, and the socket at its other end.
func plainPair(t *testing.T) (*Conn, *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	c, err := Connect(t.Context(), l.Addr().String(), Config{})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	peer, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { peer.Close() })
	return c, peer.(*net.TCPConn)
}

// A peer may send about as much as LimitUnread says.
func TestLimitUnread(t *testing.T) {
	t.Parallel()
	const limit = 512 << 10
	c, peer := plainPair(t)
	c.LimitUnread(64 << 10)
	c.LimitUnread(limit)
	require.NoError(t, peer.SetWriteBuffer(64<<10))
	require.NoError(t, peer.SetWriteDeadline(time.Now().Add(2*time.Second)))
	_, err := peer.Write(make([]byte, 16*limit))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Greater(t, unread(t, c), limit/2)
	require.LessOrEqual(t, unread(t, c), 4*limit, "the memory that the kernel takes for it")
}

// Plain streams have all bytes, the last one too, and the end, although they ask the kernel for more
// while they wait.
func TestPlainReads(t *testing.T) {
	t.Parallel()
	c, peer := plainPair(t)
	c.LimitUnread(64 << 10)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	much := func() int { return option(t, c, unix.SOL_SOCKET, unix.SO_RCVLOWAT) }
	want := bytes.Repeat([]byte("0123456789"), 1000)
	_, err := peer.Write(want)
	require.NoError(t, err)
	got := make([]byte, len(want))
	_, err = io.ReadFull(c, got[:2000])
	require.NoError(t, err)
	require.Greater(t, much(), 32<<10, "what arrives now is acknowledged at once")
	_, err = io.ReadFull(c, got[2000:])
	require.NoError(t, err)
	require.Equal(t, want, got)

	read := make(chan int, 1)
	go func() { n, _ := c.Read(got); read <- n }()
	require.Eventually(t, func() bool { return much() == 1 }, time.Minute, time.Millisecond, "it waits")
	_, err = peer.Write([]byte{1})
	require.NoError(t, err)
	require.Equal(t, 1, <-read)

	require.NoError(t, c.SetReadDeadline(time.Now()))
	_, err = c.Read(got)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	require.NoError(t, peer.CloseWrite())
	_, err = c.Read(got)
	require.ErrorIs(t, err, io.EOF)
}
