package tcp

import (
	"context"
	"crypto/ed25519"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fxfer/fxfer/internal/transport/socket"
)

// unread returns how many bytes wait in the socket of c.
func unread(t *testing.T, c *Conn) int {
	t.Helper()
	raw, err := c.tcp.SyscallConn()
	require.NoError(t, err)
	var n int
	require.NoError(t, socket.Control(raw, func(fd int) (err error) {
		n, err = unix.IoctlGetInt(fd, unix.SIOCINQ)
		return err
	}))
	return n
}

// TestMemoryBeforeAdmission: before a peer is admitted it can make this host keep less than 64 KiB.
func TestMemoryBeforeAdmission(t *testing.T) {
	const unknown = 40
	const limit = 64 << 10
	l, err := Listen("127.0.0.1:0", Config{Auth: newAuth(t)})
	require.NoError(t, err)
	defer l.Close()
	memory := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc + m.StackInuse)
	}
	check := func(t *testing.T, before int) {
		require.Less(t, (memory()-before)/unknown, limit)
		t.Logf("%d bytes each", (memory()-before)/unknown)
	}

	t.Run("in the handshake", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		// A ClientHello of the largest record size, without its end.
		hello := append([]byte{22, 3, 1, 0x3f, 0xf0, 1, 0, 0x3f, 0xec}, make([]byte, 0x3ff0-4-1)...)
		done := make(chan error, unknown)
		var peers []net.Conn
		before := memory()
		var conns []*Conn
		for range unknown {
			peer, err := net.Dial("tcp", l.Addr().String())
			require.NoError(t, err)
			peers = append(peers, peer)
			c, err := l.Accept()
			require.NoError(t, err)
			conns = append(conns, c)
			go func() { done <- c.Handshake(ctx) }()
			_, err = peer.Write(hello)
			require.NoError(t, err)
		}
		// Then each server has read all there is and waits for the end.
		for _, c := range conns {
			require.Eventually(t, func() bool {
				info, _ := c.Info()
				return info.BytesReceived >= uint64(len(hello)) && unread(t, c) == 0
			}, 5*time.Second, time.Millisecond)
		}
		check(t, before)
		cancel()
		for range unknown {
			require.Error(t, <-done)
		}
		for _, p := range peers {
			p.Close()
		}
	})

	t.Run("after it", func(t *testing.T) {
		var clients, servers []*Conn
		key := newAuth(t)
		for range unknown {
			dialled := make(chan *Conn, 1)
			go func() {
				c, err := Dial(context.Background(), l.Addr().String(), Config{Auth: key}, func(ed25519.PublicKey) error { return nil })
				if err != nil {
					c = nil
				}
				dialled <- c
			}()
			c, err := l.Accept()
			require.NoError(t, err)
			require.NoError(t, c.Handshake(t.Context()))
			client := <-dialled
			require.NotNil(t, client)
			clients, servers = append(clients, client), append(servers, c)
			t.Cleanup(func() { client.Close(); c.Close() })
		}
		payload := make([]byte, 40_000)
		for _, c := range clients {
			_, err := c.Write(payload)
			require.NoError(t, err)
		}
		before := memory()
		for _, c := range servers {
			_, err := c.Write([]byte("no"))
			require.NoError(t, err)
			_, err = io.ReadFull(c, make([]byte, 100))
			require.NoError(t, err)
		}
		check(t, before)
		runtime.KeepAlive(clients)
		runtime.KeepAlive(servers)
	})
}
