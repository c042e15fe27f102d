//go:build unix

package tlsrecord

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/transport/transporttest"
)

// buffered is crypto/tls over a buffered socket that is flushed after each message. With buffers
// as large as our own it makes as few system calls.
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

// copying is a Conn whose WriteBuffers copies the payload.
type copying struct{ *Conn }

func (c copying) WriteBuffers(header, payload []byte) (int, error) {
	return c.write(header, payload, false)
}

type bare struct{ *net.TCPConn }

func (c bare) WriteBuffers(header, payload []byte) (int, error) {
	bufs := net.Buffers{header, payload}
	n, err := bufs.WriteTo(c.TCPConn)
	return int(n), err
}

// benchEnd makes an end of the given kind.
func benchEnd(raw net.Conn, kind string, buffer int, conf *tls.Config, client bool) (transporttest.BenchEnd, error) {
	tcp := raw.(*net.TCPConn)
	switch kind {
	case "clear":
		return bare{tcp}, nil
	case "crypto/tls":
		s := &bufferedSocket{tcp, bufio.NewReaderSize(tcp, buffer), bufio.NewWriterSize(tcp, buffer), true}
		t := tls.Server(s, conf)
		if client {
			t = tls.Client(s, conf)
		}
		err := t.Handshake()
		s.each = false
		return buffered{t, s}, err
	}
	c := New(rawSocket{tcp})
	err := c.handshake(context.Background(), tcp, conf, client)
	c.size.Store(int64(buffer))
	if kind == "copying" {
		return copying{c}, err
	}
	return c, err
}

func benchPair(b *testing.B, kind string, buffer int) (client, server transporttest.BenchEnd) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer l.Close()
	conf := serverConfig(b)
	done := make(chan error, 1)
	go func() {
		raw, err := l.Accept()
		if err == nil {
			server, err = benchEnd(raw, kind, buffer, conf, false)
		}
		done <- err
	}()
	raw, err := net.Dial("tcp", l.Addr().String())
	require.NoError(b, err)
	client, err = benchEnd(raw, kind, buffer, clientConfig(b), true)
	require.NoError(b, err)
	require.NoError(b, <-done)
	return client, server
}

// BenchmarkStream compares the own record layer over loopback with others, and buffers of several
// sizes.
func BenchmarkStream(b *testing.B) {
	for _, bench := range []struct {
		name, kind string
		buffer     int
	}{
		{"clear", "clear", 0},
		{"crypto-tls", "crypto/tls", bulkBuffer},
		{"crypto-tls/buffer=64KiB", "crypto/tls", 64 << 10},
		{"copying", "copying", bulkBuffer},
		{"own", "own", bulkBuffer},
		{"own/buffer=64KiB", "own", 4 * maxRecord},
		{"own/buffer=128KiB", "own", 8 * maxRecord},
		{"own/buffer=512KiB", "own", 32 * maxRecord},
	} {
		b.Run(bench.name, func(b *testing.B) {
			client, server := benchPair(b, bench.kind, bench.buffer)
			transporttest.Bench(b, client, server)
		})
	}
}
