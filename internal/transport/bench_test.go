//go:build unix

package transport

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
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

// bufferedTLS is crypto/tls over buffers of size bytes, flushed after each message: what the own record layer has to beat.
type bufferedTLS struct {
	*tls.Conn
	w *bufio.Writer
}

type bufferedTCP struct {
	net.Conn
	r *bufio.Reader
	w *bufio.Writer
}

func (b bufferedTCP) Read(p []byte) (int, error)  { return b.r.Read(p) }
func (b bufferedTCP) Write(p []byte) (int, error) { return b.w.Write(p) }

func newBufferedTLS(tcp net.Conn, size int, conf *tls.Config, client bool) (bufferedTLS, error) {
	w := bufio.NewWriterSize(tcp, size)
	hs := bufferedTCP{tcp, bufio.NewReaderSize(tcp, size), w}
	var t *tls.Conn
	flushing := flushingTCP{hs}
	if client {
		t = tls.Client(flushing, conf)
	} else {
		t = tls.Server(flushing, conf)
	}
	if err := t.Handshake(); err != nil {
		return bufferedTLS{}, err
	}
	return bufferedTLS{t, w}, nil
}

// flushingTCP flushes what is short, as handshake messages are and bulk records are not.
type flushingTCP struct{ bufferedTCP }

func (f flushingTCP) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err == nil && len(p) < 4<<10 {
		err = f.w.Flush()
	}
	return n, err
}

func (b bufferedTLS) WriteBuffers(header, payload []byte) (int, error) {
	n, err := b.Conn.Write(header)
	if err != nil {
		return n, err
	}
	m, err := b.Conn.Write(payload)
	if err != nil {
		return n + m, err
	}
	return n + m, b.w.Flush()
}

type copying struct{ *Conn }

func (c copying) WriteBuffers(header, payload []byte) (int, error) {
	return c.write(header, payload, false)
}

type clearTCP struct{ *net.TCPConn }

func (c clearTCP) WriteBuffers(header, payload []byte) (int, error) {
	bufs := net.Buffers{header, payload}
	n, err := bufs.WriteTo(c.TCPConn)
	return int(n), err
}

func benchPair(b *testing.B, kind string, size int, congestion string) (client, server benchEnd) {
	_, id, err := ed25519.GenerateKey(nil)
	require.NoError(b, err)
	l, err := Listen("127.0.0.1:0", Config{Identity: id, Congestion: congestion})
	require.NoError(b, err)
	defer l.Close()
	wrap := func(c *Conn, client bool) (benchEnd, error) {
		switch kind {
		case "clear":
			return clearTCP{c.tcp}, nil
		case "bufio":
			cert, err := certificate(id)
			if err != nil {
				return nil, err
			}
			return newBufferedTLS(c.tcp, size, tlsConfig(cert, func(ed25519.PublicKey) error { return nil }), client)
		}
		var err error
		if client {
			cert, _ := certificate(id)
			err = c.handshake(context.Background(), c.tcp, tlsConfig(cert, func(ed25519.PublicKey) error { return nil }), true)
			c.ready.Store(true)
		} else {
			err = c.Handshake(context.Background())
		}
		c.buffer.Store(int64(size))
		if kind == "copy" {
			return copying{c}, err
		}
		return c, err
	}
	got := make(chan benchEnd, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			server, err = wrap(c, false)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		got <- server
	}()
	tcp, err := dialTCP(context.Background(), l.Addr().String(), Config{Congestion: congestion})
	require.NoError(b, err)
	conn := newConn(tcp, Config{Congestion: congestion})
	require.NoError(b, conn.settle())
	client, err = wrap(conn, true)
	require.NoError(b, err)
	server = <-got
	require.NotNil(b, server)
	return client, server
}

func cpuSeconds() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// BenchmarkStream moves blocks of 1 MiB with a header over loopback, both ends in this process, and reports the CPU seconds that both
// take for 1e9 bytes.
func BenchmarkStream(b *testing.B) {
	kinds := strings.Split(cmpOr(os.Getenv("KINDS"), "clear/0,bufio/65536,own/0"), ",")
	for _, kind := range kinds {
		b.Run(kind, func(b *testing.B) {
			var size int
			name, rest, _ := strings.Cut(kind, "/")
			sizeText, cc, _ := strings.Cut(rest, "/")
			fmt.Sscan(sizeText, &size)
			if size == 0 {
				size = bulkBuffer
			}
			client, server := benchPair(b, name, size, cc)
			defer client.Close()
			defer server.Close()
			done := make(chan error, 1)
			received := make([]byte, benchBlock)
			go func() {
				head := make([]byte, 64)
				for {
					if _, err := io.ReadFull(server, head); err != nil {
						done <- err
						return
					}
					if _, err := io.ReadFull(server, received); err != nil {
						done <- err
						return
					}
				}
			}()
			head, block := make([]byte, 64), make([]byte, benchBlock)
			b.SetBytes(benchBlock)
			b.ResetTimer()
			start := cpuSeconds()
			for range b.N {
				if _, err := client.WriteBuffers(head, block); err != nil {
					b.Fatal(err)
				}
			}
			require.NoError(b, client.CloseWrite())
			if bt, ok := client.(bufferedTLS); ok {
				require.NoError(b, bt.w.Flush())
			}
			require.ErrorIs(b, <-done, io.EOF)
			b.ReportMetric((cpuSeconds()-start)/float64(b.N)/benchBlock*1e9, "cpu-s/GB")
		})
	}
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
