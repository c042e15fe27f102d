package quic

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/fxfer/fxfer/internal/transport/socket"
	"github.com/fxfer/fxfer/internal/transport/transporttest"
)

// BenchmarkStream compares streams over loopback with and without UDP_GRO.
func BenchmarkStream(b *testing.B) {
	for _, off := range []bool{false, true} {
		b.Run(fmt.Sprintf("gro=%t", !off), func(b *testing.B) {
			withoutGRO = off
			defer func() { withoutGRO = false }()
			client, server := pair(b)
			transporttest.Bench(b, client, server)
		})
	}
}

// TestGathered: datagrams that the kernel combines come out as they were sent, with their sender.
func TestGathered(t *testing.T) {
	udp, err := openUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer udp.Close()
	peer, err := net.DialUDP("udp4", nil, udp.LocalAddr().(*net.UDPAddr))
	require.NoError(t, err)
	defer peer.Close()
	raw, err := peer.SyscallConn()
	require.NoError(t, err)
	if socket.Control(raw, func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT, 100) }) != nil {
		t.Skip("no UDP_SEGMENT")
	}
	sent := make([]byte, 1030) // ten of 100 bytes and one of 30
	for i := range sent {
		sent[i] = byte(i)
	}
	_, err = peer.Write(sent)
	require.NoError(t, err)
	ms := make([]ipv4.Message, 3)
	for i := range ms {
		ms[i] = ipv4.Message{Buffers: [][]byte{make([]byte, 1452)}, OOB: make([]byte, controlRoom)}
	}
	var got []byte
	require.NoError(t, udp.SetReadDeadline(time.Now().Add(10*time.Second)))
	for len(got) < len(sent) {
		n, err := udp.ReadBatch(ms, 0)
		require.NoError(t, err)
		for _, m := range ms[:n] {
			require.LessOrEqual(t, m.N, 100)
			require.Equal(t, peer.LocalAddr().String(), m.Addr.String())
			got = append(got, m.Buffers[0][:m.N]...)
		}
	}
	require.Equal(t, sent, got)
}

// TestReset: a restarted server ends connections that it does not know at the next packet, and not
// with an end of stream.
func TestReset(t *testing.T) {
	cfg := ListenConfig{Auth: newAuth(t)}
	l, err := Listen("127.0.0.1:0", cfg)
	require.NoError(t, err)
	c, _ := streamTo(t, l)
	defer c.Close()
	vanish(l)
	again, err := Listen(l.Addr().String(), cfg)
	require.NoError(t, err)
	defer vanish(again)
	_, err = c.Write(make([]byte, 100))
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(15*time.Second)))
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// TestUnusedLink: a connection that nobody waited for ends without a goodbye. No server would
// answer one.
func TestUnusedLink(t *testing.T) {
	l, err := Listen("127.0.0.1:0", ListenConfig{Auth: newAuth(t)})
	require.NoError(t, err)
	defer vanish(l)
	conf, err := newAuth(t).Client(l.Addr().String(), transporttest.AnyKey)
	require.NoError(t, err)
	var g Group
	d, err := g.take(false, func(d *dialled, over <-chan struct{}, hint netip.AddrPort) {
		d.run(l.Addr().String(), conf, nil, over, hint)
	})
	require.NoError(t, err)
	<-d.ready
	require.NoError(t, d.err)
	g.giveBack(d)
	g.all.Wait()
}

// TestRefusal: refusals count when nothing else comes although datagrams go out.
func TestRefusal(t *testing.T) {
	ended := make(chan struct{}, 2)
	r := refusal{end: func() { ended <- struct{}{} }}
	now := time.Now()
	late := now.Add(refusedAfter)
	r.sending()
	r.sending()
	r.refused(now)
	r.refused(late) // forged: nothing was sent
	r.sending()
	r.sending()
	r.refused(now.Add(refusedAfter / 2)) // too soon
	r.received()
	r.refused(late) // it was wrong
	r.sending()
	r.sending()
	require.Empty(t, ended)
	require.NotNil(t, r.end)
	r.refused(late.Add(refusedAfter))
	<-ended
	r.refused(late.Add(2 * refusedAfter))
	require.Nil(t, r.end, "once")
}

// TestNobodyListens: QUIC notices like TCP that there is no server, or that it is gone.
func TestNobodyListens(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"127.0.0.1", "::1"} {
		free, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(host)})
		if err != nil {
			continue // no IPv6
		}
		addr := free.LocalAddr().String()
		require.NoError(t, free.Close())
		_, err = Dial(t.Context(), addr, Config{Auth: newAuth(t)}, transporttest.AnyKey)
		require.ErrorIs(t, err, unix.ECONNREFUSED)
	}
	l, err := Listen("127.0.0.1:0", ListenConfig{Auth: newAuth(t)})
	require.NoError(t, err)
	c, _ := streamTo(t, l)
	defer c.Close()
	vanish(l)
	_, err = c.Write(make([]byte, 100))
	require.NoError(t, err)
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.ErrorContains(t, err, "nobody listens")
}

// TestEmptyDatagram: quic-go takes a batch without datagrams for an old one.
func TestEmptyDatagram(t *testing.T) {
	udp, err := openUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer udp.Close()
	peer, err := net.DialUDP("udp4", nil, udp.LocalAddr().(*net.UDPAddr))
	require.NoError(t, err)
	defer peer.Close()
	for _, b := range []string{"", "a", "", "", "b", ""} {
		_, err = peer.Write([]byte(b))
		require.NoError(t, err)
	}
	require.NoError(t, udp.SetReadDeadline(time.Now().Add(10*time.Second)))
	ms := []ipv4.Message{{Buffers: [][]byte{make([]byte, 1452)}, OOB: make([]byte, controlRoom)}}
	for _, want := range []string{"a", "b"} {
		n, err := udp.ReadBatch(ms, 0)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, want, string(ms[0].Buffers[0][:ms[0].N]))
	}
}
