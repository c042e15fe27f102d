package ftp

import (
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/identity/testca"
)

// TestWhoseIsAcceptedLate: the client's connection has come, but the host has not accepted it before it is sure that
// the other one proves nothing.
func TestWhoseIsAcceptedLate(t *testing.T) {
	t.Parallel()
	cert, key := testca.New(t, "ca").Issue(t, testca.Server(), "ecdsa").Write(t, t.TempDir(), "server")
	pair, err := tls.LoadX509KeyPair(cert, key)
	require.NoError(t, err)
	server := ownTickets(&tls.Config{Certificates: []tls.Certificate{pair}})
	client := &tls.Config{InsecureSkipVerify: true, ServerName: "door", ClientSessionCache: tls.NewLRUClientSessionCache(1)} //nolint:gosec // it is this test's
	here, there := net.Pipe()
	learnt := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, tls.Client(there, client)); close(learnt) }()
	require.NoError(t, tls.Server(here, server).Handshake())
	require.NoError(t, here.Close())
	<-learnt

	at, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := NewPorts([]net.Listener{at})
	defer p.Close()
	l := p.lease(netip.MustParseAddr("127.0.0.1"), "anna")
	dial := func(cfg *tls.Config) *tls.Conn {
		c, err := net.Dial("tcp", at.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		return tls.Client(c, cfg)
	}
	stranger := dial(&tls.Config{InsecureSkipVerify: true}) //nolint:gosec // as above
	c, err := at.Accept()
	require.NoError(t, err)
	p.hand(l.place, c)
	own := dial(client)
	type opened struct {
		d   *dataConn
		err error
	}
	got := make(chan opened, 1)
	go func() {
		d, err := openData(t.Context(), l, server, 0)
		got <- opened{d, err}
	}()
	require.NoError(t, stranger.Handshake())
	go p.Serve()
	go func() { _ = own.Handshake() }()
	x := <-got
	require.NoError(t, x.err)
	defer x.d.reset()
	require.Equal(t, own.LocalAddr().String(), x.d.raw.RemoteAddr().String())
}
