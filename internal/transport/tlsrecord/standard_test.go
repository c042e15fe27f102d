package tlsrecord

import (
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStandardKeyLimit: a stream with the records of crypto/tls, which never changes its keys, takes no
// more once its key has encrypted enough. The other end gets all that was written before, and its own
// key updates are understood.
func TestStandardKeyLimit(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	conf, accepted := serverConfig(t), make(chan *Standard, 1)
	go func() {
		raw, err := l.Accept()
		if err != nil {
			accepted <- nil
			return
		}
		c := NewStandard(rawSocket{raw.(*net.TCPConn)})
		if c.Server(t.Context(), conf) != nil {
			c = nil
		}
		accepted <- c
	}()
	raw, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	own := New(rawSocket{raw.(*net.TCPConn)})
	require.NoError(t, own.Client(t.Context(), clientConfig(t)))
	defer own.Close()
	own.Admit()
	std := <-accepted
	require.NotNil(t, std)
	defer std.Close()
	require.EqualValues(t, 1<<24, std.records.Load(), "RFC 8446, section 5.5, allows 2^24.5")

	std.records.Store(10)
	block := make([]byte, 5*maxPlain)
	n, err := std.WriteBuffers(make([]byte, 48), block)
	require.NoError(t, err)
	require.Equal(t, 48+len(block), n)
	_, err = io.ReadFull(own, make([]byte, n))
	require.NoError(t, err)
	_, err = std.Write(block)
	require.ErrorIs(t, err, errKeyUsed)

	own.out.updateAfter = 1
	for range 5 {
		_, err = own.Write([]byte("still heard"))
		require.NoError(t, err)
	}
	_, err = io.ReadFull(std, make([]byte, 5*len("still heard")))
	require.NoError(t, err)
}
