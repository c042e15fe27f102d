package transport

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A peer that was stopped for a while is no black hole, even if it answers the small packets first.
func TestDoubtIsNoProof(t *testing.T) {
	t.Parallel()
	l, err := listenTCP("127.0.0.1:0", Config{Identity: testIdentity(t)})
	require.NoError(t, err)
	defer l.Close()
	served := make(chan error, 1)
	go func() {
		var conns [2]*tcpConn // the one, and when that got no answer, the other with small packets
		var err error
		for i := 0; i < len(conns) && err == nil; i++ {
			conns[i], err = l.Accept()
		}
		for i := len(conns) - 1; i >= 0 && err == nil; i-- {
			err = conns[i].Handshake(t.Context())
		}
		for _, c := range conns {
			if c != nil {
				_ = c.Close()
			}
		}
		served <- err
	}()
	c, err := dialTCP(t.Context(), l.Addr().String(), Config{Identity: testIdentity(t), Doubt: true}, anyKey)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, <-served)
}
