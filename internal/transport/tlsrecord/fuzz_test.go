package tlsrecord

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// heldConn reads from in and ignores what is written.
type heldConn struct {
	net.Conn
	in io.Reader
}

func (c *heldConn) Read(p []byte) (int, error)       { return c.in.Read(p) }
func (c *heldConn) Write(p []byte) (int, error)      { return len(p), nil }
func (c *heldConn) Close() error                     { return nil }
func (c *heldConn) SetDeadline(time.Time) error      { return nil }
func (c *heldConn) SetReadDeadline(time.Time) error  { return nil }
func (c *heldConn) SetWriteDeadline(time.Time) error { return nil }

// FuzzHandshake: bytes that are no handshake end it on either side, and authenticate nobody.
func FuzzHandshake(f *testing.F) {
	conf := serverConfig(f)
	f.Add(clientHello(f), false)
	f.Add([]byte{22, 3, 1, 0, 5, 1, 0, 0, 1, 0}, false)
	f.Add(append([]byte{22, 3, 3, 0xff, 0xff}, make([]byte, 70_000)...), true)
	f.Add([]byte{21, 3, 3, 0, 2, 1, 0}, true)
	f.Fuzz(func(t *testing.T, b []byte, client bool) {
		c := &Conn{}
		require.Error(t, c.handshake(context.Background(), &heldConn{in: bytes.NewReader(b)}, conf, client))
		require.Nil(t, c.State())
	})
}

// clientHello is the first message of a client.
func clientHello(t testing.TB) []byte {
	near, far := net.Pipe()
	var said bytes.Buffer
	var reading sync.WaitGroup
	reading.Go(func() {
		b := make([]byte, 16<<10)
		n, _ := far.Read(b)
		said.Write(b[:n])
		far.Close()
	})
	_ = (&Conn{}).handshake(context.Background(), near, clientConfig(t), true)
	reading.Wait()
	return said.Bytes()
}
