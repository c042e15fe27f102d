//go:build unix

package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const benchBlock = 1 << 20

type benchEnd interface {
	io.Reader
	WriteBuffers(header, payload []byte) (int, error)
	CloseWrite() error
	Close() error
}

// buffered is crypto/tls over a buffered socket, flushed after each message: what the own record layer has to beat.
type buffered struct {
	*tls.Conn
	socket *bufferedSocket
}

func (b buffered) WriteBuffers(header, payload []byte) (int, error) {
	n, err := b.Write(header)
	if err != nil {
		return n, err
	}
	m, err := b.Write(payload)
	if err != nil {
		return n + m, err
	}
	return n + m, b.socket.w.Flush()
}

func (b buffered) CloseWrite() error {
	b.socket.each = true
	return b.Conn.CloseWrite()
}

type bufferedSocket struct {
	net.Conn
	r *bufio.Reader
	w *bufio.Writer

	each bool // write is flushed
}

func (s *bufferedSocket) Read(p []byte) (int, error) { return s.r.Read(p) }

func (s *bufferedSocket) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err == nil && s.each {
		err = s.w.Flush()
	}
	return n, err
}

// copying is a Conn without the saved copy of WriteBuffers.
type copying struct{ *tcpConn }

func (c copying) WriteBuffers(header, payload []byte) (int, error) {
	return c.write(header, payload, false)
}

type bare struct{ *net.TCPConn }

func (c bare) WriteBuffers(header, payload []byte) (int, error) {
	bufs := net.Buffers{header, payload}
	n, err := bufs.WriteTo(c.TCPConn)
	return int(n), err
}

// benchEndOf makes an end of the kind of a fresh conn.
func benchEndOf(c *tcpConn, kind string, buffer int, conf *tls.Config, client bool) (benchEnd, error) {
	switch kind {
	case "clear":
		return bare{c.tcp}, nil
	case "crypto/tls":
		s := &bufferedSocket{c.tcp, bufio.NewReaderSize(c.tcp, buffer), bufio.NewWriterSize(c.tcp, buffer), true}
		t := tls.Server(s, conf)
		if client {
			t = tls.Client(s, conf)
		}
		err := t.Handshake()
		s.each = false
		return buffered{t, s}, err
	}
	err := c.handshake(context.Background(), c.tcp, conf, client)
	c.ready.Store(true)
	c.buffer.Store(int64(buffer))
	if kind == "copying" {
		return copying{c}, err
	}
	return c, err
}

func benchPair(b *testing.B, kind string, buffer int, congestion string) (client, server benchEnd) {
	b.Helper()
	cfg := Config{Identity: testIdentity(b), Congestion: congestion}
	cert, err := certificate(cfg.Identity)
	require.NoError(b, err)
	conf := tlsConfig(cert, presented)
	l, err := listenTCP("127.0.0.1:0", cfg)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, errors.ErrUnsupported) {
		b.Skip(err)
	}
	require.NoError(b, err)
	defer l.Close()
	done := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			err = c.settle()
		}
		if err == nil {
			server, err = benchEndOf(c, kind, buffer, conf, false)
		}
		done <- err
	}()
	tcp, err := connectTCP(context.Background(), l.Addr().String(), cfg)
	require.NoError(b, err)
	c := newConn(tcp, cfg)
	require.NoError(b, c.settle())
	client, err = benchEndOf(c, kind, buffer, conf, true)
	require.NoError(b, err)
	require.NoError(b, <-done)
	return client, server
}

func cpuSeconds() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// BenchmarkStream moves blocks of 1 MiB with a header over loopback, both ends in this process, and reports the CPU seconds that both
// take for 1e9 bytes. Run it several times and compare medians: on a busy machine single runs differ by a third.
func BenchmarkStream(b *testing.B) {
	for _, bench := range []struct {
		name, kind string
		buffer     int
		congestion string
	}{
		{"clear", "clear", 0, ""},
		{"crypto-tls", "crypto/tls", 64 << 10, ""},
		{"copying", "copying", bulkBuffer, ""},
		{"own", "own", bulkBuffer, ""},
		{"own/buffer=64KiB", "own", 4 * maxRecord, ""},
		{"own/buffer=128KiB", "own", 8 * maxRecord, ""},
		{"own/buffer=512KiB", "own", 32 * maxRecord, ""},
		{"own/bbr", "own", bulkBuffer, "bbr"},
		{"own/cubic", "own", bulkBuffer, "cubic"},
		{"own/reno", "own", bulkBuffer, "reno"},
	} {
		b.Run(bench.name, func(b *testing.B) {
			client, server := benchPair(b, bench.kind, bench.buffer, bench.congestion)
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

func benchReceive(server io.Reader) error {
	header, block := make([]byte, 64), make([]byte, benchBlock)
	for {
		if _, err := io.ReadFull(server, header); err != nil {
			return err
		}
		if _, err := io.ReadFull(server, block); err != nil {
			return err
		}
	}
}
