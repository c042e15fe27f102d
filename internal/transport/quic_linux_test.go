package transport

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// quicPair returns the ends of a stream over loopback.
func quicPair(tb testing.TB) (client, server Conn) {
	tb.Helper()
	l, err := Listen("127.0.0.1:0", Config{Identity: testIdentity(tb), Protocol: QUIC})
	require.NoError(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		l.Shutdown(ctx)
	})
	done := make(chan error, 1)
	go func() {
		var err error
		if server, err = l.Accept(); err == nil {
			err = server.Handshake(context.Background())
		}
		done <- err
	}()
	client, err = Dial(context.Background(), l.Addr().String(), Config{Identity: testIdentity(tb), Protocol: QUIC}, anyKey)
	require.NoError(tb, err)
	require.NoError(tb, <-done)
	server.Admit()
	return client, server
}

// BenchmarkQUIC is BenchmarkStream over QUIC, with and without UDP_GRO.
func BenchmarkQUIC(b *testing.B) {
	for _, off := range []bool{false, true} {
		b.Run(fmt.Sprintf("gro=%t", !off), func(b *testing.B) {
			withoutGRO = off
			defer func() { withoutGRO = false }()
			client, server := quicPair(b)
			defer client.Close()
			defer server.Close()
			done := make(chan error, 1)
			go func() { done <- benchReceive(server) }()
			header, block := make([]byte, 64), make([]byte, benchBlock)
			b.SetBytes(benchBlock)
			b.ResetTimer()
			start := cpuSeconds()
			for range b.N {
				_, err := client.WriteBuffers(header, block)
				require.NoError(b, err)
			}
			require.NoError(b, client.CloseWrite())
			require.ErrorIs(b, <-done, io.EOF)
			b.ReportMetric((cpuSeconds()-start)/float64(b.N)/benchBlock*1e9, "cpu-s/GB")
		})
	}
}

// TestGathered: what the kernel puts together comes out as it was sent, with its sender.
func TestGathered(t *testing.T) {
	udp, err := listenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer udp.Close()
	peer, err := net.DialUDP("udp4", nil, udp.LocalAddr().(*net.UDPAddr))
	require.NoError(t, err)
	defer peer.Close()
	raw, err := peer.SyscallConn()
	require.NoError(t, err)
	if onSocket(raw, func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT, 100) }) != nil {
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

// TestQUICReset: a server that was started anew ends connections that it does not know, at the next packet, and not with an end of stream.
func TestQUICReset(t *testing.T) {
	cfg := Config{Identity: testIdentity(t), Protocol: QUIC}
	l, err := Listen("127.0.0.1:0", cfg)
	require.NoError(t, err)
	var accepted sync.WaitGroup
	accepted.Go(func() {
		if c, err := l.Accept(); err == nil {
			_ = c.Handshake(context.Background())
		}
	})
	c, err := Dial(t.Context(), l.Addr().String(), Config{Identity: testIdentity(t), Protocol: QUIC}, anyKey)
	require.NoError(t, err)
	defer c.Close()
	accepted.Wait()
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	l.Shutdown(gone) // says nothing to anybody
	again, err := Listen(l.Addr().String(), cfg)
	require.NoError(t, err)
	defer again.Shutdown(gone)
	_, err = c.Write(make([]byte, 100))
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(15*time.Second)))
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// TestUnusedLink: a connection that nobody waited for has nothing to say goodbye to, and no server would answer.
func TestUnusedLink(t *testing.T) {
	l, err := Listen("127.0.0.1:0", Config{Identity: testIdentity(t), Protocol: QUIC})
	require.NoError(t, err)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	defer l.Shutdown(gone)
	cfg := Config{Identity: testIdentity(t)}
	cert, err := certificate(cfg.Identity)
	require.NoError(t, err)
	var g Group
	d, err := g.take(false, func(d *dialled, over <-chan struct{}, hint netip.AddrPort) {
		d.run(l.Addr().String(), tlsConfig(cert, presented), nil, over, hint)
	})
	require.NoError(t, err)
	<-d.ready
	require.NoError(t, d.err)
	g.giveBack(d)
	g.all.Wait()
}

// TestRefusal: a message that nobody listens is believed when nothing else comes, and datagrams go out meanwhile.
func TestRefusal(t *testing.T) {
	ended := make(chan struct{}, 2)
	r := refusal{end: func() { ended <- struct{}{} }}
	now := time.Now()
	late := now.Add(refusedAfter)
	r.wrote()
	r.wrote()
	r.told(now)
	r.told(late) // forged: nothing was sent
	r.wrote()
	r.wrote()
	r.told(now.Add(refusedAfter / 2)) // too soon
	r.heard()
	r.told(late) // it was wrong
	r.wrote()
	r.wrote()
	require.Empty(t, ended)
	require.NotNil(t, r.end)
	r.told(late.Add(refusedAfter))
	<-ended
	r.told(late.Add(2 * refusedAfter))
	require.Nil(t, r.end, "once")
}

// TestNobodyListens: where no server is, and where it is gone, QUIC notices as TCP does.
func TestNobodyListens(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		free, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(host)})
		if err != nil {
			continue // no IPv6
		}
		addr := free.LocalAddr().String()
		require.NoError(t, free.Close())
		_, err = Dial(t.Context(), addr, Config{Identity: testIdentity(t), Protocol: QUIC}, anyKey)
		require.ErrorIs(t, err, unix.ECONNREFUSED)
	}
	l, err := Listen("127.0.0.1:0", Config{Identity: testIdentity(t), Protocol: QUIC})
	require.NoError(t, err)
	var accepted sync.WaitGroup
	accepted.Go(func() {
		if c, err := l.Accept(); err == nil {
			_ = c.Handshake(context.Background())
		}
	})
	c, err := Dial(t.Context(), l.Addr().String(), Config{Identity: testIdentity(t), Protocol: QUIC}, anyKey)
	require.NoError(t, err)
	defer c.Close()
	accepted.Wait()
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	l.Shutdown(gone) // says nothing to anybody
	_, err = c.Write(make([]byte, 100))
	require.NoError(t, err)
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.ErrorContains(t, err, "nobody listens")
}
