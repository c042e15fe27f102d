package quic

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fxfer/fxfer/internal/transport/socket"
)

// Datagrams to marked peers carry the codepoint LE, with and without ECN bits of quic-go. Those to
// other peers of the same socket do not.
func TestLowerEffort(t *testing.T) {
	for network, address := range map[string]string{"udp4": "127.0.0.1", "udp6": "::1", "udp": "127.0.0.1"} {
		t.Run(network, func(t *testing.T) {
			own := &net.UDPAddr{IP: net.ParseIP(address)}
			if network == "udp" { // both versions on one socket
				own = nil
			}
			udp, err := openUDP(network, own)
			if err != nil {
				t.Skip(err)
			}
			defer udp.Close()
			marked, plain := listenClass(t, address), listenClass(t, address)
			link := &link{udp: udp}
			class := func(to *classListener, control []byte) int {
				_, oobn, err := udp.WriteMsgUDP([]byte("x"), control, to.addr())
				require.NoError(t, err)
				require.Equal(t, len(control), oobn)
				return to.class(t)
			}
			ecn := controlMessage(unix.IPPROTO_IP, unix.IP_TOS, []byte{2})
			if network == "udp6" {
				ecn = controlMessage(unix.IPPROTO_IPV6, unix.IPV6_TCLASS, []byte{2, 0, 0, 0})
			}
			require.Equal(t, 0, class(marked, nil))
			udp.lower.set(marked.addr(), link, true)
			require.Equal(t, 4, class(marked, nil))
			require.Equal(t, 4|2, class(marked, ecn))
			require.Equal(t, 0, class(plain, nil))
			require.Equal(t, 2, class(plain, ecn))
			udp.lower.set(marked.addr(), link, false)
			require.Equal(t, 2, class(marked, ecn))
			udp.lower.set(marked.addr(), link, true)
			udp.lower.forget(link)
			require.Equal(t, 0, class(marked, nil))
			require.False(t, udp.lower.some.Load())
		})
	}
}

// classListener is a socket that sees the traffic class of what it gets.
type classListener struct{ *net.UDPConn }

func listenClass(t *testing.T, address string) *classListener {
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(address)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = udp.Close() })
	raw, err := udp.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, socket.Control(raw, func(fd int) error {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, 1)
		return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVTOS, 1)
	}))
	return &classListener{udp}
}

func (c *classListener) addr() *net.UDPAddr { return c.LocalAddr().(*net.UDPAddr) }

func (c *classListener) class(t *testing.T) int {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
	oob := make([]byte, 128)
	_, n, _, _, err := c.ReadMsgUDP(make([]byte, 10), oob)
	require.NoError(t, err)
	h, body, _, err := unix.ParseOneSocketControlMessage(oob[:n])
	require.NoError(t, err)
	require.True(t, h.Type == unix.IP_TOS || h.Type == unix.IPV6_TCLASS)
	return int(body[0])
}

// The mark of a stream holds for its connection, and ends with it.
func TestLowerEffortOfStream(t *testing.T) {
	client, server := pair(t)
	for _, c := range []*Conn{client, server} {
		require.NoError(t, c.SetLowerEffort(true))
		require.True(t, c.link.udp.lower.marks(c.RemoteAddr().(*net.UDPAddr)))
		_, err := c.Write([]byte("hello"))
		require.NoError(t, err)
	}
	got := make([]byte, 5)
	_, err := client.Read(got)
	require.NoError(t, err)
	_, err = server.Read(got)
	require.NoError(t, err)
	require.NoError(t, server.SetLowerEffort(false))
	require.False(t, server.link.udp.lower.some.Load())
	require.NoError(t, client.Close())
	require.NoError(t, server.Close())
	require.Eventually(t, func() bool { return !client.link.udp.lower.some.Load() }, 20*time.Second, time.Millisecond)
}
