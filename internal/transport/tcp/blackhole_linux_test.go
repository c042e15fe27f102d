package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/transport/transporttest"
)

// TestDoubtIsNoProof: a peer that was stopped for a while is no black hole, even if it answers the
// small packets first.
func TestDoubtIsNoProof(t *testing.T) {
	t.Parallel()
	l, err := Listen("127.0.0.1:0", Config{Auth: newAuth(t)})
	require.NoError(t, err)
	defer l.Close()
	served := make(chan error, 1)
	go func() {
		var conns [2]*Conn // the first, and the one with small packets that follows because there was no answer
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
	c, err := Dial(t.Context(), l.Addr().String(), Config{Auth: newAuth(t), Doubt: true}, transporttest.AnyKey)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, <-served)
}
