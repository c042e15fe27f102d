package tlsrecord

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSecretsFromKeyLog(t *testing.T) {
	var s secrets
	for _, line := range []string{
		"CLIENT_HANDSHAKE_TRAFFIC_SECRET 00 11\n", "CLIENT_TRAFFIC_SECRET_0 00 0aff\n", "SERVER_TRAFFIC_SECRET_0 00 0b\n", "EXPORTER_SECRET 00 22\n",
	} {
		n, err := s.Write([]byte(line))
		require.NoError(t, err)
		require.Equal(t, len(line), n)
	}
	require.Equal(t, secrets{client: []byte{0x0a, 0xff}, server: []byte{0x0b}}, s)
	for _, line := range []string{"", "CLIENT_TRAFFIC_SECRET_0 00\n", "CLIENT_TRAFFIC_SECRET_0 00 xy\n"} {
		_, err := s.Write([]byte(line))
		require.Error(t, err)
	}
}

// TestHandshakeReadsNoFurther: the handshake leaves data right behind its last record to the
// reader.
func TestHandshakeReadsNoFurther(t *testing.T) {
	records := append([]byte{22, 3, 3, 0, 2, 'a', 'b', 22, 3, 3, 0, 0}, 22, 3, 3, 0, 1, 'c')
	near, far := net.Pipe()
	defer near.Close()
	go func() {
		defer far.Close()
		_, _ = far.Write(records)
	}()
	h := &handshakeConn{Conn: near}
	p := make([]byte, 100)
	var reads []int
	for {
		n, err := h.Read(p)
		if err != nil {
			require.Equal(t, io.EOF, err)
			break
		}
		reads = append(reads, n)
	}
	require.Equal(t, []int{5, 2, 5, 5, 1}, reads)
	require.Equal(t, len(records), h.total)
}

func TestHandshakeHasAnEnd(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	go func() {
		for {
			if _, err := far.Write(append([]byte{22, 3, 3, 4, 0}, make([]byte, 1024)...)); err != nil {
				return
			}
		}
	}()
	h := &handshakeConn{Conn: near}
	n, err := io.Copy(io.Discard, struct{ io.Reader }{h})
	require.ErrorIs(t, err, errHandshakeTooLong)
	require.LessOrEqual(t, n, int64(maxHandshake+1024))
}

// TestAdmitted: the first use after Admit enlarges the buffers, and nothing that was read before is
// lost.
func TestAdmitted(t *testing.T) {
	var wire bytes.Buffer
	e, d := ends(t, &wire, &wire)
	message := bytes.Repeat([]byte("message "), 10_000)
	_, err := e.write(nil, message, false)
	require.NoError(t, err)
	require.Len(t, e.buf, smallBuffer)
	got := make([]byte, len(message))
	_, err = io.ReadFull(d, got[:20_000])
	require.NoError(t, err)
	require.Len(t, d.buf, smallBuffer)
	d.size.Store(bulkBuffer)
	_, err = io.ReadFull(d, got[20_000:])
	require.NoError(t, err)
	require.Equal(t, message, got)
	require.Len(t, d.buf, bulkBuffer)
	_, err = e.write(nil, message, false)
	require.NoError(t, err)
	require.Len(t, e.buf, bulkBuffer)
}
